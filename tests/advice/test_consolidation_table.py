"""published.consolidation from marts written by hand: who holds which boards, whose load is when, what the table is."""

from __future__ import annotations

import duckdb
import pandas as pd
import pytest

from pipelines.advice.consolidation_table import COLUMNS, _read, write_consolidation
from pipelines.advice.right_sizing_table import write_right_sizing
from tests.advice.test_right_sizing_table import marts as marts_of_one_deployment
from tests.books import create_advice_models

marts = marts_of_one_deployment


def ledger(connection: duckdb.DuckDBPyConnection, engines: dict[str, tuple[str, list[str]]]) -> None:
    """The newest interval of the deployment: engine -> node, boards; and an unallocated board of n0."""
    held = [(engine, node, board) for engine, (node, boards) in engines.items() for board in boards]
    rows = pd.DataFrame(held, columns=["engine", "node", "meter"])
    rows = rows.assign(site="west", deployment="d0", model="m", role="unified", device_type="a100")
    free = {"engine": "__unallocated__", "deployment": "__unallocated__", "model": "__unallocated__"}
    rows = pd.concat([rows, rows.iloc[:1].assign(node="n0", meter="free", **free)])
    rows = rows.assign(meter_scope="board", interval_start_at=pd.Timestamp("2026-10-28 23:55", tz="UTC"))
    before = rows.assign(node="old", interval_start_at=pd.Timestamp("2026-10-28 23:50", tz="UTC"))
    connection.register("rows", pd.concat([before, rows]))
    connection.execute(
        "create table marts.energy_ledger as select *, cast(interval_start_at as date) as date from rows"
    )
    connection.execute("create table marts.unmetered_devices (date date, node varchar, model varchar)")
    create_advice_models(connection, "intermediate.int_advised_engines")


def test_replicas_stand_where_the_newest_interval_has_them(marts: duckdb.DuckDBPyConnection) -> None:
    ledger(marts, {"e1": ("n0", ["a", "b"]), "e2": ("n0", ["c"]), "e3": ("n1", ["d"])})
    made = write_consolidation(marts)
    placed = made.plan.engines.set_index("engine")[["node", "gpu_group", "gpus"]]
    assert placed.to_dict("index") == {
        "e1 0": {"node": "n0", "gpu_group": "a,b", "gpus": 2},
        "e2 0": {"node": "n0", "gpu_group": "c", "gpus": 1},
        "e3 0": {"node": "n1", "gpu_group": "d", "gpus": 1},
    }


def test_the_table_is_described_and_the_same_each_time(marts: duckdb.DuckDBPyConnection) -> None:
    ledger(marts, {"e1": ("n0", ["a"])})
    write_consolidation(marts)
    digest = "select count(*), bit_xor(hash(t)) from published.consolidation as t"
    first = marts.execute(digest).fetchall()
    write_consolidation(marts)
    assert marts.execute(digest).fetchall() == first
    comments = marts.execute(
        "select column_name, comment from duckdb_columns() where table_name = 'consolidation'"
    ).fetchall()
    assert comments == [(name, meaning) for name, (_, meaning) in COLUMNS.items()]


def test_loads_are_of_the_capacity_and_hours_without_tokens_are_idle(marts: duckdb.DuckDBPyConnection) -> None:
    """150 tokens a second of four GPUs that serve 100 each, from 9 to 17: 0.375 of capacity, above it never. A start of
    300 s from the hour of the first request on may last into the next: of 8 hours of 100 requests two may wait, and
    one request at least. The fleet file allows that."""
    marts.execute("update fleet.models set most_waiting_ratio = 0.25")
    ledger(marts, {"e1": ("n0", ["a"]), "e2": ("n0", ["b"]), "e3": ("n0", ["c"]), "e4": ("n0", ["d"])})
    write_consolidation(marts)
    ((kind, reason, usage_ratio, waiting, least, most, watts),) = marts.execute(
        "select kind, reason_code, usage_ratio, risk_ratio, waiting_requests_ratio_low, waiting_requests_ratio_high,"
        " saving_watts from published.consolidation"
    ).fetchall()
    assert (kind, reason) == ("sleep_when_idle", "idle_gaps")  # 16 hours of every day
    assert usage_ratio == pytest.approx(0.2)
    assert (waiting, least, most) == (0.25, pytest.approx(1 / 800), 0.25)
    assert 0 < watts < 4 * 45 * 16 / 24


def test_one_row_of_both_tables_is_to_be_followed_whichever_was_written_last(marts: duckdb.DuckDBPyConnection) -> None:
    """A table of an older version, without the mark, is left alone until it is made anew."""
    ledger(marts, {"e1": ("n0", ["a", "b", "c", "d"])})
    marts.execute("update fleet.models set most_waiting_ratio = 0.25")
    marts.execute("create schema published")
    marts.execute("create table published.consolidation (recommendation_id varchar)")
    followed = (
        "select 'right_sizing', kind from published.right_sizing where is_preferred"
        " union all select 'consolidation', kind from published.consolidation where is_preferred"
    )
    write_right_sizing(marts)
    assert marts.execute("select count(*) from published.right_sizing where is_preferred").fetchall() == [(1,)]
    write_consolidation(marts)
    # 45 W of four GPUs asleep for 16 hours a day: by the clock less a start of 300 s, else less 800 s of idleness. Two
    # GPUs less would save 90 W.
    assert marts.execute(followed).fetchall() == [("right_sizing", "sleep_outside_hours")]
    marts.execute("update published.consolidation set saving_kwh_month = 2 * saving_kwh_month")
    write_right_sizing(marts)
    assert marts.execute(followed).fetchall() == [("consolidation", "sleep_when_idle")]


def test_a_fleet_of_which_nothing_is_booked_has_an_empty_table(marts: duckdb.DuckDBPyConnection) -> None:
    ledger(marts, {})
    marts.execute("delete from marts.deployment_usage")
    marts.execute("delete from marts.model_intervals")
    assert len(write_consolidation(marts).rows) == 0
    assert marts.execute("select count(*) from published.consolidation").fetchall() == [(0,)]


def test_a_node_of_a_device_without_a_power_meter_is_not_emptied(marts: duckdb.DuckDBPyConnection) -> None:
    """On the newest date alone, and not for an unallocated device."""
    ledger(marts, {"e1": ("n1", ["a"])})
    marts.execute(
        "insert into marts.unmetered_devices values ('2026-10-28', 'n1', 'other'), ('2026-10-27', 'n2', 'other'),"
        " ('2026-10-28', 'n3', '__unallocated__')"
    )
    assert _read(marts).unknown_nodes == {"n1"}


def test_a_deployment_in_doubt_keeps_what_it_has(marts: duckdb.DuckDBPyConnection) -> None:
    """It sleeps from 17 to 9 otherwise."""
    ledger(marts, {"e1": ("n0", ["a", "b", "c", "d"])})
    marts.execute("update marts.deployment_usage set doubt_reasons = 'hidden_processes'")
    write_consolidation(marts)
    write_right_sizing(marts)
    kept = "select kind, reason_code, evidence->>'doubt_reasons', saving_kwh_month from published"
    for table in ("consolidation", "right_sizing"):
        rows = marts.execute(f"{kept}.{table}").fetchall()
        assert rows == [("keep", "figures_in_doubt", "hidden_processes", None)]


def test_a_fleet_without_tokens_is_not_known(marts: duckdb.DuckDBPyConnection) -> None:
    ledger(marts, {"e1": ("n0", ["a"])})
    marts.execute("delete from marts.model_intervals")
    marts.execute("update marts.deployment_usage set intervals = null, coverage_ratio = 0")
    write_consolidation(marts)
    rows = marts.execute("select kind, reason_code, quadrant, confidence from published.consolidation").fetchall()
    assert rows == [("insufficient_data", "no_token_telemetry", None, None)]


def test_a_fleet_file_that_states_no_model_has_a_plan(marts: duckdb.DuckDBPyConnection) -> None:
    """What the fleet file does not state is no reason to keep: this one would sleep from 17 to 9, if not for the
    requests of two hours in eight that may wait for it each morning."""
    marts.execute("delete from fleet.models")
    ledger(marts, {"e1": ("n0", ["a", "b", "c", "d"])})
    write_consolidation(marts)
    rows = marts.execute("select kind, reason_code from published.consolidation").fetchall()
    assert rows == [("keep", "requests_would_wait")]
