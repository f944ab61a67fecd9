"""A lake holds what the warehouse would: whole or not at all, also after kill -9; it raises when it cannot."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import duckdb
import fsspec
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pipelines.fleet.fleet_file import FleetError, load_fleet
from pipelines.fleet.places import PROJECT
from pipelines.landing import healing, parquet_files, stores, telemetry_landing
from pipelines.landing.lake import (
    CONTROL_TABLES,
    RAW_CONTROL_TABLES,
    SAMPLE_TABLES,
    Lake,
    LakeError,
    Manifest,
    export_control,
)
from pipelines.landing.stores import LakeStore
from pipelines.warehouse import database, due_dates, sealed_dates
from pipelines.warehouse.raw_tables import create_tables
from tests.books import Book
from tests.given import CATALOGUE, TOKENS, WATTS, Samples, at, day
from tests.models import MODELS
from tests.servers import s3_bucket

pytestmark = pytest.mark.sampled

NOW = datetime(2026, 11, 1, tzinfo=UTC)
FIRST = date(2026, 10, 1)
GPU = {"UUID": "GPU-1", "Hostname": "n1"}


def watts(*values: float, of: int = 0, **more: object) -> Samples:
    return Samples(**more).put(WATTS, GPU, [(at(of, seconds=60 * i), value) for i, value in enumerate(values)])


def land(connection: duckdb.DuckDBPyConnection, into: Lake, source: Samples, number: int = 0, **more: object) -> str:
    result = telemetry_landing.land(
        connection,
        source,
        day(number),
        CATALOGUE,
        run_id="run",
        store=LakeStore(into),
        now=lambda: NOW,
        **more,
    )
    return result.outcome


def heal(connection: duckdb.DuckDBPyConnection, of: Lake) -> list[tuple[str, str]]:
    return healing.heal(connection, LakeStore(of), CATALOGUE, run_id="next", now=NOW)


def values(of: Lake) -> list[float]:
    """The power samples that the manifests name, as another engine would read them."""
    files = of.sample_files("power_samples", date.min, date.max)
    return sorted(value for path in files for value in pq.read_table(path, partitioning=None)["value"].to_pylist())


def files_under(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def control(connection: duckdb.DuckDBPyConnection) -> dict[str, list[tuple]]:
    return {
        table: connection.execute(f"select * from raw.{table} order by all").fetchall()
        for table in ("series", "series_chunks", "lake_days")
    }


# --- where its files are ----------------------------------------------------------------------------------------------


def test_a_landing_is_files_by_date_and_source_and_one_manifest(
    tmp_path: Path, held: duckdb.DuckDBPyConnection
) -> None:
    into = Lake(tmp_path / "lake")
    source = watts(300.0, 301.0).put(TOKENS, {"model_name": "m"}, [(at(), 5.0)])
    assert land(held, into, source) == "landed"
    manifest = json.loads((tmp_path / "lake/raw/_landed/cluster/2026-10-01.json").read_text())
    name = manifest["landing_id"]
    assert manifest == {
        "source": "cluster",
        "date": "2026-10-01",
        "landing_id": name,
        "rows": 3,
        "end_at": "2026-10-02T00:00:00+00:00",
        "files": {
            table: [f"raw/{table}/date=2026-10-01/source=cluster/{name}-0.parquet"]
            for table in ("power_samples", "token_samples", "series_chunks", "series")
        },
    }
    assert files_under(tmp_path / "lake") == {
        "raw/_landed/cluster/2026-10-01.json",
        *(path for paths in manifest["files"].values() for path in paths),
    }
    assert into.landed() == {("cluster", FIRST): into.manifest("cluster", FIRST)}
    (power,) = into.sample_files("power_samples", FIRST, date(2026, 10, 2))
    assert power == str(tmp_path / "lake" / manifest["files"]["power_samples"][0])
    assert into.sample_files("power_samples", date(2026, 10, 2), date.max) == []
    parquet = pq.ParquetFile(power)
    assert [(column.name, column.physical_type) for column in parquet.schema] == [
        ("series_id", "INT64"),
        ("observed_at", "INT64"),
        ("value", "DOUBLE"),
    ]
    assert str(parquet.schema.column(1).logical_type).startswith(
        "Timestamp(isAdjustedToUTC=true, timeUnit=microseconds"
    )
    assert parquet.metadata.row_group(0).column(1).statistics.max == at(seconds=60)
    assert parquet.metadata.row_group(0).column(2).compression == "ZSTD"
    assert held.execute("select count(*) from raw.power_samples").fetchall() == [(0,)]


def test_a_replaced_day_leaves_only_the_files_of_its_manifest(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    into = Lake(tmp_path / "lake")
    land(held, into, watts(1.0, 2.0))
    before = files_under(tmp_path / "lake")
    assert land(held, into, watts(3.0)) == "refused_fewer"
    assert files_under(tmp_path / "lake") == before
    broken = watts(*[5.0] * 9, error=OSError("torn"), fails_after=2)
    assert land(held, into, broken) == "failed"
    assert files_under(tmp_path / "lake") == before
    assert land(held, into, watts(3.0, 4.0)) == "landed"
    after = files_under(tmp_path / "lake")
    assert values(into) == [3.0, 4.0]
    assert len(after) == len(before) == 4
    assert after & before == {"raw/_landed/cluster/2026-10-01.json"}
    assert land(held, into, Samples(), force=True) == "landed"
    assert values(into) == []
    assert into.manifest("cluster", FIRST).files["power_samples"] == ()


def test_a_spool_adds_files_and_merges_only_what_it_shares(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    into = Lake(tmp_path / "lake")
    land(held, into, watts(1.0, 2.0, is_additive=True))
    other = Samples(is_additive=True).put(WATTS, {"UUID": "GPU-2"}, [(at(), 9.0)])
    land(held, into, other)
    manifest = into.manifest("cluster", FIRST)
    assert (len(manifest.files["power_samples"]), manifest.rows) == (2, 3)
    land(held, into, watts(1.0, 2.0, 3.0, is_additive=True))
    manifest = into.manifest("cluster", FIRST)
    assert (len(manifest.files["power_samples"]), manifest.rows) == (1, 4)
    assert values(into) == [1.0, 2.0, 3.0, 9.0]
    assert len(files_under(tmp_path / "lake")) == 4


def test_files_and_row_groups_are_cut_and_memory_stays_bounded(
    tmp_path: Path, held: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "ROW_GROUP_ROWS", 4)
    monkeypatch.setattr(parquet_files, "FILE_ROWS", 12)
    monkeypatch.setattr(telemetry_landing, "GROUP_ROWS", 3)
    into = Lake(tmp_path / "lake")
    land(held, into, watts(*map(float, range(30))))
    files = into.sample_files("power_samples", FIRST, date.max)
    metadata = [pq.ParquetFile(path).metadata for path in files]
    groups = [[parquet.row_group(i).num_rows for i in range(parquet.num_row_groups)] for parquet in metadata]
    assert groups == [[4, 4, 4], [4, 4, 4], [4, 2]]
    arrived = [value for path in files for value in pq.read_table(path, partitioning=None)["value"].to_pylist()]
    assert arrived == list(map(float, range(30)))


def test_dates_that_are_forgotten_leave_nothing_and_do_not_come_back(
    tmp_path: Path, held: duckdb.DuckDBPyConnection
) -> None:
    lake = Lake(tmp_path / "lake")
    for number in range(3):
        land(held, lake, watts(100 + number, of=number), number)
    second = FIRST + timedelta(days=1)
    assert sorted(lake.dated_files(second)) == [FIRST]
    assert lake.bytes_of(lake.dated_files(second)[FIRST]) == sum(
        path.stat().st_size for path in (tmp_path / "lake").rglob("*2026-10-01*") if path.is_file()
    ) + sum(path.stat().st_size for path in (tmp_path / "lake").rglob("date=2026-10-01/**/*.parquet"))
    # As a crash leaves it: the warehouse has forgotten the date, and the lake has it still. Sealed, it is not healed.
    sealed_dates.seal(held, [FIRST], second)
    held.execute("delete from raw.lake_days where date = ?", [FIRST])
    assert heal(held, lake) == []
    lake.forget(second)
    assert not any("2026-10-01" in name for name in files_under(tmp_path / "lake"))
    assert values(lake) == [101.0, 102.0]
    assert heal(held, lake) == []


def test_duckdb_reads_exactly_the_live_files_of_the_dates(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    into = Lake(tmp_path / "o'lake")
    land(held, into, watts(1.0))
    land(held, into, watts(2.0, of=1), 1)
    (tmp_path / "o'lake/raw/power_samples/date=2026-10-01/source=cluster/left-0.parquet").write_bytes(b"torn")
    into.expose(held, "raw")
    assert held.execute("select value from raw.power_samples order by 1").fetchall() == [(1.0,), (2.0,)]
    assert held.execute("from raw.token_samples").fetchall() == []
    with closing(database.connect(":memory:")) as reader:
        reader.execute("create schema raw")
        into.expose(reader, "raw", date(2026, 10, 2), date(2026, 10, 3))
        assert reader.execute("from raw.power_samples").fetchall() == [
            (held.execute("select series_id from raw.series").fetchall()[0][0], at(1), 2.0)
        ]


def test_the_small_tables_go_to_a_reader_that_is_not_duckdb(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    into = Lake(tmp_path / "lake")
    land(held, into, watts(1.0))
    held.execute("insert into fleet.teams values ('prod', 'search')")
    found = export_control(held, into, "run-1", FIRST, date(2026, 10, 2))
    assert tuple(found) == CONTROL_TABLES
    assert found["raw.series"] == str(tmp_path / "lake/control/run-1/raw.series.parquet")
    assert pq.read_table(found["fleet.teams"]).to_pylist() == [{"namespace": "prod", "team": "search"}]
    assert pq.read_table(found["raw.series_chunks"])["last_at"].to_pylist() == [at()]
    assert pq.read_table(found["fleet.assignments"]).num_rows == 0
    into.remove_control("run-1")
    assert [path for path in files_under(tmp_path / "lake") if path.startswith("control")] == []


def test_requests_of_the_dates_and_of_windows_go_to_that_reader(
    tmp_path: Path, held: duckdb.DuckDBPyConnection
) -> None:
    """Who asked and how good it was is read of all requests of a date, a window's requests whenever they were."""
    for day_of_month, hour in ((1, 23), (2, 0), (2, 23), (3, 0), (5, 1)):
        held.execute(
            "insert into raw.requests by name select 'gateway' as source, ? as started_at",
            [datetime(2026, 10, day_of_month, hour, tzinfo=UTC)],
        )
    held.execute(
        "insert into raw.run_windows by name select 'w' as window_id, timestamptz '2026-10-05 00:00:00+00' as start_at,"
        " timestamptz '2026-10-05 02:00:00+00' as end_at"
    )
    found = export_control(held, Lake(tmp_path / "lake"), "run-1", date(2026, 10, 2), date(2026, 10, 3))
    started = pq.read_table(found["raw.requests"])["started_at"].to_pylist()
    assert sorted((at.day, at.hour) for at in started) == [(2, 0), (2, 23), (5, 1)]


# --- kill -9 ----------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pipelines.landing import lake, parquet_files, stores
from pipelines.warehouse import database
from tests.landing.test_lake import Lake, land, watts

def dies(*arguments, **named):
    os.kill(os.getpid(), signal.SIGKILL)

def then_dies(put):
    def do(*arguments):
        put(*arguments)
        dies()
    return do

moment = sys.argv[2]
if moment == "while it writes":
    parquet_files.Writer._finish = dies
elif moment == "before the manifest":
    lake.Lake.put_manifest = dies
elif moment == "while the manifest is written":
    os.fsync = lambda file, count=[0]: count.__setitem__(0, count[0] + 1) or (count[0] > 6 and dies())
elif moment == "after the manifest":
    lake.Lake.put_manifest = then_dies(lake.Lake.put_manifest)
elif moment == "after the commit":
    stores._LakeDay.settle = dies
land(database.connect(sys.argv[1] + "/warehouse.duckdb"), Lake(sys.argv[1] + "/lake"), watts(7.0, 8.0, 9.0))
"""


@pytest.mark.parametrize(
    ("moment", "left", "healed"),
    [
        ("while it writes", [1.0, 2.0], []),
        ("before the manifest", [1.0, 2.0], []),
        ("while the manifest is written", [1.0, 2.0], []),
        ("after the manifest", [7.0, 8.0, 9.0], [("cluster", "2026-10-01")]),
        ("after the commit", [7.0, 8.0, 9.0], []),
    ],
)
def test_a_landing_that_is_killed_leaves_the_old_day_or_the_new_one(
    tmp_path: Path, moment: str, left: list[float], healed: list[tuple[str, str]]
) -> None:
    into = Lake(tmp_path / "lake")
    with closing(database.connect(tmp_path / "warehouse.duckdb")) as held:
        create_tables(held)
        land(held, into, watts(1.0, 2.0))
        land(held, into, watts(5.0, of=1), 1)
    died = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), moment], cwd=PROJECT, check=False, capture_output=True, text=True
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert values(into) == sorted([*left, 5.0])
    with closing(database.connect(tmp_path / "warehouse.duckdb")) as held:
        assert heal(held, into) == healed
        assert held.execute(
            "select samples, last_value from raw.series_chunks where chunk_start_at = ?", [at()]
        ).fetchall() == [(len(left), left[-1])]
        assert heal(held, into) == []
        assert due_dates.dates_to_book(held, date.max, date.min) == (FIRST, date(2026, 10, 3))
        assert land(held, into, watts(7.0, 8.0, 9.0)) == ("landed" if len(left) == 2 else "unchanged")
        assert values(into) == [5.0, 7.0, 8.0, 9.0]
    assert len([path for path in files_under(tmp_path / "lake") if "2026-10-01" in path]) == 4


def test_a_lost_warehouse_is_rebuilt_from_the_lake(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    into = Lake(tmp_path / "lake")
    for number in range(3):
        land(held, into, watts(*[1.0] * (number + 1), of=number), number)
    with closing(database.connect(":memory:")) as fresh:
        create_tables(fresh)
        assert heal(fresh, into) == [("cluster", f"2026-10-0{n}") for n in (1, 2, 3)]
        assert control(fresh) == control(held)
        assert fresh.execute("select outcome, rows, detail from raw.landings order by rows").fetchall()[2] == (
            "landed",
            3,
            f"healed: the lake held landing {into.manifest('cluster', date(2026, 10, 3)).landing_id}"
            " and the warehouse did not",
        )
        assert due_dates.dates_to_book(fresh, date.max, date.min) == (FIRST, date(2026, 10, 4))


def test_a_lake_that_is_not_mounted_is_no_fleet_without_history(
    tmp_path: Path, held: duckdb.DuckDBPyConnection
) -> None:
    land(held, Lake(tmp_path / "lake"), watts(1.0))
    before = control(held)
    with pytest.raises(LakeError, match=r"holds nothing of cluster on 2026-10-01 .* is landing.path right"):
        heal(held, Lake(tmp_path / "elsewhere"))
    assert control(held) == before


def test_a_garbled_manifest_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lake/raw/_landed/cluster/2026-10-01.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(LakeError, match=r"2026-10-01.json is not a manifest: KeyError\('source'\)"):
        Lake(tmp_path / "lake").landed()


# --- a store that refuses ---------------------------------------------------------------------------------------------


class Refusing(MemoryFileSystem):
    """An object store with read rights alone, or one whose answer to a put gets lost."""

    protocol = "refusing"
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    puts_that_arrive: ClassVar[tuple[str, ...]] = ()
    cachable = False

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: object) -> None:
        if path.endswith(self.puts_that_arrive):
            super().pipe_file(path, value, mode=mode, **more)
        raise PermissionError(f"AccessDenied: {path}")


@pytest.fixture
def refusing() -> Iterator[type[Refusing]]:
    fsspec.register_implementation("refusing", Refusing, clobber=True)
    Refusing.store, Refusing.pseudo_dirs, Refusing.puts_that_arrive = {}, [""], ()
    yield Refusing


def test_a_put_whose_answer_is_lost_may_have_arrived(refusing: type[Refusing], held: duckdb.DuckDBPyConnection) -> None:
    into = Lake("refusing://bucket")
    with pytest.raises(PermissionError):
        land(held, into, watts(1.0))
    assert (into.landed(), control(held)["series_chunks"]) == ({}, [])
    refusing.puts_that_arrive = ("2026-10-01.json",)
    with pytest.raises(PermissionError):
        land(held, into, watts(1.0, 2.0))
    assert control(held)["series_chunks"] == []
    assert heal(held, into) == [("cluster", "2026-10-01")]
    into.expose(held, "raw")
    assert held.execute("select value from raw.power_samples order by 1").fetchall() == [(1.0,), (2.0,)]


FLEET = """
fleet: mine
period: {start: 2026-10-01, end: 2026-10-02}
sources:
  - {name: wall, kind: files, interval_seconds: 60, files: [{path: power.csv, time: at, labels: {node: node},
     values: {wall_power_watts: watts}}]}
"""


def fleet_file(folder: Path, landing_target: str) -> Path:
    lines = "".join(f"2026-10-01T{m // 60:02d}:{m % 60:02d}:00Z,n1,{100 + m % 7}\n" for m in range(1440))
    (folder / "power.csv").write_text("at,node,watts\n" + lines)
    path = folder / "fleet.yaml"
    path.write_text(FLEET + landing_target)
    return path


def environment(folder: Path) -> Mapping[str, str]:
    return {"WATTLEDGER_DATA": str(folder / "data")}


def run(path: Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WATTLEDGER_", "DAGSTER_"))}
    return subprocess.run(
        [sys.executable, "-m", "pipelines", "run", "--fleet", str(path)],
        env={**kept, **environment(path.parent)},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "landing: {target: lake}",
            "landing: expected {target: lake, path: lake/}, or {target: duckdb} without a path",
        ),
        ("landing: {path: lake/}", "landing: expected {target: lake, path: lake/}, or {target: duckdb} without a path"),
        ("landing: {target: lakes, path: lake/}", "landing.target: got 'lakes', expected 'duckdb' or 'lake'"),
        ("landing: {target: lake, path: ../../../lake}", "landing.path: got '../../../lake', must stay inside"),
        ("landing: {target: lake, paths: lake/}", "landing.paths: unknown key"),
    ],
)
def test_the_fleet_file_says_where_samples_land(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(FleetError) as wrong:
        load_fleet(fleet_file(tmp_path, line), environment(tmp_path))
    assert [found[: len(problem)] for found in wrong.value.problems] == [problem]


def test_the_target_is_one_line(tmp_path: Path) -> None:
    chosen = load_fleet(fleet_file(tmp_path, "landing: {target: lake, path: lake/}"), environment(tmp_path))
    assert stores.store_of(chosen).lake.root == str(tmp_path / "data/mine/lake")
    silent = load_fleet(fleet_file(tmp_path, ""), environment(tmp_path))
    assert isinstance(stores.store_of(silent), stores.WarehouseStore)
    remote = load_fleet(fleet_file(tmp_path, 'landing: {target: lake, path: "memory://b/x"}'), environment(tmp_path))
    assert stores.store_of(remote).lake.uri("raw") == "memory:///b/x/raw"


@pytest.mark.rest
def test_a_lake_that_cannot_be_written_is_reported_before_work_starts(
    tmp_path: Path, refusing: type[Refusing], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LakeError, match=r"^refusing://b: cannot be written: PermissionError: AccessDenied: "):
        Lake(f"{refusing.protocol}://b").probe()
    with s3_bucket(monkeypatch):
        for lake, problem in (
            ("s3://missing/x", "landing.path: s3://missing/x: cannot be written: "),
            ("s4://key:secret@b/x", "landing.path: s4://b/x: no such kind of store: ValueError: Protocol not known: "),
        ):
            fleet = load_fleet(
                fleet_file(tmp_path, f'landing: {{target: lake, path: "{lake}"}}'), environment(tmp_path)
            )
            with pytest.raises(FleetError) as wrong:
                stores.validate(fleet)
            assert [found[: len(problem)] for found in wrong.value.problems] == [problem]
    path = fleet_file(tmp_path, "landing: {target: lake, path: lake/}")
    (tmp_path / "data/mine").mkdir(parents=True)
    (tmp_path / "data/mine/lake").write_text("a file is in the way")
    refused = run(path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"landing.path: {tmp_path}/data/mine/lake: cannot be written: " in refused.stderr
    assert files_under(tmp_path / "data") == {"mine/lake"}


def test_a_fleet_does_not_change_its_store_unseen(tmp_path: Path, held: duckdb.DuckDBPyConnection) -> None:
    path = fleet_file(tmp_path, "")
    fleet = load_fleet(path, environment(tmp_path)).model_copy(update={"root": tmp_path})
    moved = load_fleet(fleet_file(tmp_path, "landing: {target: lake, path: lake/}"), environment(tmp_path)).model_copy(
        update={"root": tmp_path}
    )
    healing.expose(held, stores.store_of(moved))  # a run on a lake that stayed empty
    stores.validate(fleet)
    telemetry_landing.land(held, watts(1.0), day(0), CATALOGUE, run_id="run", now=lambda: NOW)
    stores.validate(fleet)
    with pytest.raises(FleetError, match=r"landing.target: this fleet's samples are in the warehouse, not in a lake"):
        stores.validate(moved)
    telemetry_landing.land(held, Samples(), day(0), CATALOGUE, run_id="run", now=lambda: NOW, force=True)
    land(held, Lake(tmp_path / "lake"), watts(1.0))
    stores.validate(moved)
    with pytest.raises(FleetError, match=r"landing.target: this fleet's samples are in a lake, not in the warehouse"):
        stores.validate(fleet)


def test_the_same_fleet_gives_the_same_marts_from_a_lake(tmp_path: Path) -> None:
    hashes = {}
    for name, target in (("plain", ""), ("lake", "landing: {target: lake, path: lake/}")):
        (tmp_path / name).mkdir()
        book = Book.of(fleet_file(tmp_path / name, target), tmp_path / name / "data")
        book.run()
        hashes[name] = book.hashes()
    assert hashes["lake"] == hashes["plain"]
    assert hashes["lake"]["energy_ledger"][0] == 288
    manifest = Manifest.of_json((tmp_path / "lake/data/mine/lake/raw/_landed/wall/2026-10-01.json").read_bytes())
    assert manifest.rows == 1440


def test_the_lake_has_each_table_that_models_on_spark_read() -> None:
    """Finance is built on DuckDB alone."""
    texts = [path.read_text(encoding="utf-8") for path in MODELS.rglob("*.sql") if path.parent.name != "finance"]
    read = {name for text in texts for name in re.findall(r"source\('raw', '(\w+)'\)", text)}
    assert read - {*RAW_CONTROL_TABLES, *SAMPLE_TABLES} == set()
