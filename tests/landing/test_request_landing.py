"""Landing of requests: once and exactly, never less than before, and no source harms another."""

from __future__ import annotations

import json
import time
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from pipelines.fleet.fleet_file import Fleet, FleetError, load_fleet
from pipelines.landing import fleet_landing, request_assets, request_landing
from pipelines.warehouse import database
from tests.books import validation_data
from tests.talking_servers import logged_in_and_silent, silence, talking_server

pytestmark = pytest.mark.sampled

NOON_S = 1_790_856_000  # 2026-10-01 12:00:00 UTC
DAY_S = 86_400


def fleet_of(folder: Path, sources: str, **environ: str) -> Fleet:
    path = folder / "fleet.yaml"
    path.write_text(
        "fleet: mine\nperiod: {start: 2026-10-01, end: 2026-10-04}\n"
        "sources: [{name: cluster, kind: prometheus, url: 'http://prometheus:9090', interval_seconds: 15}]\n"
        "models: [{name: llama, aliases: [meta/llama]}]\n"
        f"requests:\n{sources}"
    )
    return load_fleet(path, {"WATTLEDGER_DATA": str(folder / "data"), **environ})


def answer(number: int, created: int = NOON_S, tokens: int = 10) -> dict:
    usage = {"prompt_tokens": tokens, "completion_tokens": tokens}
    return {"id": f"r{number}", "created": created, "model": "meta/llama", "usage": usage}


def write(path: Path, *rows: dict) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def land(held: duckdb.DuckDBPyConnection, fleet: Fleet, start: int, end: int, force: bool = False) -> list[tuple]:
    return [
        (result.source, result.window.start_at.day, result.outcome, result.rows, result.rows_before)
        for source in fleet.requests
        for result in request_landing.land(
            held,
            source.collector(),
            date(2026, 10, start),
            date(2026, 10, end),
            run_id="run",
            force=force,
            now=lambda: datetime(2026, 11, 1, tzinfo=UTC),
        )
    ]


def rows(held: duckdb.DuckDBPyConnection, columns: str = "request_id") -> list[tuple]:
    return held.execute(f"select {columns} from raw.requests order by started_at, request_id").fetchall()


LOG = "  - {name: log, kind: access_log, path: log.jsonl}\n"


def test_each_day_is_landed_once_and_again_gives_the_same(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    midnight = NOON_S + DAY_S // 2  # the first instant of the second day, and no other's
    write(tmp_path / "log.jsonl", answer(1), answer(2, midnight), answer(3, NOON_S + 3 * DAY_S))
    fleet = fleet_of(tmp_path, LOG)
    assert land(held, fleet, 1, 4) == [
        ("log", 1, "landed", 1, 0),
        ("log", 2, "landed", 1, 0),
        ("log", 3, "empty", 0, 0),
    ]
    before = rows(held, "*")
    assert [row[2] for row in land(held, fleet, 1, 4)] == ["unchanged", "unchanged", "empty"]
    assert rows(held, "*") == before
    assert held.execute("select asset, outcome, count(*) from raw.landings group by all order by all").fetchall() == [
        ("raw/requests", "empty", 2),
        ("raw/requests", "landed", 2),
        ("raw/requests", "unchanged", 2),
    ]


def test_days_one_by_one_and_all_at_once_give_the_same(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    write(tmp_path / "log.jsonl", *(answer(number, NOON_S + number * DAY_S // 3) for number in range(9)))
    fleet = fleet_of(tmp_path, LOG)
    land(held, fleet, 1, 4)
    at_once = rows(held, "*")
    held.execute("delete from raw.requests")
    for day in (3, 1, 2):
        land(held, fleet, day, day + 1)
    assert rows(held, "*") == at_once
    assert len(at_once) == 8  # the ninth began on the fourth day


def test_a_changed_log_replaces_its_day_and_a_shorter_one_does_not(
    tmp_path: Path, held: duckdb.DuckDBPyConnection
) -> None:
    fleet = fleet_of(tmp_path, LOG)
    write(tmp_path / "log.jsonl", answer(1), answer(2))
    land(held, fleet, 1, 2)
    write(tmp_path / "log.jsonl", answer(1, tokens=11), answer(2))
    assert land(held, fleet, 1, 2) == [("log", 1, "landed", 2, 2)]
    assert rows(held, "request_id, input_tokens") == [("r1", 11), ("r2", 10)]
    write(tmp_path / "log.jsonl", answer(9))
    assert land(held, fleet, 1, 2) == [("log", 1, "refused_fewer", 1, 2)]
    assert rows(held) == [("r1",), ("r2",)]
    assert land(held, fleet, 1, 2, force=True) == [("log", 1, "landed", 1, 2)]
    assert rows(held) == [("r9",)]


def test_a_request_that_stands_twice_is_one(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    nameless = {**answer(0), "id": None}
    write(tmp_path / "a.jsonl", answer(1), answer(2), nameless)
    write(tmp_path / "b.jsonl", answer(2), answer(3), nameless)
    fleet = fleet_of(tmp_path, "  - {name: log, kind: access_log, path: '*.jsonl'}\n")
    assert land(held, fleet, 1, 2) == [("log", 1, "landed", 5, 0)]
    assert rows(held) == [("r1",), ("r2",), ("r3",), (None,), (None,)]


def test_a_source_that_fails_leaves_its_rows_and_the_other_source(
    tmp_path: Path, held: duckdb.DuckDBPyConnection
) -> None:
    fleet = fleet_of(tmp_path, LOG + "  - {name: other, kind: access_log, path: other.jsonl}\n")
    write(tmp_path / "log.jsonl", answer(1))
    write(tmp_path / "other.jsonl", answer(2))
    land(held, fleet, 1, 2)
    (tmp_path / "log.jsonl").write_text("<!DOCTYPE html><title>Sign in</title>\n")
    write(tmp_path / "other.jsonl", answer(2), answer(3))
    assert land(held, fleet, 1, 3) == [
        ("log", 1, "failed", 0, 1),
        ("log", 2, "failed", 0, 0),
        ("other", 1, "landed", 2, 1),
        ("other", 2, "empty", 0, 0),
    ]
    assert rows(held, "source, request_id") == [("log", "r1"), ("other", "r2"), ("other", "r3")]
    detail = held.execute("select detail from raw.landings where outcome = 'failed'").fetchall()[0][0]
    assert detail.startswith("1 of 1 rows rejected, expected at most 0.5 of all (limits.bad_rows_ratio): ")
    assert "log.jsonl:1: is not JSON" in detail


def test_rejected_rows_are_reported(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    write(tmp_path / "log.jsonl", answer(1), answer(2, tokens=-1), {"id": "r3"}, answer(4))
    assert land(held, fleet_of(tmp_path, LOG), 1, 2) == [("log", 1, "landed", 2, 0)]
    (detail,) = held.execute("select detail from raw.landings").fetchall()[0]
    log = f"{tmp_path}/log.jsonl"
    assert detail == (
        f"2 of 4 rows rejected: {log}:2: prompt_tokens: got -1, expected a count of tokens, at most 10,000,000,000;"
        f" {log}:3: started_at: there is nothing at created"
    )


def aiperf(folder: Path, start_s: int, seconds: int, requests: int, concurrency: int) -> None:
    """A run whose requests begin a second apart; each takes 2 s and generates 100 tokens for 1000."""
    folder.mkdir(parents=True)
    with (folder / "profile_export.jsonl").open("w") as file:
        for number in range(requests):
            began = (start_s + number) * 1_000_000_000
            ended = (start_s + seconds) * 1_000_000_000 if number == requests - 1 else began + 2_000_000_000
            metadata = {
                "x_request_id": f"{folder.name}-{number}",
                "request_start_ns": began,
                "request_end_ns": ended,
                "benchmark_phase": "profiling",
            }
            metrics = {
                "input_sequence_length": {"value": 1000, "unit": "tokens"},
                "output_sequence_length": {"value": 100, "unit": "tokens"},
            }
            file.write(json.dumps({"metadata": metadata, "metrics": metrics}) + "\n")
    phases = [{"name": "profiling", "kind": "profiling", "concurrency": concurrency}]
    config = {"models": {"items": [{"name": "meta/llama"}]}, "endpoint": {"urls": ["http://n1:8000"]}, "phases": phases}
    (folder / "profile_export_aiperf.json").write_text(json.dumps({"input_config": config}))


def test_the_phases_of_a_load_test_are_run_windows(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    aiperf(tmp_path / "artifacts" / "c1", NOON_S, 180, 3, 1)
    aiperf(tmp_path / "artifacts" / "c2", NOON_S + 200, 180, 6, 2)
    fleet = fleet_of(tmp_path, "  - {name: load, kind: aiperf, path: artifacts, node: n1}\n")
    assert land(held, fleet, 1, 2) == [("load", 1, "landed", 9, 0)]
    assert fleet_landing.write_run_windows(held, fleet) == (2, None)
    found = held.execute("select * exclude (start_at, end_at), epoch(start_at), epoch(end_at) from raw.run_windows")
    assert found.fetchall() == [
        ("load/c1", "n1", None, "llama", 300.0, 3300.0, "load", NOON_S, NOON_S + 180),
        ("load/c2", "n1", None, "llama", 600.0, 6600.0, "load", NOON_S + 200, NOON_S + 380),
    ]


def test_a_window_whose_tokens_are_not_all_known_states_none(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    aiperf(tmp_path / "artifacts" / "c1", NOON_S, 180, 3, 1)
    path = tmp_path / "artifacts" / "c1" / "profile_export.jsonl"
    first, *others = path.read_text().splitlines()
    silent = json.loads(first) | {"metrics": {}}
    path.write_text("\n".join([json.dumps(silent), *others]))
    fleet = fleet_of(tmp_path, "  - {name: load, kind: aiperf, path: artifacts}\n")
    land(held, fleet, 1, 2)
    fleet_landing.write_run_windows(held, fleet)
    assert held.execute("select model, output_tokens, total_tokens from raw.run_windows").fetchall() == [
        ("llama", None, None)
    ]
    # A request that failed has no tokens to know.
    path.write_text("\n".join([json.dumps(silent | {"error": {"code": 500}}), *others]))
    land(held, fleet, 1, 2)
    fleet_landing.write_run_windows(held, fleet)
    assert held.execute("select output_tokens, total_tokens from raw.run_windows").fetchall() == [(200.0, 2200.0)]


@pytest.mark.needs("validation-data")
def test_the_azure_trace_lands_with_its_published_counts(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    sources = "".join(
        f"  - {{name: {name}, kind: azure_trace,"
        f" path: '${{DATA}}/azure_llm_2023/AzureLLMInferenceTrace_{name}.csv', model: azure-{name}}}\n"
        for name in ("code", "conv")
    )
    for source in fleet_of(tmp_path, sources, DATA=str(validation_data())).requests:
        request_landing.land(held, source.collector(), date(2023, 11, 15), date(2023, 11, 18), run_id="run")
    found = held.execute(
        "select model, count(*), sum(input_tokens), sum(output_tokens),"
        " count(distinct date_trunc('minute', started_at)), min(started_at), max(started_at)"
        " from raw.requests group by model order by model"
    ).fetchall()
    at = datetime(2023, 11, 16, tzinfo=UTC)
    assert found == [
        (
            "azure-code",
            8_819,
            18_059_974,
            245_896,
            45,
            at.replace(hour=18, minute=17, second=3, microsecond=979_960),
            at.replace(hour=19, minute=14, second=19, microsecond=928_016),
        ),
        (
            "azure-conv",
            19_366,
            22_361_870,
            4_088_665,
            60,
            at.replace(hour=18, minute=15, second=46, microsecond=680_590),
            at.replace(hour=19, minute=14, second=8, microsecond=402_527),
        ),
    ]


def test_sources_that_fail_cost_their_checks_and_not_the_book(tmp_path: Path) -> None:
    write(tmp_path / "log.jsonl", answer(1))
    fleet = fleet_of(tmp_path, LOG + "  - {name: other, kind: access_log, path: other.jsonl}\n")
    asset = request_assets.request_assets(fleet)[0]

    def checks() -> dict[str, tuple[bool, str | None]]:
        done = dg.materialize([asset], partition_key="2026-10-01")
        assert done.success  # whatever depends on it goes on
        return {check.check_name: (check.passed, check.description) for check in done.get_asset_check_evaluations()}

    def missing(name: str) -> tuple[bool, str]:
        return False, f"2026-10-01 failed: {tmp_path / name}: there is no such file"

    assert checks() == {"requests_log_answers": (True, None), "requests_other_answers": missing("other.jsonl")}
    (tmp_path / "log.jsonl").unlink()
    assert checks() == {
        "requests_log_answers": missing("log.jsonl"),
        "requests_other_answers": missing("other.jsonl"),
    }
    with closing(database.connect(fleet.warehouse)) as connection:
        assert rows(connection) == [("r1",)]
        connection.execute("delete from raw.due_dates")
    # The next night reads the date again, and it is due again where something came.
    write(tmp_path / "log.jsonl", answer(1))
    write(tmp_path / "other.jsonl", answer(2))
    done = dg.materialize([asset], partition_key="2026-10-02")
    assert [check.passed for check in done.get_asset_check_evaluations()] == [True, True]
    with closing(database.connect(fleet.warehouse)) as connection:
        assert rows(connection) == [("r1",), ("r2",)]
        assert connection.execute("select date::varchar from raw.due_dates").fetchall() == [("2026-10-01",)]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{name: g, kind: gateway}", "requests[g].kind: got 'gateway', expected one of 'litellm', 'access_log'"),
        ("{name: g, kind: litellm}", "requests[g]: expected either path (JSON Lines) or dsn_env (PostgreSQL)"),
        (
            "{name: g, kind: litellm, dsn_env: NOT_SET}",
            "requests[g].dsn_env: environment variable NOT_SET",
        ),
        ("{name: g, kind: genai_perf}", "requests[g].path: missing, expected"),
        ("{name: g, kind: access_log, path: a.jsonl, columns: {mod: m}}", "requests[g].columns.mod"),
        ("{name: g, kind: aiperf, path: ../elsewhere}", "requests[g].path: got '../elsewhere', must stay inside"),
    ],
)
def test_a_wrong_source_of_requests_is_named(tmp_path: Path, source: str, problem: str) -> None:
    with pytest.raises(FleetError) as wrong:
        fleet_of(tmp_path, f"  - {source}\n")
    assert problem in str(wrong.value)


@pytest.mark.parametrize("talk", [silence, logged_in_and_silent], ids=["silence", "silence after the login"])
def test_a_gateways_database_that_never_answers_fails_its_days_at_the_time_limit(
    tmp_path: Path, held: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, talk: object
) -> None:
    """libpq waits for ever for an answer, with the warehouse locked."""
    source = "  - {name: gateway, kind: litellm, dsn_env: GATEWAY_DSN, limits: {window_seconds: 2}}\n"
    with talking_server(talk) as place:
        monkeypatch.setenv(
            "GATEWAY_DSN", f"host={place.partition(':')[0]} port={place.partition(':')[2]} password=s3cret"
        )
        fleet = fleet_of(tmp_path, source, GATEWAY_DSN="set")
        began = time.monotonic()
        assert land(held, fleet, 1, 2) == [("gateway", 1, "failed", 0, 0)]
        assert time.monotonic() - began < 9
    ((url, detail),) = held.execute("select url, detail from raw.landings where source = 'gateway'").fetchall()
    assert detail == "the window took longer than 2 s (limits.window_seconds)"
    assert url == "the database of GATEWAY_DSN"


def test_a_rejected_row_is_a_warning_of_the_run_and_a_source_says_how_many_may_be(tmp_path: Path) -> None:
    write(tmp_path / "log.jsonl", *(answer(n) for n in range(3)), answer(9, tokens=-1))
    strict = LOG.replace("log.jsonl}", "log.jsonl, limits: {bad_rows_ratio: 0.2}}").replace("name: log", "name: strict")
    fleet = fleet_of(tmp_path, LOG + strict)
    requests, _ = request_assets.request_assets(fleet)
    with dg.DagsterInstance.ephemeral() as instance:
        run = dg.materialize([requests], instance=instance, partition_key="2026-10-01")
    assert run.success
    checks = {one.check_name: (one.severity.name, one.description) for one in run.get_asset_check_evaluations()}
    reason = f"{tmp_path}/log.jsonl:4: prompt_tokens: got -1, expected a count of tokens, at most 10,000,000,000"
    assert checks == {
        "requests_log_answers": ("WARN", f"2026-10-01 landed: 1 of 4 rows rejected: {reason}"),
        "requests_strict_answers": (
            "ERROR",
            f"2026-10-01 failed: {tmp_path}/log.jsonl: 1 of 4 rows rejected, expected at most 0.2 of all"
            f" (limits.bad_rows_ratio): {reason}",
        ),
    }
