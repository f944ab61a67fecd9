"""A lost warehouse beside a publication: nothing that readers have seen is published away."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from tests.books import command, day, demo_fleet, files_source, later_command, on, record, recorded

FIRST, SECOND, LAST = on("10-20"), on("10-21"), on("10-22")
END = LAST + timedelta(days=1)


def of_two_nodes(labels: dict[str, str]) -> bool:
    return any(node in str(labels) for node in ("a6000-01", "gpt-oss"))


def published(data: Path, query: str) -> list[tuple]:
    with duckdb.connect(str(data / "demo" / "published" / "wattledger.duckdb"), read_only=True) as reader:
        return reader.execute(query).fetchall()


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Three published dates; the warehouse is lost, and the source keeps the last date and two hours before it.

    A first run asks nothing.
    """
    folder = tmp_path_factory.mktemp("lost")
    for n, of in enumerate((FIRST, SECOND, LAST)):
        record(recorded(day(of), of_two_nodes), folder / "samples", f"day-{n}")
    fleet = demo_fleet(folder, FIRST, END, sources=[files_source("files", "samples/*.parquet")])
    done = later_command(fleet, folder / "data")
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "data" / "demo" / "warehouse.duckdb").rename(folder / "backup.duckdb")
    (folder / "samples" / "day-0.parquet").unlink()
    evening = duckdb.sql(
        f"select * from '{folder}/samples/day-1.parquet' where observed_at >= timestamptz '2026-10-21 22:00:00+00'"
    ).to_arrow_table()
    record(evening, folder / "samples", "day-1")
    return fleet, folder / "data"


DAYS = "select date, sum(energy_joules)::double, count(*) from marts.model_daily group by date order by date"
MONTH = "select sum(energy_joules)::double from marts.model_monthly"


@pytest.mark.long
def test_a_lost_warehouse_is_reported_before_anything_runs_and_shrinks_nothing(lost: tuple[Path, Path]) -> None:
    fleet, data = lost
    before = published(data, DAYS)
    for options in ((), ("--start", LAST, "--end", END)):
        done = command(fleet, data, *options)
        assert (done.returncode, done.stdout) == (2, "")
        for words in ("has booked nothing", "3 dates are published (2026-10-20 to 2026-10-22)", "--rebuild", "--adopt"):
            assert words in done.stderr
    assert published(data, DAYS) == before


@pytest.mark.long
def test_a_restored_backup_goes_on_where_it_was(lost: tuple[Path, Path], tmp_path: Path) -> None:
    """The source's own check fails, as it gives less than is held; what is held is booked and published as before."""
    fleet, data = lost
    before = published(data, DAYS)
    shutil.copytree(data, tmp_path / "data", symlinks=True)
    shutil.copyfile(fleet.parent / "backup.duckdb", tmp_path / "data" / "demo" / "warehouse.duckdb")
    done = command(fleet, tmp_path / "data")
    assert (done.returncode, "refused_fewer" in done.stdout) == (1, True), done.stdout + done.stderr
    assert published(tmp_path / "data", DAYS) == before
    assert published(tmp_path / "data", "select is_forced from published.publication") == [(False,)]


@pytest.mark.long
def test_what_the_source_has_no_more_is_refused_and_then_adopted(lost: tuple[Path, Path]) -> None:
    fleet, data = lost
    before, (month,) = published(data, DAYS), published(data, MONTH)
    rebuilt = command(fleet, data, "--rebuild")
    assert rebuilt.returncode == 1, rebuilt.stdout
    assert "2026-10-20: published, but not in the warehouse" in rebuilt.stderr
    assert "2026-10-21: " in rebuilt.stderr  # two hours of it are left
    assert "--force-publish" in rebuilt.stderr
    assert published(data, DAYS) == before

    adopted = command(fleet, data, "--adopt")
    assert adopted.returncode == 0, adopted.stdout + adopted.stderr
    assert published(data, DAYS) == before
    assert published(data, MONTH) == [month]
    opening = "select date, is_opening_balance from marts.{} group by all order by date"
    expected = [(FIRST, True), (SECOND, True), (LAST, False)]
    for mart in ("model_hourly", "model_daily", "fleet_daily"):
        assert published(data, opening.format(mart)) == expected
    assert published(data, "select distinct is_opening_balance from marts.model_monthly") == [(True,)]
    assert published(data, "select is_forced from published.publication") == [(False,)]

    # The next run keeps it without the option.
    again = command(fleet, data)
    assert again.returncode == 0, again.stdout + again.stderr
    assert published(data, DAYS) == before
    assert published(data, opening.format("model_daily")) == expected
