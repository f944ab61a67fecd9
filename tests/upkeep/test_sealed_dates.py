"""Dates without raw: their rows stay through an upgrade and a rebuild, and nothing of them is booked as zero."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

import duckdb

from pipelines.upkeep import raw_removal
from pipelines.upkeep.raw_removal import Removal
from pipelines.warehouse import due_dates
from tests.books import Book, later_command
from tests.warehouse.upgrades import telemetry

FLEET = Path(__file__).parents[1] / "warehouse" / "upgrades" / "fleet.yaml"
THIRD, FIFTH = date(2026, 10, 3), date(2026, 10, 5)
DATED = "select table_name from duckdb_columns() where schema_name = 'marts' and column_name = 'date' order by 1"
# What the upgrade below changes in rows of the two sealed dates: a new column, and that they are carried over.
CHANGED = ("parked_joules", "is_opening_balance")
BY_DATE = "select date, sum(energy_joules)::double from marts.model_daily group by date order by date"


def rows_of_sealed_dates(book: Book) -> dict[str, tuple]:
    """Mart -> number and hash of its rows of the sealed dates."""
    found = {}
    for (mart,) in book.query(DATED):
        if mart != "idle_power":
            names = [name for name, *_ in book.query(f"describe marts.{mart}") if name not in CHANGED]
            rows = f"select {', '.join(sorted(names))} from marts.{mart} where date < '2026-10-03'"
            (found[mart],) = book.query(
                f"select count(*), bit_xor(hash(t)), sum(cast(hash(t) as hugeint)) from ({rows}) as t"
            )
    return found


def test_sealed_rows_outlive_an_upgrade_with_a_new_mart_and_a_new_column(tmp_path: Path) -> None:
    folder, data = tmp_path / "fleet", tmp_path / "data"
    folder.mkdir()
    telemetry.write(folder)
    fleet = Path(shutil.copy(FLEET, folder))
    first = later_command(fleet, data)
    assert first.returncode == 0, first.stdout + first.stderr
    book = Book.of(fleet, data)
    before, by_date = rows_of_sealed_dates(book), book.query(BY_DATE)
    month = book.query("select month, sum(energy_joules) from marts.model_monthly group by month")
    (hosts,) = book.query("select sum(parked_joules) from marts.model_monthly")
    with book.connection() as connection:
        raw_removal.remove(connection, book.fleet, Removal(THIRD, THIRD, (), 0))
        for table in ("power_samples", "token_samples"):
            found = connection.execute(f"select min(observed_at::date)::varchar from raw.{table}").fetchall()
            assert found == [("2026-10-03",)]
        # Of an older version: without a mart, and without a column of three others. Another method booked the dates.
        connection.execute("drop table marts.idle_power")
        for mart in ("model_hourly", "model_daily", "model_monthly"):
            connection.execute(f"alter table marts.{mart} drop column parked_joules")

    done = later_command(fleet, data, "--rebuild")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fleet upgraded (synthetic): 2026-10-03 to 2026-10-04" in done.stdout
    assert (
        "2026-10-01 to 2026-10-02 are sealed: their samples were removed (`retention`), so their rows stay as they were"
        " booked" in done.stdout
    )
    assert "dates_use_todays_settings" not in done.stdout
    assert rows_of_sealed_dates(book) == before
    assert book.query(BY_DATE) == by_date
    assert book.query("select month, sum(energy_joules) from marts.model_monthly group by month") == month
    # The new column is NULL where nothing can be known, in the month that has such dates too; the new mart begins later.
    assert book.query("select count(parked_joules) from marts.model_daily where date < '2026-10-03'") == [(0,)]
    assert book.query("select count(*) > 0 from marts.model_daily where parked_joules > 0") == [(True,)]
    assert hosts[0] > 0
    assert book.query("select count(parked_joules) from marts.model_monthly") == [(0,)]
    assert book.query("select min(date)::varchar from marts.idle_power") == [("2026-10-03",)]
    with duckdb.connect(str(book.fleet.snapshot), read_only=True) as published:
        assert published.execute(BY_DATE).fetchall() == by_date

    # What lands late next to a sealed date makes it not due, and is asked of no source.
    with book.connection() as connection:
        due_dates.mark_due(connection, date(2026, 10, 1), FIFTH)
        assert due_dates.due(connection, due_dates.BOOKING) == [THIRD, date(2026, 10, 4)]
    refused = later_command(fleet, data, "--start", "2026-10-02")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1] == (
        "--start 2026-10-02: expected 2026-10-03 or later: the dates before it are sealed, because samples that their"
        " booking reads were removed (`retention`)"
    )
