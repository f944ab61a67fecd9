"""What outlives the loss of raw, and that of everything: a book of which dates are sealed, and one that is restored."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path

import duckdb
import pytest

from pipelines.upkeep import raw_removal
from pipelines.upkeep.raw_removal import Removal
from pipelines.warehouse import due_dates
from tests import commands
from tests.books import Book, environment, later_command
from tests.warehouse.upgrades import telemetry

FLEET = Path(__file__).parents[1] / "warehouse" / "upgrades" / "fleet.yaml"
SECOND, THIRD = date(2026, 10, 2), date(2026, 10, 3)
DATED = "select table_name from duckdb_columns() where schema_name = 'marts' and column_name = 'date' order by 1"
# What the upgrade below changes in rows of the sealed dates: a new column, and that they are carried over.
CHANGED = ("parked_joules", "is_opening_balance")
BY_DATE = "select date, sum(energy_joules)::double from marts.model_daily group by date order by date"
BY_MONTH = "select month, sum(energy_joules)::double from marts.model_monthly group by month"


@pytest.fixture(scope="module")
def booked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A fleet file, and the data of its first three dates of four."""
    folder = tmp_path_factory.mktemp("booked")
    telemetry.write(folder / "fleet")
    fleet = Path(shutil.copy(FLEET, folder / "fleet"))
    done = later_command(fleet, folder / "data", "--end", "2026-10-04")
    assert done.returncode == 0, done.stdout + done.stderr
    return fleet, folder / "data"


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


@pytest.mark.long
def test_sealed_rows_outlive_an_upgrade_with_a_new_mart_and_a_new_column(
    booked: tuple[Path, Path], tmp_path: Path
) -> None:
    fleet, data = booked[0], tmp_path
    shutil.copytree(booked[1], data, symlinks=True, dirs_exist_ok=True)
    book = Book.of(fleet, data)
    before, by_date, by_month = rows_of_sealed_dates(book), book.query(BY_DATE), book.query(BY_MONTH)
    assert [on for on, _ in by_date] == [date(2026, 10, 1), SECOND, THIRD]
    with book.connection() as connection:
        raw_removal.remove(connection, book.fleet, Removal(THIRD, THIRD, (), 0))
        for table in ("power_samples", "token_samples"):
            found = connection.execute(f"select min(observed_at::date)::varchar from raw.{table}").fetchall()
            assert found == [("2026-10-03",)]
        # As of an older version: without a mart, and without a column of three others.
        connection.execute("drop table marts.idle_power")
        for mart in ("model_hourly", "model_daily", "model_monthly"):
            connection.execute(f"alter table marts.{mart} drop column parked_joules")

    done = later_command(fleet, data, "--rebuild")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fleet upgraded (synthetic): 2026-10-03" in done.stdout
    assert (
        "2026-10-01 to 2026-10-02 are sealed: their samples were removed (`retention`), so their rows stay as they were"
        " booked" in done.stdout
    )
    assert "dates_use_todays_settings" not in done.stdout
    assert rows_of_sealed_dates(book) == before
    assert book.query(BY_DATE) == by_date
    assert book.query(BY_MONTH) == by_month
    # The new column is NULL where it cannot be known, in the month of these dates too; the new mart begins later.
    assert book.query("select count(parked_joules) from marts.model_daily where date < '2026-10-03'") == [(0,)]
    assert book.query("select count(*) > 0 from marts.model_daily where parked_joules > 0") == [(True,)]
    assert book.query("select count(parked_joules), count(*) > 0 from marts.model_monthly") == [(0, True)]
    assert book.query("select min(date)::varchar from marts.idle_power") == [("2026-10-03",)]
    with duckdb.connect(str(book.fleet.snapshot), read_only=True) as published:
        assert published.execute(BY_DATE).fetchall() == by_date

    # What lands late beside a sealed date does not make it due, and it cannot be named.
    with book.connection() as connection:
        due_dates.mark_due(connection, date(2026, 10, 1), date(2026, 10, 4))
        assert due_dates.due(connection, due_dates.BOOKING) == [THIRD]
    refused = later_command(fleet, data, "--start", "2026-10-02")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1] == (
        "--start 2026-10-02: expected 2026-10-03 or later: the dates before it are sealed, because samples that their"
        " booking reads were removed (`retention`)"
    )


@pytest.mark.long
def test_a_restored_backup_has_the_same_figures_and_books_the_next_date(
    booked: tuple[Path, Path], tmp_path: Path
) -> None:
    fleet, data = booked
    made = commands.run(["backup", str(tmp_path / "backups"), "--fleet", str(fleet)], environment(data), timeout=300)
    assert made.returncode == 0, made.stderr
    (folder,) = (tmp_path / "backups").iterdir()
    facts = json.loads((folder / "backup.json").read_text(encoding="utf-8"))
    assert [facts["first_date"], facts["last_date"]] == ["2026-10-01", "2026-10-03"]
    assert (folder / "fleet.yaml").read_bytes() == fleet.read_bytes()

    restored = tmp_path / "restored"
    shutil.copytree(folder / "upgraded", restored / "upgraded", symlinks=True)
    printed = [
        commands.run(["table", "--fleet", str(fleet)], environment(at), timeout=300).stdout for at in (data, restored)
    ]
    assert printed[1] == printed[0].replace(str(data), str(restored))
    before = Book.of(fleet, data).query(BY_DATE)
    done = later_command(fleet, restored)
    assert done.returncode == 0, done.stdout + done.stderr
    after = Book.of(fleet, restored).query(BY_DATE)
    # The fourth date gives the third one its last two minutes: the sample after midnight.
    assert [on for on, _ in after] == [*(on for on, _ in before), date(2026, 10, 4)]
    assert after[:2] == before[:2]
