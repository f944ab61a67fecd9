"""The publication in an object store: the snapshot's values, one publication at a time, whole after any failure."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pipelines.fleet.fleet_errors import FleetError
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.fleet.targets.publication_targets import ObjectStoreTarget
from pipelines.publishing import publication
from pipelines.publishing.object_store import delta_tables
from pipelines.publishing.object_store import place as object_store_place
from pipelines.publishing.object_store import storing as object_store
from pipelines.publishing.object_store.asset import object_store_asset
from pipelines.publishing.object_store.place import ObjectStoreError, Place, Turn
from tests.servers import free_port, s3_bucket
from tests.tiny_marts import NEXT_VERSION, book, publish, published_demo

__all__ = ["published_demo"]  # the fixture
pytestmark = pytest.mark.sampled

FLEET = """
fleet: tiny
synthetic: true
period: {start: 2026-10-01}
sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]
publication: {object_store: {url: URL, tables: TABLES, keep_days: 10}}
"""


def tiny(folder: Path, url: str = "store/", tables: str = "delta") -> Fleet:
    path = folder / "tiny.yaml"
    path.write_text(FLEET.replace("URL", url).replace("TABLES", tables))
    made = load_fleet(path, {**os.environ, "WATTLEDGER_DATA": str(folder / "data")})
    made.root.mkdir(parents=True, exist_ok=True)
    return made


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """A fleet of three small tables, with a folder as its store."""
    return tiny(tmp_path)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_bucket(monkeypatch) as url:
        yield url


def target(fleet: Fleet) -> ObjectStoreTarget:
    assert fleet.publication.object_store is not None
    return fleet.publication.object_store


def store(fleet: Fleet, now: datetime | None = None) -> object_store.Stored:
    done = object_store.publish(fleet, target(fleet), now)
    assert done is not None
    return done


def local(fleet: Fleet) -> Path:
    return Path(target(fleet).url)


# --- readers ----------------------------------------------------------------------------------------------------------


class Reader:
    """What a person does who has one manifest in hand: its files, or its version of each Delta table."""

    def __init__(self, fleet: Fleet, path: str = "latest.json") -> None:
        self.place = Place(target(fleet).url)
        payload = self.place.get(path)
        assert payload is not None
        self.manifest: dict[str, Any] = json.loads(payload)

    @property
    def publication_id(self) -> str:
        return self.manifest["publication_id"]

    def parquet(self, table: str, query: str) -> list[tuple]:
        """DuckDB on the table's Parquet files, which are called `t`."""
        files = [one["path"] for one in self.manifest["tables"][table]["files"]]
        with closing(duckdb.connect()) as connection:
            connection.execute("set TimeZone = 'UTC'")
            paths = [self.place.path(one) for one in files]
            if self.place.is_local:
                connection.execute(f"create view t as from read_parquet({paths})")
            else:  # DuckDB's extension for S3 cannot be had on an air-gapped machine: by way of Arrow
                connection.register("t", pq.read_table(paths, filesystem=self.place.fs))
            return connection.execute(query).fetchall()

    def delta(self, table: str, query: str) -> list[tuple]:
        """DuckDB on the Delta table in the manifest's version, which deltalake's own engine reads into Arrow."""
        entry = self.manifest["tables"][table]
        held = DeltaTable(
            f"{self.place.url}/{entry['path']}",
            version=entry["delta_version"],
            storage_options=delta_tables.storage_options(),
        )
        with closing(duckdb.connect()) as connection:
            connection.execute("set TimeZone = 'UTC'")
            connection.register("t", pa.table(held.scan()))
            return connection.execute(query).fetchall()

    def daily(self) -> dict[str, Decimal]:
        """Joules per date; both ways have the same."""
        query = "select date::varchar, energy_joules from t order by 1"
        found = dict(self.parquet("marts.model_daily", query))
        if self.manifest["tables"]["marts.model_daily"]["delta_version"] is not None:
            assert dict(self.delta("marts.model_daily", query)) == found
        return found

    def sums(self) -> set[Decimal | None]:
        """The joules of three tables, which agree within one publication."""
        query = "select sum(energy_joules) from t"
        return {
            self.parquet(f"marts.{table}", query)[0][0] for table in ("model_daily", "energy_ledger", "model_monthly")
        }


def files(fleet: Fleet, table: str) -> list[str]:
    """The spans of a table's files in the current manifest."""
    return sorted(one["span"] for one in Reader(fleet).manifest["tables"][table]["files"])


# --- the same tables --------------------------------------------------------------------------------------------------


def test_every_table_of_the_demo_has_the_snapshots_values_types_and_comments(
    published_demo: Fleet, tmp_path: Path
) -> None:
    reached = ObjectStoreTarget.model_construct(url=str(tmp_path / "store"), tables="delta", keep_days=10)
    fleet = published_demo.model_copy(
        update={"publication": published_demo.publication.model_copy(update={"object_store": reached})}
    )
    made = fleet.latest_publication
    assert made is not None
    first = store(fleet)
    assert (first.publication_id, first.previous_id) == (made.name, None)
    reader = Reader(fleet)
    tables = reader.manifest["tables"]
    assert len(tables) > 60
    with closing(duckdb.connect(str(fleet.snapshot), read_only=True)) as snapshot:
        snapshot.execute("set TimeZone = 'UTC'")
        described = dict(
            snapshot.execute(
                "select schema_name || '.' || table_name, list((column_name, data_type, comment) order by column_index)"
                " from duckdb_columns() where schema_name in ('finance', 'marts', 'published') group by all"
            ).fetchall()
        )
        own = snapshot.execute("select schema_name || '.' || table_name from duckdb_tables()").fetchall()
        assert sorted(name for (name,) in own) == sorted(tables) == sorted(described)
        for name, columns in described.items():
            entry = tables[name]
            typed = ", ".join(f'cast("{column}" as {kind}) as "{column}"' for column, kind, _ in columns)
            held = DeltaTable(f"{reader.place.url}/{entry['path']}", version=entry["delta_version"])
            snapshot.register("theirs", pa.table(held.scan()))
            paths = [reader.place.path(one["path"]) for one in entry["files"]]
            for theirs in ("theirs", f"read_parquet({paths})"):
                ((count,),) = snapshot.execute(
                    f"select count(*) from ((from {name} except all select {typed} from {theirs})"
                    f" union all (select {typed} from {theirs} except all from {name}))"
                ).fetchall()
                assert (name, count) == (name, 0)
            fields = json.loads(held.schema().to_json())["fields"]
            assert [(one["name"], one["metadata"].get("comment")) for one in fields] == [
                (column, comment) for column, _, comment in columns
            ]
            assert entry["rows"] == snapshot.execute(f"select count(*) from {name}").fetchall()[0][0]
    kinds = {
        one["name"]: one["type"]
        for one in json.loads(DeltaTable(f"{reader.place.url}/tables/marts/model_hourly").schema().to_json())["fields"]
    }
    assert {
        name: kinds[name] for name in ("date", "hour_start_at", "model", "energy_joules", "is_opening_balance")
    } == {
        "date": "date",
        "hour_start_at": "timestamp",
        "model": "string",
        "energy_joules": "decimal(28,6)",
        "is_opening_balance": "boolean",
    }
    # No feature of the format that an older reader lacks.
    assert DeltaTable(f"{reader.place.url}/tables/marts/model_hourly").protocol()[:2] == (1, 2)
    again = store(fleet)
    assert (again.rows, again.files, again.previous_id) == ({}, 0, made.name)


@pytest.mark.parametrize("tables", ["delta", "parquet"])
def test_only_changed_dates_are_written_and_missed_ones_caught_up(tmp_path: Path, tables: str) -> None:
    fleet = tiny(tmp_path, tables=tables)
    book(fleet, {"2026-09-30": 7, "2026-10-01": 1, "2026-10-02": 2})
    publish(fleet, "2026-09-30")
    store(fleet)
    assert files(fleet, "marts.energy_ledger") == ["2026-09-30", "2026-10-01", "2026-10-02"]
    assert files(fleet, "marts.model_daily") == ["2026-09", "2026-10"]
    assert files(fleet, "marts.model_monthly") == ["all"]
    (_, october) = Reader(fleet).manifest["tables"]["marts.model_daily"]["files"]
    assert (october["rows"], october["first_date"], october["last_date"]) == (2, "2026-10-01", "2026-10-02")
    before = {path: path.stat().st_mtime_ns for path in local(fleet).glob("tables/**/*.parquet")}
    book(fleet, {"2026-09-30": 7, "2026-10-01": 1, "2026-10-02": 20})
    publish(fleet, "2026-10-02", "2026-10-03")
    book(fleet, {"2026-09-30": 7, "2026-10-01": 1, "2026-10-02": 20, "2026-10-03": 3})
    last = publish(fleet, "2026-10-03", "2026-10-04")
    done = store(fleet)
    # Of the ledger two dates, of the daily table October's three rows, the two months, the row about the publication.
    assert done.rows == {
        "marts.energy_ledger": 4,
        "marts.model_daily": 3,
        "marts.model_monthly": 2,
        "published.publication": 1,
    }
    assert done.files == 5
    reader = Reader(fleet)
    assert reader.publication_id == last.publication_id
    assert reader.daily() == {"2026-09-30": 7, "2026-10-01": 1, "2026-10-02": 20, "2026-10-03": 3}
    assert reader.sums() == {31}
    assert {path: path.stat().st_mtime_ns for path in before} == before
    if tables == "delta":
        ledger = DeltaTable(str(local(fleet) / "tables/marts/energy_ledger"))
        assert ledger.version() == 1  # one commit for two dates
        assert ledger.history(1)[0]["publication_id"] == last.publication_id
        # By its statistics a reader of one date skips the files of the others.
        actions = pa.table(ledger.get_add_actions(flatten=True)).to_pylist()
        assert sorted((one["min.date"], one["max.date"], one["num_records"]) for one in actions) == [
            (date.fromisoformat(at), date.fromisoformat(at), 2)
            for at in ("2026-09-30", "2026-10-01", "2026-10-02", "2026-10-03")
        ]
    else:
        assert not list(local(fleet).glob("tables/**/_delta_log"))
    # A date that the snapshot has no more goes; a file that a person deleted comes back.
    book(fleet, {"2026-10-02": 20, "2026-10-03": 3})
    publish(fleet, "2026-09-30")
    store(fleet)
    lost, cut = (local(fleet) / one["path"] for one in Reader(fleet).manifest["tables"]["marts.energy_ledger"]["files"])
    lost.unlink()
    assert store(fleet).rows == {"marts.energy_ledger": 2}
    # So does one that was cut: its size shows it.
    os.truncate(cut, 100)
    assert store(fleet).rows == {"marts.energy_ledger": 2}
    assert Reader(fleet).daily() == {"2026-10-02": 20, "2026-10-03": 3}
    assert Reader(fleet).sums() == {23}


# --- readers and old publications -------------------------------------------------------------------------------------


@pytest.mark.rest
def test_a_reader_with_a_manifest_keeps_its_publication_through_ten_more(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet)
    store(fleet)
    holding, totals = Reader(fleet), []
    seen: list[set[Decimal | None]] = []
    is_over = threading.Event()

    def read_on() -> None:
        while not is_over.wait(0.02):
            seen.append(Reader(fleet).sums())

    reading = threading.Thread(target=read_on)
    reading.start()
    try:
        for more in range(10):
            book(fleet, {"2026-10-01": 1, "2026-10-02": 2, "2026-10-03": more})
            publish(fleet)
            store(fleet)
            totals.append((holding.daily(), holding.sums(), Reader(fleet).sums()))
    finally:
        is_over.set()
        reading.join()
    assert totals == [({"2026-10-01": 1, "2026-10-02": 2}, {3}, {3 + more}) for more in range(10)]
    # Who reads on and on meets each publication whole: its three tables agree.
    print(f"{len(seen)} readings of {len({min(one) for one in seen})} publications")
    assert {len(one) for one in seen} == {1}
    # By name, too.
    named = Reader(fleet, f"publications/{holding.publication_id}.json")
    assert named.manifest == holding.manifest


@pytest.mark.rest
def test_old_publications_are_deleted_with_the_files_that_none_has_any_more(fleet: Fleet) -> None:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    ids = []
    for day in range(8):
        book(fleet, {"2026-10-01": 1, "2026-10-02": 10 + day})
        ids.append(publish(fleet, "2026-10-02" if day else "2026-10-01", "2026-10-03").publication_id)
        done = store(fleet, start + timedelta(days=2 * day))
        assert done.forgotten == ([] if day < 7 else ids[:1])
    kept = sorted(path.stem for path in local(fleet).glob("publications/*.json"))
    # The first was replaced on 3 November, 12 days before the last; the second on the 5th, not longer than 10 ago.
    assert kept == ids[1:]
    # A date that never changed is one file; of the other, each publication has its own.
    ledger = sorted(path.name[:10] for path in local(fleet).glob("tables/marts/energy_ledger/*.parquet"))
    assert ledger == ["2026-10-01"] + ["2026-10-02"] * 7
    assert Reader(fleet, f"publications/{ids[1]}.json").sums() == {12}
    # However old, the newest five stay.
    done = store(fleet, start + timedelta(days=400))
    assert done.forgotten == ids[1:3]
    assert Reader(fleet, f"publications/{ids[3]}.json").sums() == {14}
    assert Reader(fleet).sums() == {18}


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["upload", "commit", "manifest", "latest"])
def test_a_crash_half_way_leaves_the_old_publication_and_the_next_run_mends_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    old = publish(fleet)
    store(fleet)
    book(fleet, {"2026-10-01": 10, "2026-10-02": 20})
    publish(fleet)
    done: list[str] = []

    class Killed(BaseException):
        """The process is gone."""

    def kill_at(nth: int, path: str) -> None:
        done.append(path)
        if len(done) == nth:
            raise Killed

    put, upload, commit = Place.put, Place.upload, delta_tables.commit
    with monkeypatch.context() as patched:
        if where == "upload":
            patched.setattr(Place, "upload", lambda self, file, path: (kill_at(3, path), upload(self, file, path)))
        elif where == "commit":
            patched.setattr(delta_tables, "commit", lambda *given: (kill_at(3, given[1].name), commit(*given))[1])
        else:
            start = "publications/" if where == "manifest" else "latest"
            patched.setattr(
                Place,
                "put",
                lambda self, path, payload: (
                    kill_at(1, path) if path.startswith(start) else None,
                    put(self, path, payload),
                ),
            )
        with pytest.raises(Killed):
            store(fleet)
    assert len(done) >= 1
    reader = Reader(fleet)
    assert (reader.publication_id, reader.sums()) == (old.publication_id, {3})
    assert reader.daily() == {"2026-10-01": 1, "2026-10-02": 2}
    last = publish(fleet)
    store(fleet)
    assert (Reader(fleet).publication_id, Reader(fleet).sums()) == (last.publication_id, {30})
    assert Reader(fleet).daily() == {"2026-10-01": 10, "2026-10-02": 20}
    assert reader.sums() == {3}
    # What the killed run left is gone: each file belongs to a publication.
    named = {
        one["path"]
        for path in local(fleet).glob("publications/*.json")
        for table in json.loads(path.read_text())["tables"].values()
        for one in table["files"]
    }
    assert {str(path.relative_to(local(fleet))) for path in local(fleet).glob("tables/**/*.parquet")} >= named
    assert not list(local(fleet).glob("publishers/*"))


@pytest.mark.rest
def test_a_store_that_is_away_fails_the_asset_with_its_reason_and_the_next_run_catches_up(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = tiny(tmp_path, f"{bucket}/ledger")
    asset = object_store_asset(fleet, target(fleet), "pool")
    assets = [asset, dg.AssetSpec(["published", "publication"])]
    book(fleet, {"2026-10-01": 1})
    old = publish(fleet)
    assert dg.materialize(assets).success
    assert Reader(fleet).daily() == {"2026-10-01": 1}
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    new = publish(fleet, "2026-10-02", "2026-10-03")
    with monkeypatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
        failed = dg.materialize(assets, raise_on_error=False)
    (event,) = failed.get_step_failure_events()
    message = event.step_failure_data.error.to_string()
    assert "publication.object_store: s3://wattledger/ledger: cannot be " in message
    assert f"The snapshot {new.publication_id} is published; the object store keeps what it has" in message
    assert "s3cret" not in message
    assert Reader(fleet).publication_id == old.publication_id
    # A day more, and the next run has both.
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2, "2026-10-03": 3})
    publish(fleet, "2026-10-03", "2026-10-04")
    done = dg.materialize(assets)
    (event,) = done.get_asset_materialization_events()
    metadata = event.materialization.metadata
    assert (metadata["previous_publication_id"].value, metadata["place"].value) == (
        old.publication_id,
        "s3://wattledger/ledger",
    )
    assert Reader(fleet).daily() == {"2026-10-01": 1, "2026-10-02": 2, "2026-10-03": 3}
    assert Reader(fleet).sums() == {6}


def test_a_refused_bucket_is_named_in_one_line(tmp_path: Path, bucket: str) -> None:
    fleet = tiny(tmp_path, f"{bucket}-absent/ledger")
    book(fleet, {"2026-10-01": 1})
    publish(fleet)
    with pytest.raises(
        ObjectStoreError, match=r"^publication\.object_store: s3://wattledger-absent/ledger: "
    ) as refusal:
        store(fleet)
    assert "\n" not in str(refusal.value)


# --- two publishers ---------------------------------------------------------------------------------------------------


def test_two_publishers_take_turns(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    book(fleet, {"2026-10-01": 1})
    publish(fleet)
    place = Place(target(fleet).url)
    monkeypatch.setenv("WATTLEDGER_LOCK_SECONDS", "0.3")
    with object_store_place.taking_turns(place, 1) as turn:
        with pytest.raises(ObjectStoreError, match=f"another publisher writes there \\(process {os.getpid()} of "):
            store(fleet)
        turn.confirm()
    monkeypatch.setenv("WATTLEDGER_LOCK_SECONDS", "20")
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(store(fleet).publication_id)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert Reader(fleet).daily() == {"2026-10-01": 1}
    assert list(place.files("publishers")) == []


def test_a_publisher_that_died_is_not_waited_for(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    book(fleet, {"2026-10-01": 1})
    publish(fleet)
    place = Place(target(fleet).url)
    # One of this machine whose process is gone; one of another machine that gives no sign any more.
    gone = os.fork()
    if gone == 0:
        os._exit(0)
    os.waitpid(gone, 0)
    host = json.loads(_sign(Turn(place)))["host"]
    place.put("publishers/a.json", json.dumps({"host": host, "pid": gone, "since": "2026-11-01"}).encode())
    place.put("publishers/b.json", json.dumps({"host": "elsewhere", "pid": 1, "since": "2026-11-01"}).encode())
    monkeypatch.setenv("WATTLEDGER_LOCK_SECONDS", "5")
    monkeypatch.setattr(object_store_place, "DEAD_SECONDS", 0.5)
    assert store(fleet).files == 4
    assert list(place.files("publishers")) == []
    # The other way round: who was taken for dead publishes nothing.
    book(fleet, {"2026-10-01": 5})
    publish(fleet)
    upload = Place.upload

    def lose_the_turn(self: Place, file: Path, path: str) -> None:
        upload(self, file, path)
        for sign in self.files("publishers"):
            self.remove(sign)

    monkeypatch.setattr(Place, "upload", lose_the_turn)
    with pytest.raises(ObjectStoreError, match="another publisher took this turn"):
        store(fleet)
    assert Reader(fleet).daily() == {"2026-10-01": 1}


def _sign(turn: Turn) -> bytes:
    turn.show()
    payload = turn.place.get(turn.sign)
    turn.place.remove(turn.sign)
    assert payload is not None
    return payload


def test_a_later_publication_and_another_fleet_are_refused(fleet: Fleet, tmp_path: Path) -> None:
    book(fleet, {"2026-10-01": 1})
    first = publish(fleet)
    publish(fleet)
    store(fleet)
    (fleet.published / "latest").unlink()
    (fleet.published / "latest").symlink_to(first.publication_id)
    with pytest.raises(ObjectStoreError, match="it has the later publication"):
        store(fleet)
    (tmp_path / "other").mkdir()
    other = tiny(tmp_path / "other").model_copy(update={"fleet": "other"})
    book(other, {"2026-10-01": 1})
    publish(other)
    with pytest.raises(ObjectStoreError, match="it holds the fleet 'tiny', expected 'other'"):
        object_store.publish(other, target(fleet))


# --- columns that come and go, names and values that are hostile ------------------------------------------------------


@pytest.mark.parametrize("tables", ["delta", "parquet"])
def test_an_added_column_is_added_and_a_removed_one_stays_for_a_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: str
) -> None:
    fleet = tiny(tmp_path, tables=tables)
    monkeypatch.setattr(publication, "code_version", lambda: "0.1.0")
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet)
    store(fleet)
    before = Reader(fleet)
    monkeypatch.setattr(publication, "code_version", lambda: "0.2.0")
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2}, more=NEXT_VERSION)
    publish(fleet)
    store(fleet)
    query = "select date::varchar, energy_joules, watts, coverage_ratio from t order by 1"
    expected = [("2026-10-01", 1.0, 5.0, None), ("2026-10-02", 2.0, 5.0, None)]
    ways = [Reader.parquet, Reader.delta] if tables == "delta" else [Reader.parquet]
    for way in ways:
        assert way(Reader(fleet), "marts.model_daily", query) == expected
        assert way(Reader(fleet), "marts.model_monthly", "select count(*) from t") == [(0,)]
        # A query of the old publication reads its own columns.
        assert way(before, "marts.model_daily", "select sum(coverage_ratio) from t") == [(2.0,)]
    entry = Reader(fleet).manifest["tables"]
    assert entry["marts.model_daily"]["columns"]["coverage_ratio"]["deprecated_in"] == "0.2.0"
    assert entry["marts.model_monthly"]["deprecated_in"] == "0.2.0"
    if tables == "delta":
        fields = json.loads(DeltaTable(str(local(fleet) / "tables/marts/model_daily")).schema().to_json())["fields"]
        (comment,) = [one["metadata"]["comment"] for one in fields if one["name"] == "coverage_ratio"]
        assert comment.startswith("Deprecated: model_daily has no such column since version 0.2.0; NULL.")
    monkeypatch.setattr(publication, "code_version", lambda: "0.2.7")
    publish(fleet)
    store(fleet)
    assert Reader(fleet).parquet("marts.model_daily", query) == expected
    # 0.3 drops both.
    monkeypatch.setattr(publication, "code_version", lambda: "0.3.0")
    publish(fleet)
    store(fleet)
    assert "marts.model_monthly" not in Reader(fleet).manifest["tables"]
    for way in ways:
        with pytest.raises(duckdb.BinderException, match="coverage_ratio"):
            way(Reader(fleet), "marts.model_daily", query)
    assert before.sums() == {3}
    # Its folder goes with the last publication that has it.
    monkeypatch.setattr(object_store, "KEPT", 2)
    publish(fleet)
    assert len(store(fleet, datetime.now(UTC) + timedelta(days=11)).forgotten) == 3
    assert [path for path in local(fleet).glob("tables/marts/model_monthly/**/*") if path.is_file()] == []
    assert Reader(fleet).parquet("marts.model_daily", "select count(*) from t") == [(2,)]


def test_hostile_names_and_values_arrive(fleet: Fleet) -> None:
    model = "<script>alert(1)</script>'; drop table x; --\u202e\U0001f525=HYPERLINK(" + "m" * 300
    book(
        fleet,
        {"2026-10-01": 1},
        more=r"""
        create table marts.odd
            (date date, text varchar, "select" double, j json, list integer[], big ubigint, "at" timestamp);
        insert into marts.odd values
            ('2026-10-01', 'nul' || chr(0) || 'x', 'infinity', '{"a": "\u0000"}', [1, null], 18446744073709551615,
                '2026-10-01 12:00:00'),
            (null, '', 'nan', null, null, null, null), ('0001-01-01', '\N', '-infinity', '1', [], 0, '1970-01-01');
        """,
        model=model,
    )
    publish(fleet)
    store(fleet)
    reader = Reader(fleet)
    for way in (reader.parquet, reader.delta):
        assert way("marts.model_daily", "select model from t") == [(model,)]
        columns = 'date::varchar, text, "select"::varchar, j, list, big::varchar, "at"::varchar'
        assert way("marts.odd", f"select {columns} from t order by 1") == [
            ("0001-01-01", r"\N", "-inf", "1", "[]", "0", "1970-01-01 00:00:00+00"),
            (
                "2026-10-01",
                "nul\0x",
                "inf",
                r'{"a": "\u0000"}',
                "[1,null]",
                "18446744073709551615",
                "2026-10-01 12:00:00+00",
            ),
            (None, "", "nan", None, None, None, None),
        ]
    assert files(fleet, "marts.odd") == ["0001-01", "2026-10", "none"]
    assert store(fleet).rows == {}


# --- other stores, other programs -------------------------------------------------------------------------------------


def test_any_file_system_of_fsspec_takes_parquet_and_the_manifest(tmp_path: Path) -> None:
    fleet = tiny(tmp_path, "memory://object-store-test/ledger", "parquet")
    try:
        book(fleet, {"2026-10-01": 1})
        publish(fleet)
        store(fleet)
        holding = Reader(fleet)
        book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
        publish(fleet, "2026-10-02", "2026-10-03")
        assert store(fleet).rows["marts.energy_ledger"] == 2
        assert Reader(fleet).sums() == {3}
        assert holding.sums() == {1}
    finally:
        fsspec.filesystem("memory").rm("/object-store-test", recursive=True)


def test_what_another_program_rewrote_is_put_right(fleet: Fleet) -> None:
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2})
    publish(fleet)
    store(fleet)
    holding = Reader(fleet)
    ledger = DeltaTable(str(local(fleet) / "tables/marts/energy_ledger"))
    ledger.optimize.compact()
    ledger.delete("date = '2026-10-01'")
    ledger.vacuum(dry_run=False)  # deletes nothing that is younger than the table's own retention
    assert holding.sums() == {3}
    book(fleet, {"2026-10-01": 1, "2026-10-02": 2, "2026-10-03": 3})
    publish(fleet)
    store(fleet)
    assert Reader(fleet).daily() == {"2026-10-01": 1, "2026-10-02": 2, "2026-10-03": 3}
    assert Reader(fleet).delta("marts.energy_ledger", "select sum(energy_joules) from t") == [(6,)]


def test_a_missing_package_and_a_wrong_key_are_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = tiny(tmp_path)
    book(fleet, {"2026-10-01": 1})
    publish(fleet)
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    with pytest.raises(
        ObjectStoreError, match=r"not installed. Install it \(pip install 'wattledger\[object-store\]'\), or set"
    ):
        store(fleet)
    with pytest.raises(FleetError, match=r"tables: delta reaches .* got sftp://\. Set tables: parquet"):
        tiny(tmp_path, "sftp://host/path")
    with pytest.raises(FleetError, match="tables: delta finds no URL with a % in it"):
        tiny(tmp_path, "s3://bucket/a%20b")
    with pytest.raises(FleetError, match="the URL holds a password") as refusal:
        tiny(tmp_path, "sftp://user:s3cret@host/path", "parquet")
    assert "s3cret" not in str(refusal.value)
    unknown = tiny(tmp_path, "nosuch://host/path", "parquet")
    with pytest.raises(ObjectStoreError, match="nosuch://host/path: no such kind of store"):
        store(unknown)
    (fleet.published / "latest").unlink()
    assert object_store.publish(fleet, target(fleet)) is None
