"""The fleet file: everything wrong is named at once, by key, value and expectation, before anything runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from collectors.samples import SourceError
from pipelines.fleet.fleet_file import Fleet, FleetError, load_fleet
from pipelines.fleet.places import PROJECT
from pipelines.landing import fleet_landing
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables

SMALLEST = """
fleet: mine
period: {start: 2026-10-01}
sources:
  - {name: cluster, kind: prometheus, url: "http://prometheus:9090", interval_seconds: 15}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "fleet.yaml"
    path.write_text(text)
    return path


def load(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> Fleet:
    return load_fleet(write(folder, text), {"WATTLEDGER_DATA": str(folder / "data"), **(environ or {})})


def problems(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(FleetError) as wrong:
        load(folder, text, environ)
    return wrong.value.problems


def files_source(path: str) -> str:
    return f"""
fleet: mine
period: {{start: 2026-10-01}}
sources:
  - name: wall
    kind: files
    interval_seconds: 1
    files: [{{path: "{path}", time: t, values: {{wall_power_watts: w}}}}]
"""


def test_five_lines_are_a_fleet(tmp_path: Path) -> None:
    fleet = load(tmp_path, SMALLEST)
    assert (fleet.grid_seconds, fleet.max_spread_days, fleet.synthetic) == (300, 3, False)
    assert fleet.warehouse == tmp_path / "data" / "mine" / "warehouse.duckdb"
    assert fleet.published == tmp_path / "data" / "mine" / "published"
    assert [collector.source for collector in fleet.collectors()] == ["cluster"]


def test_the_days_are_the_utc_dates_that_are_over(tmp_path: Path) -> None:
    fleet = load(tmp_path, SMALLEST)
    assert fleet.days(date(2026, 10, 1)) == []
    assert fleet.days(date(2026, 10, 3)) == [date(2026, 10, 1), date(2026, 10, 2)]
    closed = load(tmp_path, SMALLEST.replace("2026-10-01}", "2026-10-01, end: 2026-10-02}"))
    assert closed.days(date(2027, 1, 1)) == [date(2026, 10, 1)]


def test_everything_wrong_is_named_at_once(tmp_path: Path) -> None:
    text = """
fleet: Demo!
grid_second: 60
periods: {start: 2026-10-01}
sources:
  - {name: a, kind: prometheus, url: "ftp://x/", interval_seconds: -5}
  - {name: b, kind: flies}
sites: [{name: west, zone: ES, pue: 0.9, time_zone: Mars/Base, tariff: [{usd_per_kwh: "0.1"}]}]
assignments: [{node: n1, start_at: 2026-10-01}]
"""
    assert problems(tmp_path, text) == [
        "fleet: got 'Demo!', expected match pattern '^[a-z0-9_-]+$'",
        "period: missing, expected {start, end}",
        "sources[a].interval_seconds: got -5, expected greater than 0",
        "sources[a].url: got 'ftp://x/', must be an http:// or https:// URL",
        "sources[b].kind: got 'flies', expected one of 'prometheus', 'files', 'spool', 'otlp', 'synthetic'",
        "sites[west].time_zone: got 'Mars/Base', must be an IANA time zone such as America/Los_Angeles",
        "sites[west].pue: got 0.9, expected 1 to 10: all electricity of the facility over that of its computers, 1.3"
        " for 30 % of overhead",
        "sites[west].tariff[0].usd_per_kwh: got '0.1', expected a valid number",
        "assignments[0].start_at: got 2026-10-01, expected a time with its zone, such as 2026-10-01T00:00:00Z",
        "grid_second: unknown key, did you mean 'grid_seconds'?",
        "periods: unknown key, did you mean 'period'?",
    ]


@pytest.mark.parametrize(
    ("addition", "problem"),
    [
        ("grid_seconds: 7", "grid_seconds: got 7, expected a divisor of 3600"),
        (
            "nodes: [{name: n1, site: east}]\nsites: [{name: west, zone: ES, pue: 1.1}]",
            "nodes[n1].site: got 'east', expected one of the sites ['west']",
        ),
        ("nodes: [{name: n1}, {name: n1}]", "nodes: 'n1' is there more than once, expected unique names"),
        (
            "models: [{name: a, aliases: [c]}, {name: b, aliases: [c]}]",
            "models: 'c' is there more than once, expected unique names",
        ),
        (
            "models: [{name: a, slo: {attainment_ratio: 0.9}}]",
            "models[a].slo: expected at least one of ttft_seconds and tpot_seconds",
        ),
        (
            "models: [{name: a, most_waiting_ratio: 1.01}]",
            "models[a].most_waiting_ratio: got 1.01, expected less than or equal to 1",
        ),
        (
            "models: [{name: a, most_waiting_ratio: -0.01}]",
            "models[a].most_waiting_ratio: got -0.01, expected greater than or equal to 0",
        ),
        (
            "sites: [{name: w, zone: ES, pue: 1, tariff: [{usd_per_kwh: 0.1, local_hours: [7, 7]}]}]",
            "sites[w].tariff[0]: local_hours: got [7, 7], expected 0 <= from < to <= 24",
        ),
        (
            "sites: [{name: w, zone: ES, pue: 1,"
            " tariff: [{usd_per_kwh: 0.1}, {usd_per_kwh: 0.2, local_hours: [5, 9]}]}]",
            "sites[w].tariff[1] (0.2 USD/kWh, hours 5 to 9, from 1970-01-01): prices local hours that tariff[0] (0.1"
            " USD/kWh, hours 0 to 24, from 1970-01-01) prices already, expected one price per local hour and date: keep"
            " one of them, change local_hours, or end the earlier one (valid_to is the first date that is not priced)",
        ),
        (
            "sites: [{name: w, zone: ES, pue: .inf}]",
            "sites[w].pue: got inf, expected a finite number",
        ),
        (
            'assignments: [{device_uuid: G, model: a, start_at: "2026-10-01T00:00:00Z"},'
            ' {device_uuid: G, model: b, start_at: "2026-10-02T00:00:00Z"}]',
            "assignments: G is assigned twice from 2026-10-02T00:00:00+00:00",
        ),
        (
            'run_windows: {inline: [{window_id: w, start_at: "2026-10-01T00:00:00Z", end_at: "2026-10-01T01:00:00Z"}]}',
            "run_windows.inline[w]: expected at least one of node, engine and model",
        ),
        (
            "nodes: [{name: n1, aliases: [bmc-1]}, {name: bmc-1}]",
            "nodes: 'bmc-1' is there more than once, expected unique names",
        ),
        ("engines: [{engine: llm/*-0}]", "engines[0]: got 'llm/*-0', expected '*' at the end only"),
        (
            "engines: [{engine: llm/*, pods: [llm/worker-*]}]",
            "engines[0]: engine: got 'llm/*', expected one engine's whole name because it has pods",
        ),
        (
            'engines: [{engine: llm/*, targets: ["10.1.2.3:8000"]}]',
            "engines[0]: engine: got 'llm/*', expected one engine's whole name because it has targets",
        ),
        (
            'engines: [{engine: a, targets: ["10.1.2.3:8000"]}, {engine: b, targets: ["10.1.2.3:8000"]}]',
            "engines[].targets: '10.1.2.3:8000' is there more than once, expected unique names",
        ),
        (
            "landing: {engine: spark}",
            "landing.target: got 'duckdb', expected 'lake' because engine is spark, which reads files",
        ),
        (
            'landing: {target: lake, path: "s3://key:hunter2@bucket/lake", engine: spark}',
            "landing.path: got 's3://bucket/lake', expected a local or shared folder because engine is spark: marts are"
            " there",
        ),
        (
            "landing: {target: lake, path: lake/, engine: spark}\nreceipts: {keep: true}",
            "receipts.keep: got true, expected false because landing.engine is spark: only DuckDB makes receipts",
        ),
        (
            "landing: {target: lake, path: lake/, engine: sparks}",
            "landing.engine: got 'sparks', expected 'duckdb' or 'spark'",
        ),
        (
            "publication: {postgresql: {dsn_env: postgresql://me:hunter2@db/x}}",
            "publication.postgresql.dsn_env: must be the name of an environment variable, never the secret itself",
        ),
        (
            "publication: {postgresql: {dsn_env: ABSENT_DSN}}",
            "publication.postgresql.dsn_env: environment variable ABSENT_DSN is not set",
        ),
        (
            "publication: {postgres: {uri: postgresql://me:hunter2@db/x}}",
            "publication.postgres: unknown key, did you mean 'postgresql'?",
        ),
        ("root: /etc", "root: unknown key"),
    ],
)
def test_parts_that_disagree_are_named(tmp_path: Path, addition: str, problem: str) -> None:
    assert problems(tmp_path, SMALLEST + addition) == [problem]


def test_the_engine_is_duckdb_unless_the_file_says_spark(tmp_path: Path) -> None:
    assert load(tmp_path, SMALLEST).landing.engine == "duckdb"
    assert load(tmp_path, SMALLEST + "landing: {target: lake, path: lake/}").landing.engine == "duckdb"
    moved = load(tmp_path, SMALLEST + "landing: {target: lake, path: lake/, engine: spark}")
    assert (moved.landing.engine, moved.landing.path) == ("spark", str(tmp_path / "data" / "mine" / "lake"))


def test_a_generated_source_must_be_labelled(tmp_path: Path) -> None:
    text = SMALLEST + "  - {name: made, kind: synthetic, scenario: demo, interval_seconds: 60}\n"
    assert problems(tmp_path, text) == [
        "synthetic: got false, expected true because a source is of kind synthetic: readers must see it"
    ]


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    assert "the key 'fleet' is in one mapping twice" in problems(tmp_path, SMALLEST + "fleet: other\n")[0]


def test_what_is_no_fleet_file_says_so(tmp_path: Path) -> None:
    assert problems(tmp_path, "- 1\n- 2\n") == ["expected a mapping with the keys fleet, period, sources, …"]
    assert problems(tmp_path, "fleet: [")[0].startswith("is not YAML:")
    with pytest.raises(FleetError, match="cannot be read: No such file"):
        load_fleet(tmp_path / "none.yaml")


def test_secrets_are_names_of_environment_variables(tmp_path: Path) -> None:
    url = 'url: "http://prometheus:9090"'
    text = SMALLEST.replace(url, url + ", auth: {bearer_env: PROM_TOKEN}")
    assert problems(tmp_path, text) == ["sources[cluster].auth.bearer_env: environment variable PROM_TOKEN is not set"]
    assert load(tmp_path, text, {"PROM_TOKEN": "hunter2"}).sources[0].auth.bearer_env == "PROM_TOKEN"


@pytest.mark.parametrize(
    "leak",
    [
        'url: "http://user:hunter2@prometheus"',
        'url: "http://prometheus", auth: {bearer: hunter2}',
        'url: "http://prometheus", auth: {password: hunter2}',
        'url: "http://prometheus?token=hunter2", matchers: 5',
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(tmp_path: Path, leak: str) -> None:
    found = problems(tmp_path, SMALLEST.replace('url: "http://prometheus:9090"', leak))
    assert found
    assert "hunter2" not in "\n".join(found)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("models[__base__].name", "models: [{name: __base__}]"),
        ("sites[__unknown__].name", "sites: [{name: __unknown__, zone: ES, pue: 1.1}]"),
        ("engines[0].engine", "engines: [{engine: __e}]"),
        ("engines[0].deployment", "engines: [{engine: e, deployment: __d}]"),
        (
            "assignments[0].model",
            'assignments: [{node: n, model: __unallocated__, start_at: "2026-10-01T00:00:00Z"}]',
        ),
    ],
)
def test_a_fleet_file_gives_nothing_a_name_of_the_ledgers_own_rows(tmp_path: Path, key: str, text: str) -> None:
    (found,) = problems(tmp_path, SMALLEST + text)
    assert found.startswith(f"{key}: got '__"), found
    assert "expected a name that does not begin with '__'" in found
    assert "written with double quotes" in found


def test_the_name_that_an_engine_serves_may_begin_with_underscores(tmp_path: Path) -> None:
    fleet = load(tmp_path, SMALLEST + "models: [{name: base, aliases: [__base__]}, {name: _tuned}]")
    assert [model.name for model in fleet.models] == ["base", "_tuned"]


def test_the_fleet_becomes_tables(tmp_path: Path) -> None:
    text = (
        SMALLEST
        + """
sites:
  - {name: west, zone: US-CAL-CISO, time_zone: America/Los_Angeles, pue: 1.2,
     tariff: [{usd_per_kwh: 0.1, local_hours: [0, 7]}, {usd_per_kwh: 0.2, local_hours: [7, 24]}]}
models:
  - {name: gpt-oss-120b, aliases: [openai/gpt-oss-120b], slo: {ttft_seconds: 2, tpot_seconds: 0.05}, keep_apart: chat}
  - {name: whisper}
nodes: [{name: n1, aliases: [10.0.0.5, bmc-1]}]
engines:
  - {engine: llm/big-0, role: decode, pods: [llm/big-0-*, llm/extra], targets: ["10.1.2.3:8000"]}
  - {engine: llm/*, team: chat}
assignments: [{node: n1, model: gpt-oss-120b, start_at: "2026-10-01T02:00:00+02:00"}]
run_windows: {files: [{path: windows.csv, columns: {window_id: id, model: model, start_at: from, end_at: to}}]}
"""
    )
    (tmp_path / "windows.csv").write_text("id,model,from,to\nw,m,2026-10-01T00:00:00Z,2026-10-01T01:00:00Z\n")
    fleet = load(tmp_path, text)
    connection = database.connect(":memory:")
    create_tables(connection)

    def rows(query: str) -> list[tuple]:
        return connection.execute(query).fetchall()

    for _ in range(2):
        fleet_landing.write_fleet(connection, fleet)
        fleet_landing.write_run_windows(connection, fleet)
    assert rows("select site, zone, time_zone, pue, wue_litres_per_kwh from fleet.sites") == [
        ("west", "US-CAL-CISO", "America/Los_Angeles", 1.2, None)
    ]
    assert rows("select local_hour_from, local_hour_to, usd_per_kwh from fleet.tariffs order by 1") == [
        (0, 7, 0.1),
        (7, 24, 0.2),
    ]
    assert rows("select alias, model from fleet.model_aliases order by 1") == [
        ("gpt-oss-120b", "gpt-oss-120b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("whisper", "whisper"),
    ]
    assert rows(
        "select model, ttft_slo_seconds, tpot_slo_seconds, slo_attainment_ratio, min_replicas, keep_apart,"
        " most_waiting_ratio from fleet.models order by 1"
    ) == [("gpt-oss-120b", 2, 0.05, 0.95, 1, "chat", 0.01), ("whisper", None, None, None, 1, None, 0.01)]
    assert rows("select alias, node from fleet.node_aliases order by 1") == [("10.0.0.5", "n1"), ("bmc-1", "n1")]
    assert rows("select entry, engine, is_prefix, role, team from fleet.engines order by 1") == [
        (0, "llm/big-0", False, "decode", None),
        (1, "llm/", True, None, "chat"),
    ]
    assert rows("select entry, pod, is_prefix, engine, role from fleet.engine_pods order by 2") == [
        (0, "llm/big-0-", True, "llm/big-0", "decode"),
        (0, "llm/extra", False, "llm/big-0", "decode"),
    ]
    assert rows("select target, engine from fleet.engine_targets") == [("10.1.2.3:8000", "llm/big-0")]
    midnight = datetime(2026, 10, 1, tzinfo=UTC)
    assert rows("select node, model, start_at, end_at from fleet.assignments") == [
        ("n1", "gpt-oss-120b", midnight, None)
    ]
    assert rows("select window_id, model, start_at, node, output_tokens, source from raw.run_windows") == [
        ("w", "m", midnight, None, None, "windows.csv")
    ]
    (tmp_path / "windows.csv").write_text("name\nw\n")
    with pytest.raises(SourceError, match=r"windows\.csv"):
        fleet_landing.write_run_windows(connection, fleet)
    assert rows("select count(*) from raw.run_windows") == [(1,)]
    connection.close()


def test_the_command_line_checks_a_file_without_a_traceback(tmp_path: Path) -> None:
    def check(path: Path) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "pipelines", "check", "--offline", "--fleet", str(path)]
        return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, env=dict(os.environ))

    right = check(write(tmp_path, SMALLEST))
    assert (right.returncode, right.stderr) == (0, "")
    assert right.stdout.endswith("fleet.yaml: fleet mine, 1 source(s), 2026-10-01 to yesterday\n")
    wrong = check(write(tmp_path, SMALLEST + "grid_seconds: 7\n"))
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.endswith("fleet.yaml: grid_seconds: got 7, expected a divisor of 3600\n")
    assert "Traceback" not in wrong.stderr
    old = check(write(tmp_path, files_source("power.csv").replace("wall_power_watts: w", "w: wall_power_watts")))
    assert old.returncode == 0
    assert old.stderr == ""
    assert "deprecated" in old.stdout and "Write values: {wall_power_watts: w}" in old.stdout
