"""MetricFlow and plain SQL get the same ratios from one publication, at any grain; unknown is not 0."""

from __future__ import annotations

import re
import shlex
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest

from pipelines.fleet.places import PROJECT
from pipelines.publishing.publication import DATABASE
from tests import metrics_project
from tests.books import Book
from tests.report import publications


class Question(NamedTuple):
    """What is asked of MetricFlow, and the query with the same answer: first the groups, then the metrics."""

    metrics: str
    groups: str
    sql: str
    where: str = ""

    def request(self) -> dict[str, object]:
        return {
            "metric_names": self.metrics.split(),
            "group_by_names": self.groups.split(),
            **({"where_constraints": [self.where]} if self.where else {}),
        }


METRICS_PAGE = PROJECT / "docs/metrics.md"
OUTPUT = "sum(matched_joules) / nullif(sum(matched_output_tokens), 0)"
TOTAL = "sum(matched_joules) / nullif(sum(matched_total_tokens), 0)"
PRODUCTIVE = "sum(matched_productive_joules) / nullif(sum(matched_output_tokens), 0)"
USD = "1e6 * sum(matched_compute_cost_usd) / nullif(sum(priced_output_tokens), 0)"
VARIABLE = "1e6 * sum(matched_variable_cost_usd) / nullif(sum(tariffed_output_tokens), 0)"
CARBON = "1e6 * sum(matched_location_gco2e) / nullif(sum(carbon_known_output_tokens), 0)"
IDLE = "sum(idle_joules) / nullif(sum(productive_joules + idle_joules), 0)"
IDLE_TIME = "1 - sum(active_seconds) / nullif(sum(known_seconds), 0)"
DAILY = "from marts.model_daily"
NAMES = "site deployment namespace team model device_type meter_scope role"
COLUMNS = (
    "joules_per_output_token joules_per_total_token productive_joules_per_output_token idle_energy_ratio"
    " idle_time_ratio compute_cost_usd_per_output_mtok variable_cost_usd_per_output_mtok"
    " location_gco2e_per_output_mtok matched_ratio cost_coverage_ratio carbon_coverage_ratio"
)
WEEK = "date_trunc('week', date)"
TWENTY = [
    Question("joules_per_output_token", "", f"select {OUTPUT} {DAILY}"),
    Question("joules_per_output_token", "model", f"select model, {OUTPUT} {DAILY} group by all"),
    # A metric has the name of the mart's own column, and is the same number at the mart's own grain.
    Question(COLUMNS, f"metric_time__day {NAMES}", f"select date, {', '.join(f'{NAMES} {COLUMNS}'.split())} {DAILY}"),
    Question(
        "joules_per_total_token", "metric_time__week model", f"select {WEEK}, model, {TOTAL} {DAILY} group by all"
    ),
    Question(
        "joules_per_total_token",
        "metric_time__month",
        f"select date_trunc('month', date), {TOTAL} {DAILY} group by all",
    ),
    Question("productive_joules_per_output_token", "site", f"select site, {PRODUCTIVE} {DAILY} group by all"),
    Question(
        "compute_cost_usd_per_output_mtok",
        "metric_time__week",
        f"select {WEEK}, {USD} {DAILY} group by all",
    ),
    Question("compute_cost_usd_per_output_mtok", "team", f"select team, {USD} {DAILY} group by all"),
    Question(
        "compute_cost_usd_per_output_mtok",
        "",
        f"select {USD} {DAILY} where model in ('gpt-oss-120b', 'gemma-4-31B')",
        "{{ Entity('model') }} in ('gpt-oss-120b', 'gemma-4-31B')",
    ),
    Question(
        "variable_cost_usd_per_output_mtok",
        "metric_time__day model",
        f"select date, model, {VARIABLE} {DAILY} group by all",
    ),
    Question(
        "location_gco2e_per_output_mtok",
        "metric_time__week site",
        f"select {WEEK}, site, {CARBON} {DAILY} group by all",
    ),
    Question("location_gco2e_per_output_mtok", "namespace", f"select namespace, {CARBON} {DAILY} group by all"),
    Question("idle_energy_ratio", "model", f"select model, {IDLE} {DAILY} group by all"),
    Question(
        "idle_energy_ratio",
        "metric_time__day",
        f"select date, {IDLE} {DAILY} where date >= '2026-10-12' and device_type = 'a100-sxm4-80gb' group by all",
        "{{ TimeDimension('metric_time', 'day') }} >= '2026-10-12' and {{ Entity('device_type') }} = 'a100-sxm4-80gb'",
    ),
    Question("idle_time_ratio", "deployment", f"select deployment, {IDLE_TIME} {DAILY} group by all"),
    # The four accounts of idle energy add up to its share.
    Question(
        "idle_floor_energy_ratio parked_energy_ratio asleep_energy_ratio unallocated_energy_ratio",
        "metric_time__week",
        f"""select {WEEK}, {
            ", ".join(
                f"sum({account}_joules) / sum(productive_joules + idle_joules)"
                for account in ("idle_floor", "parked", "asleep", "unallocated")
            )
        } {DAILY} group by all""",
    ),
    Question(
        "idle_energy_cost_usd idle_capacity_cost_usd",
        "account metric_time__month",
        "select account, date_trunc('month', date), sum(idle_energy_cost_usd), sum(idle_capacity_cost_usd)"
        " from marts.idle_power group by all",
    ),
    Question(
        "matched_ratio cost_coverage_ratio carbon_coverage_ratio",
        "meter_scope",
        "select meter_scope, sum(matched_joules) / sum(energy_joules), sum(priced_output_tokens) /"
        " sum(matched_output_tokens), sum(carbon_known_output_tokens) / sum(matched_output_tokens)"
        f" {DAILY} group by all",
    ),
    Question(
        "tenant_cost_usd_per_output_mtok tenant_cost_coverage_ratio",
        "tenant team metric_time__week",
        f"""select tenant, team, {WEEK},
        1e6 * sum(fully_loaded_cost_usd) filter (is_cost_complete and output_tokens is not null)
        / nullif(sum(output_tokens) filter (is_cost_complete), 0),
        sum(output_tokens) filter (is_cost_complete) / nullif(sum(output_tokens), 0)
        from marts.tenant_daily group by all""",
    ),
    # Two tables in one question: what they have in common.
    Question(
        "joules_per_output_token compute_cost_usd_per_output_mtok location_gco2e_per_output_mtok idle_energy_ratio"
        " tenant_cost_usd",
        "metric_time__week model",
        f"""select * from (select {WEEK} as week, model, {OUTPUT}, {USD}, {CARBON}, {IDLE} {DAILY} group by all)
        full join (select {WEEK} as week, model, sum(fully_loaded_cost_usd) as tenant_usd from marts.tenant_daily
        group by all) using (week, model)""",
    ),
]


def by_group(connection: duckdb.DuckDBPyConnection, question: Question) -> dict[tuple, tuple]:
    groups = len(question.groups.split())
    rows = connection.execute(question.sql).fetchall()
    return {
        tuple(f"{value} 00:00:00"[:19] if isinstance(value, date) else value for value in row[:groups]): tuple(
            None if value is None else float(value) for value in row[groups:]
        )
        for row in rows
    }


def assert_alike(found: dict[tuple, tuple], expected: dict[tuple, tuple], question: object) -> None:
    """The same groups with the same numbers, unknown where the other is unknown."""
    assert found.keys() == expected.keys(), question
    for group, values in expected.items():
        assert [value is None for value in found[group]] == [value is None for value in values], (question, group)
        known = [(one, other) for one, other in zip(found[group], values, strict=True) if one is not None]
        assert [one for one, _ in known] == pytest.approx([other for _, other in known], rel=1e-12, abs=1e-12), (
            question,
            group,
        )


@pytest.mark.needs("metricflow")
def test_metricflow_and_sql_answer_twenty_questions_alike(four_weeks: tuple[Book, str], tmp_path: Path) -> None:
    assert len(TWENTY) == 20
    published = four_weeks[0].fleet.published / DATABASE
    found = metrics_project.answers(published, [question.request() for question in TWENTY], tmp_path)
    with closing(duckdb.connect(str(published), read_only=True)) as connection:
        for question, answer in zip(TWENTY, found, strict=True):
            assert_alike(answer, by_group(connection, question), question)
    # The ratios that README prints.
    assert found[1]["gpt-oss-120b",] == (pytest.approx(1.2673, abs=5e-5),)
    assert found[1]["Kimi-K2.5",] == (None,)
    assert len(found[3]) == 30  # five weeks of six models


def unknown_days() -> list[dict]:
    """Four dates, in two months and two weeks, of three models.

    `busy` has 10 J per output token, on the last date 30. `waiting` draws power and is known to have served nothing.
    `silent` draws more and no source reports its tokens.
    """
    unmatched = {"matched_joules": None, "matched_output_tokens": None, "output_tokens": None, "idle_joules": 0,
                 "productive_joules": 0, "unknown_joules": 9e6, "energy_joules": 9e6}  # fmt: skip
    dates = [date(2026, 10, 30), date(2026, 10, 31), date(2026, 11, 1), date(2026, 11, 2)]
    busy = {"matched_output_tokens": 100, "energy_joules": 1000, "productive_joules": 750, "idle_joules": 250}
    waiting = {"matched_output_tokens": 0, "productive_joules": 0, "idle_joules": 500, "energy_joules": 500}
    priced = {"matched_compute_cost_usd": 2, "priced_output_tokens": 50}
    return [
        *(publications.model_day(on, "silent", **unmatched) for on in dates),
        publications.model_day(dates[0], "busy", **busy, **priced, matched_joules=1000),
        publications.model_day(dates[1], "busy", **busy, matched_joules=1000),
        publications.model_day(dates[1], "waiting", **waiting, matched_joules=500),
        publications.model_day(dates[2], "busy", **busy, matched_joules=1000),
        publications.model_day(dates[3], "busy", **busy, matched_joules=3000),
    ]


def tenant_days() -> list[dict]:
    def row(tenant: str, day: int, usd: float | None, tokens: int | None, is_complete: bool | None) -> dict:
        return {
            **publications.KEYS, "date": date(2026, 10, day), "billing_month": date(2026, 10, 1), "deployment": "llm/x",
            "model": "x", "tenant": tenant, "fully_loaded_cost_usd": usd, "output_tokens": tokens,
            "is_cost_complete": is_complete,
        }  # fmt: skip

    return [
        row("acme", 1, 3, 100, True),
        row("acme", 2, 5, 100, False),  # some part has no price
        row("acme", 3, 7, None, True),  # nothing reported its tokens
        row("none", 1, 4, 0, True),  # known to be 0
        row("spare", 1, None, None, None),
    ]


@pytest.mark.needs("metricflow")
def test_unknown_is_in_no_ratio_and_a_known_zero_is(tmp_path: Path) -> None:
    published = publications.write(tmp_path, marts_model_daily=unknown_days(), marts_tenant_daily=tenant_days())
    joules, usd = "joules_per_output_token", "compute_cost_usd_per_output_mtok cost_coverage_ratio"
    silent = "{{ Entity('model') }} = 'silent'"
    questions = [
        Question(joules, "", ""),
        Question(joules, "model", ""),
        Question(joules, "metric_time__month", ""),
        Question(joules, "metric_time__week", ""),
        Question(joules, "", "", silent),
        Question("idle_energy_ratio", "model", ""),
        Question(usd, "", ""),
        Question("tenant_cost_usd_per_output_mtok tenant_cost_coverage_ratio", "tenant", ""),
        Question("tenant_cost_usd_per_output_mtok", "", ""),
    ]
    everything, by_model, by_month, by_week, of_silent, idle, cost, by_tenant, tenants = metrics_project.answers(
        published, [question.request() for question in questions], tmp_path
    )
    # 3 × 1000 + 3000 + 500 J over 400 tokens: what waited counts, what is unknown does not.
    assert everything == {(): (16.25,)}
    assert by_model == {("busy",): (15.0,), ("waiting",): (None,), ("silent",): (None,)}
    assert by_month == {("2026-10-01 00:00:00",): (12.5,), ("2026-11-01 00:00:00",): (20.0,)}
    assert by_week == {("2026-10-26 00:00:00",): (pytest.approx(3500 / 300),), ("2026-11-02 00:00:00",): (30.0,)}
    assert of_silent == {(): (None,)}
    assert idle == {("busy",): (0.25,), ("waiting",): (1.0,), ("silent",): (None,)}
    # 2 USD of 50 tokens; the other 350 have no price.
    assert cost == {(): (40_000.0, 0.125)}
    assert by_tenant == {("acme",): (30_000.0, 0.5), ("none",): (None, None), ("spare",): (None, None)}
    assert tenants == {(): (70_000.0,)}


@pytest.mark.needs("metricflow")
def test_the_command_of_the_documentation_prints_what_it_shows(four_weeks: tuple[Book, str], tmp_path: Path) -> None:
    shown = re.search(r"^\$ \S*/(mf .*)\n((?:.+\n)+?)```", METRICS_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert shown
    lines = metrics_project.command(four_weeks[0].fleet.published / DATABASE, shlex.split(shown[1]), tmp_path)
    assert "\n".join(lines).rstrip().endswith(shown[2].rstrip())
