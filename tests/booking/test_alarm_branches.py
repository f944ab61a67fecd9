"""Every branch of every drift alarm runs on rows, of tables written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from pipelines.booking import alarms
from pipelines.warehouse import database, statements
from pipelines.warehouse.raw_tables import create_tables
from tests.query_branches import without_rows
from tests.report import publications

DAY = date(2026, 10, 15)
SQL = Path(alarms.__file__).parent / "sql"
NO_ALARMS = ("run_days", "refuse_series", "series_by_label", "series_by_sample")
# Its branches are the cases of test_unknown_devices: each is about devices that a meter does or does not have.
CASES_ELSEWHERE = ("devices_of_unknown_families_are_booked",)
QUERIES = sorted(path.stem for path in SQL.glob("*.sql") if path.stem not in NO_ALARMS)

CHUNK = {
    "series_id": 1, "source": "cluster", "chunk_start_at": "2026-10-15 00:00+00", "samples": 24, "falls": 0,
    "first_at": "2026-10-15 00:00+00", "last_at": "2026-10-15 12:00+00", "first_value": 1e6, "last_value": 1e6,
}  # fmt: skip
LEDGER = {
    "date": DAY, "meter_scope": "board", "node": "n1", "model": "__unknown__", "state": "unknown", "energy_joules": 1e6
}  # fmt: skip
SERVED = {
    **LEDGER, "site": "west", "node": "n7", "engine": "llm/served", "model": "m", "state": "active",
    "covered_seconds": 300, "energy_joules": 10, "unknown_joules": 0
}  # fmt: skip
TOKENS = {"date": DAY, "model": "m", "token_class": "output", "tokens": 5, "has_power": False}
ROWS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "raw.landings": [
        {"asset": "raw/telemetry", "run_id": "test", "source": source, "landed_at": landed_at,
            "window_start_at": "2026-10-15 00:00+00", "window_end_at": "2026-10-16 00:00+00"}
        for source, landed_at in (("cluster", "2026-10-16 00:00+00"), ("ahead", "2026-10-15 01:00+00"))
    ],
    "raw.series": [
        {"series_id": 1, "source": "cluster", "metric": "energy", "labels": "{}"},
        {"series_id": 2, "source": "cluster", "metric": "started", "labels": "{}"},
        {"series_id": 3, "source": "cluster", "metric": "vanished", "labels": "{}"},
        {"series_id": 4, "source": "ahead", "metric": "energy", "labels": "{}"},
        {"series_id": 5, "source": "late", "metric": "generated", "labels": "{}"},
    ],
    "raw.series_chunks": [
        CHUNK,
        {**CHUNK, "chunk_start_at": "2026-10-14 00:00+00", "last_at": "2026-10-14 12:00+00"},
        # An engine that started an hour after its first sample, of a family that the day before did not have.
        {**CHUNK, "series_id": 2, "first_value": 1792026000.0},
        {**CHUNK, "series_id": 3, "chunk_start_at": "2026-10-14 00:00+00", "last_at": "2026-10-14 12:00+00"},
        {**CHUNK, "series_id": 4, "source": "ahead"},
        # Tokens of another day than any power.
        {**CHUNK, "series_id": 5, "source": "late", "chunk_start_at": "2026-10-12 00:00+00",
            "first_at": "2026-10-12 00:00+00", "last_at": "2026-10-12 12:00+00"},
    ],
    "raw.requests": [
        {"source": "log", "source_kind": "litellm", "started_at": "2026-10-12 00:00+00",
            "ended_at": "2026-10-12 00:01+00", "output_tokens": 5},
    ],
    "raw.refused_series": [{"series_id": 2, "source": "cluster", "metric": "started", "value": "1e18", "model": "m"}],
    "raw.unfilled_dates": [{"source": "cluster", "date": date(2026, 10, 9)}],
    "fleet.sources": [{"source": "cluster", "interval_seconds": 60}],
    "reference.metric_catalog": [
        {"metric": "energy", "quantity": "energy", "kind": "counter"},
        {"metric": "started", "quantity": "process_start", "kind": "gauge"},
        {"metric": "generated", "quantity": "tokens", "kind": "counter"},
    ],
    "marts.unmetered_devices": [{"date": DAY, "source": "cluster", "device_uuid": "GPU-1"}],
    "marts.energy_ledger": [
        {**LEDGER, "meter": "GPU-1", "namespace": "llm", "unknown_reason": "no_engine_for_pod", "held_by": "llm/odd-0"},
        {**LEDGER, "meter": "GPU-2", "model": "m", "state": "active"},
        {**LEDGER, "meter": "GPU-3", "node": "n3", "unknown_reason": "no_claimant"},
        {**LEDGER, "meter": "n4/package-0", "meter_scope": "module", "node": "n4", "unknown_reason": "no_claimant"},
        {**LEDGER, "meter": "GPU-5", "unknown_reason": "token_telemetry_missing", "held_by": "llm/silent-0"},
        # Named in the fleet file, and without tokens.
        {**LEDGER, "meter": "GPU-9", "namespace": "tiny", "unknown_reason": "no_engine_for_pod", "held_by": "tiny/x"},
        {**LEDGER, "meter": "GPU-6", "node": "n6", "model": "__unallocated__", "state": "unallocated"},
        # GPU-7 falls silent at four, GPU-8 of its node goes on until six; then its engine is silent.
        *({**SERVED, "meter": "GPU-7", "interval_start_at": f"2026-10-15 0{hour}:00+00"} for hour in range(5)),
        *({**SERVED, "meter": "GPU-8", "interval_start_at": f"2026-10-15 0{hour}:00+00",
            "unknown_joules": 5 * (hour > 2)} for hour in range(7)),
    ],
    # Tied to a pod, to a free board, to none; on a node whose boards are unknown; on CPUs by the fleet file.
    "marts.token_ledger": [
        {**TOKENS, "engine": "llm/a", "namespace": "llm"},
        {**TOKENS, "engine": "idle/b", "namespace": "idle", "node": "n6", "tokens": 0},
        {**TOKENS, "engine": "cpu/c", "namespace": "cpu"},
        {**TOKENS, "engine": "n3:8000", "node": "n3"},
        {**TOKENS, "engine": "tiny/d", "namespace": "tiny"},
        {**TOKENS, "engine": "cpu/e", "namespace": "cpu"},
        {**TOKENS, "engine": "cpu/e-1", "namespace": "cpu"},
        *({**TOKENS, "engine": "llm/served", "has_power": True, "is_matched": hour < 3,
            "interval_start_at": f"2026-10-15 0{hour}:00+00", "unmatched_reason": "board_without_energy"}
            for hour in range(7)),
    ],
    "fleet.engines": [
        {"entry": 0, "engine": "tiny/", "is_prefix": True, "accelerators": False},
        {"entry": 1, "engine": "cpu/e", "is_prefix": False, "accelerators": False},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def warehouse() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(database.connect(":memory:")) as connection:
        create_tables(connection)
        connection.execute("create schema reference")
        connection.execute("create table reference.metric_catalog (metric varchar, quantity varchar, kind varchar)")
        connection.execute("create schema marts")
        kinds = publications.columns()
        for table in (table for table in ROWS if table.startswith("marts.")):
            listed = ", ".join(f'"{column}" {kind}' for column, kind in kinds[table].items())
            connection.execute(f"create table {table} ({listed})")
        for table, rows in ROWS.items():
            named = dict.fromkeys(column for row in rows for column in row)
            given = pa.Table.from_pylist([{column: row.get(column) for column in named} for row in rows])
            with database.registered(connection, given=given):
                connection.execute(f"insert into {table} by name select * from given")
        connection.execute(statements.read(alarms.__file__, "run_days"), {"run_id": "test"})
        yield connection


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in CASES_ELSEWHERE])
def test_every_branch_of_an_alarm_has_rows(warehouse: duckdb.DuckDBPyConnection, name: str) -> None:
    query = statements.read(alarms.__file__, name)
    parameters = {"run_id": "test"} if "$run_id" in query else None
    assert without_rows(warehouse, query, parameters) == []


def test_every_query_is_an_alarms() -> None:
    assert sorted(alarm.name for alarm in alarms.ALARMS) == QUERIES
