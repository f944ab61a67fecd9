"""Which changes of a deployment are found: by what it held, date by date, in tables that are written by hand."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

import duckdb
import pytest

from pipelines.advice.advice_score import NOTHING_TO_DO
from pipelines.analysis.preference import KINDS
from pipelines.fleet.places import DBT_PROJECT
from pipelines.warehouse import database
from tests.books import empty_warehouse
from tests.models import model

FIRST = date(2026, 9, 1)
KEYS = {"site": "west", "deployment": "llm/chat", "role": "unified", "meter_scope": "board"}


@pytest.fixture
def marts(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    path = tmp_path / "warehouse.duckdb"
    shutil.copyfile(empty_warehouse(), path)
    with closing(database.connect(path)) as connection:
        yield connection


def insert(connection: duckdb.DuckDBPyConnection, table: str, **values: object) -> None:
    columns, places = ", ".join(values), ", ".join("?" for _ in values)
    connection.execute(f"insert into marts.{table} ({columns}) values ({places})", list(values.values()))


def held(
    connection: duckdb.DuckDBPyConnection,
    gpus: Sequence[float | None],
    *,
    deployment: str = "llm/chat",
    engines: Sequence[float] | None = None,
    limits: Sequence[float | None] | None = None,
    asleep: Sequence[bool] | None = None,
    coverage: Sequence[float] | None = None,
    models: Sequence[str] | None = None,
) -> None:
    """Each date's accelerators; None where no meter and no engine names it."""
    keys = {**KEYS, "deployment": deployment}
    for n, count in enumerate(gpus):
        on = FIRST + timedelta(days=n)
        # Another deployment, so that the date is booked.
        insert(connection, "model_daily", date=on, **{**KEYS, "deployment": "llm/other"}, model="other",
            device_type="a100", gpu_seconds=86400, claimed_gpu_seconds=86400, covered_seconds=86400)  # fmt: skip
        if count is None:
            continue
        share = 1.0 if coverage is None else coverage[n]
        name = "chat" if models is None else models[n]
        insert(connection, "model_daily", date=on, **keys, model=name, device_type="a100",
            gpu_seconds=86400 * count, claimed_gpu_seconds=86400 * count, covered_seconds=86400 * count * share,
            asleep_joules=float(asleep is not None and asleep[n]))  # fmt: skip
        if engines is not None:
            insert(connection, "model_intervals", date=on, **keys, model=name, device_type="a100", engines=engines[n])
        if limits is not None and limits[n] is not None:
            insert(connection, "power_limits_daily", date=on, **keys, model=name, device_type="a100", meters=1,
                meters_with_limit=1, power_limit_watts_min=limits[n], power_limit_watts_max=limits[n])  # fmt: skip


def found(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str, str]]:
    """What changed, and the dates between which it did."""
    return connection.execute(
        "select what, strftime(started_on, '%m-%d'), strftime(changed_on, '%m-%d')"
        " from intermediate.int_advised_changes order by changed_on"
    ).fetchall()


def test_from_one_week_to_another(marts: duckdb.DuckDBPyConnection) -> None:
    held(marts, [8] * 7 + [4] * 7, engines=[2] * 7 + [1] * 7)
    assert found(marts) == [("fewer_replicas", "09-08", "09-08")]


def test_smaller_engines_are_not_fewer(marts: duckdb.DuckDBPyConnection) -> None:
    held(marts, [8] * 7 + [4] * 7, engines=[1] * 14)
    assert found(marts) == [("fewer_gpus", "09-08", "09-08")]


def test_a_change_within_a_date_takes_that_date(marts: duckdb.DuckDBPyConnection) -> None:
    held(marts, [8] * 7 + [5.5] + [4] * 7)
    assert found(marts) == [("fewer_gpus", "09-08", "09-09")]


def test_changes_less_than_a_week_apart_are_one(marts: duckdb.DuckDBPyConnection) -> None:
    """Four boards less on the 8th, another limit on the 11th."""
    held(marts, [8] * 7 + [4] * 10, limits=[400] * 10 + [300] * 7)
    assert found(marts) == [("fewer_gpus+power_cap", "09-08", "09-11")]


def test_a_week_apart_they_are_two(marts: duckdb.DuckDBPyConnection) -> None:
    held(marts, [8] * 7 + [4] * 14, limits=[400] * 14 + [300] * 7)
    assert found(marts) == [("fewer_gpus", "09-08", "09-08"), ("power_cap", "09-15", "09-15")]


def test_off_and_on_again(marts: duckdb.DuckDBPyConnection) -> None:
    held(marts, [8.0] * 7 + [None] * 7 + [8.0] * 7)
    assert found(marts) == [("off", "09-08", "09-08"), ("on", "09-15", "09-15")]


def test_sleep_at_weekends_begins_once(marts: duckdb.DuckDBPyConnection) -> None:
    """Two dates of each week from the 12th on."""
    held(marts, [8] * 32, asleep=[n >= 11 and n % 7 in (4, 5) for n in range(32)])
    assert found(marts) == [("sleep", "09-12", "09-12")]


def test_another_model(marts: duckdb.DuckDBPyConnection) -> None:
    held(marts, [8] * 14, models=["chat"] * 7 + ["chat-2"] * 7)
    assert found(marts) == [("model", "09-08", "09-08")]


@pytest.mark.parametrize(
    ("gpus", "more"),
    [
        ([8] * 7 + [4] * 6, {}),  # not a week yet
        ([8] * 7 + [6] * 2 + [8] * 7, {}),  # a node was drained for two dates
        ([8, 8, 8, 8, 8, 2, 2] * 4, {}),  # fewer at weekends
        ([8 + n % 3 for n in range(28)], {}),  # another number each day
        ([8.0] * 7 + [7.4, 6.6] * 7, {}),  # scaled within the day
        # The exporter of power is silent on half of its boards: an engine still reports.
        ([8] * 7 + [0] * 7, {"engines": [1] * 14}),
        ([8] * 7 + [4] * 7, {"coverage": [1.0] * 7 + [0.5] * 7}),
        ([8] * 14, {"limits": [None] * 7 + [400] * 7}),  # a limit that is reported from some date on
        ([None] * 7 + [8] * 7, {}),  # new
    ],
)
def test_what_is_no_change(marts: duckdb.DuckDBPyConnection, gpus: list[float | None], more: dict) -> None:
    held(marts, gpus, **more)
    assert found(marts) == []


def test_each_kind_of_advice_has_the_changes_that_carry_it_out() -> None:
    """A new kind would be scored as withdrawn, whatever was done: of `move` docs/finance.md states that it is."""
    text = (DBT_PROJECT / model("advice_score")).read_text(encoding="utf-8")
    listed = set(re.findall(r"'(\w+)': \[", text.partition("carried_out = {")[2].partition("%}")[0]))
    assert listed == set(KINDS) - {"move", *NOTHING_TO_DO}
