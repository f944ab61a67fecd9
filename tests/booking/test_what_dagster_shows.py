"""What Dagster shows of a booking: the facts of a mart, and what a check found, as numbers and rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from types import SimpleNamespace

import dagster as dg
import duckdb
import pytest

from pipelines.booking import alarms, invariants
from pipelines.booking.dbt_results import facts_of, rows_found
from pipelines.warehouse.contracts import Mart

FIRST, END = date(2026, 10, 2), date(2026, 10, 4)


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as held:
        held.execute(
            "create schema marts; create table marts.daily as select date '2026-10-01' + day::int as date, model"
            " from range(4) as days (day), (values ('a'), ('b'), ('c')) as models (model);"
            " create table marts.curve as select 1 as level from range(7)"
        )
        yield held


def test_a_mart_has_its_rows_of_the_booked_dates_and_its_seconds(connection: duckdb.DuckDBPyConnection) -> None:
    marts = {"daily": Mart((("date", "date"),)), "curve": Mart((("level", "int"),), "all"), "other": Mart(())}
    seconds = {"model.w.daily": 0.12345, "model.w.int_step": 2.0, "model.w.curve": None}
    assert facts_of(connection, marts, seconds, FIRST, END) == {
        "model.w.daily": {"rows": 6, "dates": "2026-10-02 to 2026-10-03", "seconds": 0.123},
        "model.w.curve": {"dagster/row_count": 7},
    }


def test_where_nothing_was_built_there_are_no_facts(connection: duckdb.DuckDBPyConnection) -> None:
    assert facts_of(connection, {"daily": Mart(())}, {}, FIRST, END) == {}
    # Of seeds, which have no dates.
    assert facts_of(connection, {"daily": Mart(())}, {"seed.w.rates": 1.0}, date.min, date.min) == {}


def test_a_failed_data_test_has_the_number_of_its_rows_and_the_first_five(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    query = (
        "select model, count(*) as days from marts.daily group by model union all select 'd' || n, n from range(5) t(n)"
    )
    meta = {"expected": "no model", "remedy": "look"}
    text, facts = rows_found(connection, SimpleNamespace(compiled_code=query, config=SimpleNamespace(meta=meta)))
    assert text.splitlines()[0] == "8 rows"
    assert text.splitlines()[-2:] == ["  Expected: no model", "  What to do: look"]
    assert facts["rows_found"] == 8
    table = "| model | days |\n| --- | --- |\n| a | 4 |\n| b | 4 |\n| c | 4 |\n| d0 | 0 |\n| d1 | 1 |"
    assert facts["rows"] == dg.MarkdownMetadataValue(table)


def test_a_failed_data_test_whose_rows_are_held_back_by_now_names_that(connection: duckdb.DuckDBPyConnection) -> None:
    node = SimpleNamespace(compiled_code="select model from marts.daily where false", config=SimpleNamespace(meta={}))
    text, facts = rows_found(connection, node)
    assert text == "no row any more: what it found is of dates that are held back now, in schema held_back"
    assert facts["rows_found"] == 0


def test_an_invariant_has_what_each_row_has_and_should_have() -> None:
    assert invariants._metadata([]) == {"broken_rows": 0}
    row = invariants.Broken("2026-10-02", "energy_ledger", "meter GPU-1", 3.5, "J", "4 J", "book it", 2)
    found = invariants._metadata([row])
    assert found["broken_rows"] == 2
    assert found["rows"].value.splitlines()[-1] == "| 2026-10-02 | energy_ledger | meter GPU-1 | 3.5 | J | 4 J |"


def test_an_alarm_has_what_it_expects_where_it_finds_nothing_and_where_it_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alarm, asset = alarms.ALARMS[0], dg.AssetKey(["raw", "series"])

    def answer() -> dg.AssetCheckResult:
        return alarms._answer(duckdb.connect(), asset, alarm, "run")

    monkeypatch.setattr(alarms, "ask", lambda *_: (["source"], []))
    passed = answer()
    assert (passed.passed, passed.metadata["rows_found"].value) == (True, 0)
    assert passed.metadata["expected"].value == alarm.expected
    monkeypatch.setattr(alarms, "ask", lambda *_: (["source"], [("cluster",)] * 60))
    warned = answer()
    assert (warned.passed, warned.metadata["rows_found"].value) == (False, 60)
    assert len(warned.metadata["rows"].value.splitlines()) == 52
    monkeypatch.undo()
    refused = answer()
    assert (refused.passed, set(refused.metadata)) == (False, {"expected"})
    assert refused.description.startswith("could not be asked: ")
