"""What a publication's manifest knows: hashes once a week, publications from before it, what cannot be restored, and
changes that look like damage and are none."""

from __future__ import annotations

import json
import logging
import os
import shutil
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.publishing import publication, publication_manifest, restoring
from pipelines.publishing.object_store import storing as object_store
from pipelines.publishing.object_store.place import ObjectStoreError
from pipelines.publishing.restoring import PublicationDamaged
from tests.publishing.damage import corrupted, damage, differing_files
from tests.tiny_marts import NEXT_VERSION, book, publish

FLEET = """
fleet: tiny
synthetic: true
period: {start: 2026-10-01}
sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]
publication: {object_store: {url: store/, keep_days: 10}}
"""
FIRST = "parquet/marts/energy_ledger/date=2026-10-01.parquet"
SECOND = "parquet/marts/energy_ledger/date=2026-10-02.parquet"
DAILY = "parquet/marts/model_daily.parquet"


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Two published dates."""
    path = tmp_path / "tiny.yaml"
    path.write_text(FLEET)
    made = load_fleet(path, {**os.environ, "WATTLEDGER_DATA": str(tmp_path / "data")})
    made.root.mkdir(parents=True)
    book(made, {"2026-10-01": 1, "2026-10-02": 2})
    publish(made)
    return made


def latest(fleet: Fleet) -> Path:
    return (fleet.published / "latest").resolve()


def a_third(fleet: Fleet, at: datetime | None = None) -> None:
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2, "2026-10-03": 3})
    made = publication.publish(fleet, date(2026, 10, 3), date(2026, 10, 4), published_at=at)
    assert made is not None
    assert made.forced == ()


def figures(fleet: Fleet) -> dict[str, float]:
    """The ledger's joules by date, from the files; the database has the same."""
    assert differing_files(latest(fleet)) == []
    files = f"{latest(fleet)}/parquet/marts/energy_ledger/*.parquet"
    with closing(duckdb.connect()) as connection:
        query = f"select date::varchar, sum(energy_joules)::double from '{files}' group by 1 order by 1"
        return dict(connection.execute(query).fetchall())


THREE = {"2026-10-01": 1.0, "2026-10-02": 2.0, "2026-10-03": 3.0}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def rot(path: Path) -> None:
    """Other bytes, of the same number and with the same time: a failing disk."""
    before = path.stat()
    path.chmod(0o644)
    path.write_bytes(corrupted(path.read_bytes()))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


# --- the manifest -----------------------------------------------------------------------------------------------------


def test_the_manifest_lists_each_tables_dates_and_files(fleet: Fleet) -> None:
    a_third(fleet)
    found = json.loads((latest(fleet) / "manifest.json").read_text())
    tables = {f"{one['schema']}.{one['name']}": one for one in found["tables"]}
    assert sorted(tables) == [
        "marts.energy_ledger",
        "marts.model_daily",
        "marts.model_monthly",
        "published.publication",
    ]
    ledger, daily = tables["marts.energy_ledger"], tables["marts.model_daily"]
    assert ledger["dates"] == daily["dates"] == [["2026-10-01", "2026-10-03"]]
    assert [(one["on"], one["rows"]) for one in ledger["files"]] == [
        ("2026-10-01", 2),
        ("2026-10-02", 2),
        ("2026-10-03", 2),
    ]
    assert [(one["path"], one["on"], one["rows"]) for one in daily["files"]] == [(DAILY, None, 3)]
    for file in [found["database"], *ledger["files"], *daily["files"]]:
        path = latest(fleet) / file["path"]
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (file["bytes"], file["modified_ns"])
        assert publication_manifest.sha256_of(path) == file["sha256"]


# --- hashes -----------------------------------------------------------------------------------------------------------


def test_bytes_that_a_disk_changed_are_found_once_a_week(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    """Size and time are as before, so only the hash shows it. The first date's file is shared by all publications."""
    start = datetime.now(UTC)
    older = latest(fleet)
    a_third(fleet, start + timedelta(days=1))
    rot(latest(fleet) / FIRST)
    # A day later it is carried over unseen.
    publication.publish(fleet, date(2026, 10, 3), date(2026, 10, 4), published_at=start + timedelta(days=2))
    assert warnings(caplog) == []
    publication.publish(fleet, date(2026, 10, 3), date(2026, 10, 4), published_at=start + timedelta(days=8))
    found = warnings(caplog)
    assert (
        len([one for one in found if f"{FIRST}: its content is not what was published (another SHA-256)" in one]) == 3
    )
    assert len(found) == 3
    assert figures(fleet) == THREE
    # The older ones have it back as well.
    assert differing_files(older) == []
    caplog.clear()
    publication.publish(fleet, date(2026, 10, 3), date(2026, 10, 4), published_at=start + timedelta(days=9))
    assert warnings(caplog) == []


def test_what_a_copy_sends_is_hashed_at_once(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    """The file that the object store would get, and the database that the next publication starts from."""
    rot(latest(fleet) / FIRST)
    assert fleet.publication.object_store is not None
    done = object_store.publish(fleet, fleet.publication.object_store)
    assert done is not None
    (line,) = warnings(caplog)
    assert FIRST in line
    store = Path(fleet.publication.object_store.url) / "tables" / "marts" / "energy_ledger"
    with closing(duckdb.connect()) as connection:
        assert connection.execute(f"select sum(energy_joules)::double from '{store}/*.parquet'").fetchall() == [(3.0,)]
    caplog.clear()
    rot(latest(fleet) / "wattledger.duckdb")
    a_third(fleet)
    (line,) = warnings(caplog)
    assert "wattledger.duckdb: its content is not what was published" in line
    assert figures(fleet) == THREE


def test_another_time_alone_is_no_damage(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    """Innocent twin: a copy to another machine that kept no times. Hashes are compared once, then times again."""
    for path in latest(fleet).rglob("*"):
        os.utime(path, (1_790_000_000, 1_790_000_000))
    before = {path: path.read_bytes() for path in latest(fleet).rglob("*.parquet")}
    manifest = restoring.checked(fleet.published, latest(fleet))
    assert {file.modified_ns for file in manifest.files} == {1_790_000_000 * 10**9}
    assert publication_manifest.read(latest(fleet)) == manifest
    assert {path: path.read_bytes() for path in before} == before
    assert warnings(caplog) == []


# --- publications from before manifests -------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["never made", "cut", "of another publication"])
def test_a_publication_without_a_manifest_gets_one_from_its_database(
    fleet: Fleet, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    older = (latest(fleet) / "manifest.json").read_bytes()
    a_third(fleet)
    manifest, first = latest(fleet) / "manifest.json", publication_manifest.read(latest(fleet))
    if lost == "never made":
        manifest.unlink()
    else:
        manifest.write_bytes(manifest.read_bytes()[:1000] if lost == "cut" else older)
    (latest(fleet) / FIRST).unlink()
    shutil.copyfile(latest(fleet) / "parquet/marts/energy_ledger/date=2026-10-03.parquet", latest(fleet) / SECOND)
    made = restoring.checked(fleet.published, latest(fleet))
    assert first is not None
    assert {name: (table.dates, table.columns) for name, table in made.tables.items()} == {
        name: (table.dates, table.columns) for name, table in first.tables.items()
    }
    assert sorted(line.split(": ")[0].rpartition("date=")[2] for line in warnings(caplog)) == [
        "2026-10-01.parquet",
        "2026-10-02.parquet",
    ]
    assert figures(fleet) == THREE
    # What was not written anew is known as before: no copy sends it again.
    third = "parquet/marts/energy_ledger/date=2026-10-03.parquet"
    assert [one for one in made.files if one.path == third] == [one for one in first.files if one.path == third]


# --- what cannot be restored ------------------------------------------------------------------------------------------


def test_where_both_copies_of_a_date_are_damaged_everything_stays_and_one_line_says_what_to_do(fleet: Fleet) -> None:
    assert fleet.publication.object_store is not None
    object_store.publish(fleet, fleet.publication.object_store)
    kept = latest(fleet)
    damage(kept / FIRST, "cut")
    damage(kept / "wattledger.duckdb", "deleted")
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2, "2026-10-03": 3})
    with pytest.raises(PublicationDamaged, match=f"wattledger.duckdb and {FIRST} are damaged or missing") as refusal:
        publish(fleet, "2026-10-03", "2026-10-04")
    for words in (str(kept), "Nothing was published, copied or deleted", "Restore one of them from a backup"):
        assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
    with pytest.raises(ObjectStoreError, match=r"publication\.object_store: .*are damaged or missing"):
        object_store.publish(fleet, fleet.publication.object_store)
    assert latest(fleet) == kept
    store = Path(fleet.publication.object_store.url) / "tables" / "marts" / "energy_ledger"
    assert len(list(store.glob("*.parquet"))) == 2
    # Who moves it away publishes what the warehouse has.
    kept.rename(fleet.root / "moved")
    publish(fleet, "2026-10-03", "2026-10-04")
    assert figures(fleet) == THREE


def test_a_database_that_is_missing_without_a_manifest_stops_the_publication(fleet: Fleet) -> None:
    (latest(fleet) / "manifest.json").unlink()
    (latest(fleet) / "wattledger.duckdb").unlink()
    with pytest.raises(
        PublicationDamaged, match=r"wattledger\.duckdb is missing, and there is no sound manifest\.json"
    ):
        publish(fleet, "2026-10-02", "2026-10-03")


# --- innocent twins ---------------------------------------------------------------------------------------------------


def test_a_date_that_was_booked_again_a_table_without_rows_on_a_date_and_tables_that_come_and_go(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    # 2 October is booked again with 20 J; 3 October has a row by day and none of intervals.
    more = "delete from marts.energy_ledger where date = '2026-10-03'"
    book(fleet, {"2026-10-01": 1, "2026-10-02": 20, "2026-10-03": 3}, more=more)
    publish(fleet, "2026-10-02", "2026-10-04")
    assert figures(fleet) == {"2026-10-01": 1.0, "2026-10-02": 20.0}
    # The next version has no model_monthly, other columns of model_daily, and a new table of hours.
    hours = "create table marts.model_hourly as select *, interval_start_at as hour_start_at from marts.energy_ledger"
    book(fleet, {"2026-10-01": 1, "2026-10-02": 20, "2026-10-03": 3}, more=f"{NEXT_VERSION};{more};{hours}")
    publish(fleet, "2026-10-03", "2026-10-04")
    assert figures(fleet) == {"2026-10-01": 1.0, "2026-10-02": 20.0}
    assert sorted(path.name for path in (latest(fleet) / "parquet/marts").iterdir()) == [
        "energy_ledger",
        "model_daily.parquet",
        "model_hourly",
    ]
    book(fleet, {"2026-10-01": 1, "2026-10-02": 20, "2026-10-03": 3, "2026-10-04": 4})
    with closing(duckdb.connect(str(fleet.warehouse))) as connection:
        connection.execute("drop table marts.model_hourly")
    publish(fleet, "2026-10-03", "2026-10-05")
    assert figures(fleet) == {"2026-10-01": 1.0, "2026-10-02": 20.0, "2026-10-03": 3.0, "2026-10-04": 4.0}
    assert warnings(caplog) == []


@pytest.mark.rest
def test_publications_that_were_deleted_after_their_time_leave_the_others_whole(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    """The first is one that shares its files with all others."""
    first, start = latest(fleet), datetime.now(UTC)
    for number in range(1, 8):
        a_third(fleet, start + timedelta(days=3 * number))
    assert not first.exists()
    assert len([path for path in fleet.published.iterdir() if path.is_dir() and not path.is_symlink()]) == 5
    assert figures(fleet) == THREE
    assert warnings(caplog) == []
