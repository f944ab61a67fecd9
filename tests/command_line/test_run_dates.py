"""Which dates a run books after the one before was killed: those that are due, and no source is asked for them."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.command_line.run_dates import dates_of
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.publishing import history
from pipelines.warehouse import database, due_dates
from pipelines.warehouse.raw_tables import create_tables
from pipelines.warehouse.refusals import QuestionError
from tests.tiny_marts import book, publish

FLEET = """
fleet: tiny
synthetic: true
period: {start: 2026-10-01}
sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]
"""
FIRST, END = date(2026, 10, 5), date(2026, 10, 8)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Three published dates; the warehouse has no mart any more, as when a rebuild drops them to make them anew."""
    path = tmp_path / "tiny.yaml"
    path.write_text(FLEET)
    made = load_fleet(path, {"WATTLEDGER_DATA": str(tmp_path / "data")})
    made.root.mkdir(parents=True)
    book(made, {"2026-10-05": 1, "2026-10-06": 2, "2026-10-07": 3})
    publish(made)
    with database.connect(made.warehouse) as connection:
        connection.execute("drop schema marts cascade")
        create_tables(connection)
    return made


def options(**chosen: bool) -> Namespace:
    return Namespace(**{"rebuild": False, "adopt": False, "start": None, "end": None, **chosen})


def land(fleet: Fleet, *dates: date, outcome: str = "landed") -> None:
    """A sample of each of these dates, and what became of its landing."""
    with database.connect(fleet.warehouse) as connection:
        for on in dates:
            at = datetime(on.year, on.month, on.day, tzinfo=UTC)
            connection.execute(
                "insert into raw.series_chunks (source, chunk_start_at, samples) values ('synthetic', ?, 1)", [at]
            )
            window = [at, at + timedelta(days=1)]
            connection.execute(
                "insert into raw.landings (asset, outcome, window_start_at, window_end_at)"
                " values ('raw/telemetry', ?, ?, ?)",
                [outcome, *window],
            )


THREE = [FIRST, FIRST + timedelta(days=1), FIRST + timedelta(days=2)]


def test_a_killed_rebuild_is_gone_on_with_and_books_its_due_dates_alone(fleet: Fleet) -> None:
    with database.connect(fleet.warehouse) as connection:
        due_dates.mark_due(connection, FIRST, END)
    land(fleet, *THREE)
    assert history.lost_warehouse(fleet) == ""
    # Rebuilt: from what has landed.
    assert dates_of(fleet, options(rebuild=True)) == (FIRST, END, True)
    start, _, is_rebuilt = dates_of(fleet, options(start=FIRST, end=END))
    assert (start, is_rebuilt) == (FIRST, False)


def test_landed_rows_alone_are_booked_too(fleet: Fleet) -> None:
    land(fleet, *THREE)
    assert dates_of(fleet, options(rebuild=True)) == (FIRST, END, True)


def test_a_lost_warehouse_is_still_lost(fleet: Fleet) -> None:
    """Innocent twin: nothing is due and nothing has landed; or only one date of three has."""
    for _ in range(2):
        with pytest.raises(QuestionError, match=r"has booked nothing, but 3 dates are published \(2026-10-05 to"):
            dates_of(fleet, options())
        start, _, is_rebuilt = dates_of(fleet, options(rebuild=True))
        # Every date of the period is asked for.
        assert (start, is_rebuilt) == (date(2026, 10, 1), False)
        land(fleet, FIRST)


def test_a_database_that_is_missing_hides_no_lost_warehouse(fleet: Fleet) -> None:
    """Its Parquet files still have the published dates."""
    (fleet.published / "latest" / "wattledger.duckdb").unlink()
    with pytest.raises(QuestionError, match="has booked nothing, but 3 dates are published"):
        dates_of(fleet, options())


def test_a_date_that_failed_is_asked_for_by_the_landing_of_the_next(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(FLEET)
    fleet = load_fleet(path, {"WATTLEDGER_DATA": str(tmp_path / "data")})
    fleet.root.mkdir(parents=True)
    book(fleet, {"2026-10-01": 1, "2026-10-03": 3})
    with database.connect(fleet.warehouse) as connection:
        create_tables(connection)
    land(fleet, date(2026, 10, 1), date(2026, 10, 3))
    land(fleet, date(2026, 10, 2), outcome="failed")
    start, _, _ = dates_of(fleet, options())
    assert start == date(2026, 10, 4)
    # Innocent twin: the newest failed, so the run begins with it.
    land(fleet, date(2026, 10, 4), outcome="failed")
    start, _, _ = dates_of(fleet, options())
    assert start == date(2026, 10, 4)
    land(fleet, date(2026, 10, 5), outcome="failed")
    start, _, _ = dates_of(fleet, options())
    assert start == date(2026, 10, 4)
