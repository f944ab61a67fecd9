"""Landing: the same rows twice, never less over more, the state before or after and nothing between."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.samples import SourceError, Window
from collectors.series import series_id
from pipelines.landing import healing, parquet_files, telemetry_landing
from pipelines.landing.lake import Lake, new_landing_id
from pipelines.landing.prefetch import ahead
from pipelines.landing.stores import LakeStore, Store, WarehouseStore
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from tests.given import CATALOGUE, ENERGY, TOKENS, WATTS, Samples, at, day

pytestmark = pytest.mark.sampled

GPU = {"UUID": "GPU-1", "Hostname": "n1"}


@dataclass
class Held:
    """A warehouse and the store of its samples; everything here must hold for each store."""

    connection: duckdb.DuckDBPyConnection
    store: Store

    def execute(self, query: str) -> duckdb.DuckDBPyConnection:
        healing.expose(self.connection, self.store)
        return self.connection.execute(query)


def opened(path: str, store: Store) -> Held:
    connection = database.connect(path)
    create_tables(connection)
    return Held(connection, store)


@pytest.fixture(params=["warehouse", "lake", "lake in an object store"])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Held]:
    stores = {
        "warehouse": WarehouseStore,
        "lake": lambda: LakeStore(Lake(tmp_path / "lake")),
        "lake in an object store": lambda: LakeStore(Lake(f"memory://{tmp_path.name}/lake")),
    }
    held = opened(str(tmp_path / "warehouse.duckdb"), stores[request.param]())
    yield held
    held.connection.close()


def land(held: Held, source: Samples, window: Window, **options: object) -> telemetry_landing.Landing:
    now = datetime(2026, 11, 1, tzinfo=UTC)
    return telemetry_landing.land(
        held.connection, source, window, CATALOGUE, run_id="run", store=held.store, now=lambda: now, **options
    )


def rows(held: Held, query: str) -> list[tuple]:
    return held.execute(query).fetchall()


def state(held: Held) -> dict[str, list[tuple]]:
    tables = ("power_samples", "token_samples", "series", "series_chunks")
    return {table: rows(held, f"select * from raw.{table} order by all") for table in tables}


def outcomes(held: Held) -> list[tuple]:
    return rows(held, "select outcome, rows, rows_before from raw.landings order by rowid")


def a_day_of_both_streams() -> Samples:
    source = Samples()
    source.put(WATTS, GPU, [(at(seconds=60 * i), 300.0 + i) for i in range(7)])
    source.put(TOKENS, {"model_name": "m"}, [(at(seconds=15 * i), 10.0 * i) for i in range(5)])
    return source


def test_a_day_lands_in_both_tables_with_its_series_and_chunks(held: Held) -> None:
    result = land(held, a_day_of_both_streams(), day(0))
    assert (result.outcome, result.rows, result.rows_before) == ("landed", 12, 0)
    gpu = series_id("cluster", "DCGM_FI_DEV_POWER_USAGE", GPU)
    engine = series_id("cluster", "vllm:generation_tokens_total", {"model_name": "m"})
    assert rows(held, "select series_id, count(*), sum(value) from raw.power_samples group by 1") == [(gpu, 7, 2121.0)]
    assert rows(held, "select series_id, count(*), sum(value) from raw.token_samples group by 1") == [
        (engine, 5, 100.0)
    ]
    assert rows(held, "select source, source_kind, metric, labels from raw.series order by metric") == [
        ("cluster", "dcgm_exporter", "DCGM_FI_DEV_POWER_USAGE", '{"Hostname":"n1","UUID":"GPU-1"}'),
        ("cluster", "vllm", "vllm:generation_tokens_total", '{"model_name":"m"}'),
    ]
    assert rows(
        held,
        "select samples, first_value, last_value, falls, rejects, longest_gap_seconds, typical_interval_seconds"
        " from raw.series_chunks order by samples",
    ) == [(5, 0.0, 40.0, 0, 0, 15.0, 15.0), (7, 300.0, 306.0, 0, 0, 60.0, 60.0)]


def test_landing_twice_gives_the_same_rows(held: Held) -> None:
    land(held, a_day_of_both_streams(), day(0))
    once = state(held)
    land(held, a_day_of_both_streams(), day(0))
    assert state(held) == once
    assert outcomes(held) == [("landed", 12, 0), ("unchanged", 12, 12)]


def test_invalid_samples_stay_in_raw_and_are_counted(held: Held) -> None:
    lies = [math.nan, math.inf, -1.0, 9223372036854775794.0, 250.0]
    land(held, Samples().put(WATTS, GPU, [(at(seconds=i), v) for i, v in enumerate(lies)]), day(0))
    assert rows(held, "select count(*), count(*) filter (where isnan(value)) from raw.power_samples") == [(5, 1)]
    assert rows(held, "select samples, rejects, first_value from raw.series_chunks") == [(1, 4, 250.0)]


def test_rows_that_overlap_as_they_come_are_counted_in_time_order(held: Held) -> None:
    """A clock jumps back at 180 s: at 90 s a fall in time order only, at 120 s a lower repeat, and a row of NaN."""
    came = [(0, 10.0), (60, 20.0), (120, 30.0), (180, 40.0), (90, 15.0), (120, 29.0), (150, math.nan), (240, 50.0)]
    land(held, Samples(batch_rows=2).put(ENERGY, GPU, [(at(seconds=s), v) for s, v in came]), day(0))
    assert rows(
        held,
        "select samples, first_value, last_value, falls, duplicates, out_of_order, rejects, longest_gap_seconds,"
        " typical_interval_seconds, steepest_rise_per_second from raw.series_chunks",
    ) == [(7, 10.0, 50.0, 1, 1, 1, 1, 60.0, 60.0, 0.5)]
    assert rows(held, "select count(*) from raw.power_samples") == [(8,)]


def test_fewer_rows_never_replace_more_unless_forced(held: Held) -> None:
    land(held, a_day_of_both_streams(), day(0))
    before = state(held)
    less = Samples().put(WATTS, GPU, [(at(), 300.0)])
    result = land(held, less, day(0))
    assert (result.outcome, result.is_answered) == ("refused_fewer", False)
    assert state(held) == before
    assert land(held, Samples(), day(0)).outcome == "refused_fewer"
    assert state(held) == before
    assert land(held, less, day(0), force=True).outcome == "landed"
    assert rows(held, "select count(*) from raw.power_samples") == [(1,)]
    assert rows(held, "select count(*) from raw.token_samples") == [(0,)]
    assert outcomes(held) == [
        ("landed", 12, 0),
        ("refused_fewer", 1, 12),
        ("refused_fewer", 0, 12),
        ("landed", 1, 12),
    ]


def test_a_source_that_breaks_half_way_leaves_the_old_rows(held: Held) -> None:
    land(held, a_day_of_both_streams(), day(0))
    before = state(held)
    broken = a_day_of_both_streams().put(WATTS, GPU, [(at(hours=5), 1.0)])
    broken.error, broken.fails_after = SourceError("http://user:secret@host/api?token=x", 503, "gone"), 2
    result = land(held, broken, day(0))
    assert (result.outcome, result.url, result.status, result.detail) == ("failed", "http://host/api", "503", "gone")
    assert state(held) == before
    assert rows(held, "select outcome, url, status, window_start_at, window_end_at from raw.landings")[1] == (
        "failed",
        "http://host/api",
        "503",
        at(),
        at(1),
    )


def test_a_collectors_own_defect_is_recorded_and_leaves_the_old_rows(held: Held) -> None:
    before = state(held)
    result = land(held, Samples(error=KeyError("labels")), day(0))
    assert (result.outcome, result.detail) == ("failed", "KeyError: 'labels'")
    assert state(held) == before


def test_a_sample_outside_the_window_is_a_defect_that_stops_the_landing(held: Held) -> None:
    source = Samples().put(WATTS, GPU, [(at(hours=2), 1.0)])
    collect = source.collect
    source.collect = lambda window, families, register: collect(day(0), families, register)
    with pytest.raises(ValueError, match="for window"):
        land(held, source, Window(at(), at(hours=1)))
    assert state(held)["power_samples"] == []


def test_two_sources_do_not_touch_each_other(held: Held) -> None:
    land(held, Samples("a").put(WATTS, GPU, [(at(), 1.0), (at(hours=1), 2.0)]), day(0))
    land(held, Samples("b").put(WATTS, GPU, [(at(), 3.0)]), day(0))
    land(held, Samples("a").put(WATTS, GPU, [(at(), 4.0), (at(hours=1), 5.0)]), day(0))
    assert rows(held, "select value from raw.power_samples order by value") == [(3.0,), (4.0,), (5.0,)]


def test_the_whole_day_replaces_its_head(held: Held) -> None:
    source = Samples().put(WATTS, GPU, [(at(1, seconds=600 * i), float(i)) for i in range(100)])
    land(held, source, Window(at(1), at(1, hours=1)), is_neighbour=True)
    assert rows(held, "select samples, chunk_end_at from raw.series_chunks") == [(6, at(1, hours=1))]
    land(held, source, day(1))
    assert rows(held, "select samples, chunk_end_at from raw.series_chunks") == [(100, at(2))]
    assert rows(held, "select count(*) from raw.power_samples") == [(100,)]


def test_a_window_over_midnight_is_refused(held: Held) -> None:
    with pytest.raises(ValueError, match="within one UTC day"):
        land(held, Samples(), Window(at(hours=23), at(1, hours=1)))


def test_unknown_families_are_listed_with_the_newest_count(held: Held) -> None:
    land(held, Samples(unknown={"new_metric": 3}), day(1))
    land(held, Samples(unknown={"new_metric": 9}), day(0))
    assert rows(held, "select source, metric, series, last_seen_at from raw.unknown_families") == [
        ("cluster", "new_metric", 3, at(2))
    ]


def test_a_spool_merges_and_forgets_only_after_the_commit(held: Held) -> None:
    morning = Samples(is_additive=True).put(ENERGY, GPU, [(at(hours=i), 1000.0 * i) for i in range(3)])
    evening = Samples(is_additive=True).put(ENERGY, GPU, [(at(hours=i), 1000.0 * i) for i in range(2, 6)])
    land(held, evening, day(0))
    land(held, morning, day(0))
    land(held, morning, day(0))
    assert rows(held, "select count(*), sum(value) from raw.power_samples") == [(6, 15000.0)]
    assert rows(
        held,
        "select samples, first_at, first_value, last_value, falls, duplicates, longest_gap_seconds,"
        " steepest_rise_per_second * 3600 from raw.series_chunks",
    ) == [(6, at(), 0.0, 5000.0, 0, 0, 3600.0, 1000.0)]
    assert (morning.forgotten, evening.forgotten) == ([day(0), day(0)], [day(0)])
    assert outcomes(held) == [("landed", 4, 0), ("landed", 3, 4), ("unchanged", 3, 6)]
    late = Samples(is_additive=True, error=SourceError("spool", None, "torn file"), fails_after=1)
    late.put(ENERGY, GPU, [(at(hours=i), 1.0) for i in range(10, 20)])
    assert land(held, late, day(0)).outcome == "failed"
    assert late.forgotten == []
    assert rows(held, "select count(*) from raw.power_samples") == [(6,)]


def test_a_merged_day_is_ordered_by_series_and_then_by_time(held: Held) -> None:
    """Two boards whose files came in turn: the samples of one board are side by side, which takes less room."""
    boards = ({"UUID": "GPU-1"}, {"UUID": "GPU-2"})
    for hours in ([0, 3], [3, 1], [2, 0]):
        came = Samples(is_additive=True)
        for board in boards:
            came.put(WATTS, board, [(at(hours=hour), 100.0 + hour) for hour in hours])
        land(held, came, day(0))
    values = [value for (value,) in rows(held, "select value from raw.power_samples")]
    assert values == [100.0, 101.0, 102.0, 103.0] * 2


def test_a_spool_that_holds_a_file_twice_lands_it_once(held: Held) -> None:
    twice = Samples(is_additive=True)
    for _ in range(2):
        twice.put(ENERGY, GPU, [(at(hours=i), 1000.0 * i) for i in range(4)])
    land(held, twice, day(0))
    assert rows(held, "select count(*), sum(value) from raw.power_samples") == [(4, 6000.0)]
    assert rows(held, "select samples, falls, duplicates from raw.series_chunks") == [(4, 0, 0)]


points = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from([0.0, 1.0, 5.0, 5.5, 9.0, math.nan, -1.0, 9.3e18])),
    min_size=1,
    max_size=40,
    unique_by=lambda point: point[0],
)


@pytest.mark.slow
@pytest.mark.parametrize("store", [WarehouseStore, lambda: LakeStore(Lake(f"memory://{new_landing_id()}"))])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(points, st.integers(0, 40))
def test_a_merged_day_has_the_facts_of_a_day_that_came_at_once(
    store: Callable[[], Store], points: list[tuple[int, float]], cut: int
) -> None:
    points = sorted(points)
    whole = Samples().put(ENERGY, GPU, [(at(seconds=t), v) for t, v in points])
    parts = [
        Samples(is_additive=True).put(ENERGY, GPU, [(at(seconds=t), v) for t, v in p])
        for p in (points[:cut], points[cut:])
    ]
    facts = []
    for sources in ([whole], parts):
        held = opened(":memory:", store())
        for source in sources:
            land(held, source, day(0))
        facts.append(rows(held, "select * exclude (out_of_order) from raw.series_chunks"))
        held.connection.close()
    assert facts[0] == facts[1]


def test_a_merged_day_of_many_samples_has_the_median_of_a_day_that_came_at_once() -> None:
    """A median is taken of 256 steps at most, evenly chosen: of steps that grow all day it is not the exact one."""
    times = list(accumulate(20 + 0.1 * n for n in range(1000)))
    points = [(at(seconds=second), float(n)) for n, second in enumerate(times)]
    parts = [Samples(is_additive=True).put(ENERGY, GPU, part) for part in (points[:400], points[350:])]
    found = []
    for sources in ([Samples().put(ENERGY, GPU, points)], parts):
        held = opened(":memory:", WarehouseStore())
        for source in sources:
            land(held, source, day(0))
        found.append(rows(held, "select samples, typical_interval_seconds from raw.series_chunks"))
        held.connection.close()
    assert found[0] == found[1]


def test_reading_ahead_keeps_order_and_stops_with_the_consumer() -> None:
    assert list(ahead(iter(range(100)))) == list(range(100))
    read: list[int] = []

    def source() -> Iterator[int]:
        for n in range(1000):
            read.append(n)
            yield n

    reader = ahead(source())
    assert next(reader) == 0
    reader.close()
    assert len(read) < 10
    assert [thread.name for thread in threading.enumerate() if thread.name == "reading-ahead"] == []

    def broken() -> Iterator[int]:
        yield 1
        raise OSError("torn")

    seen = []
    with pytest.raises(OSError, match="torn"):
        for item in ahead(broken()):
            seen.append(item)
    assert seen == [1]


def test_landing_does_not_depend_on_the_machines_time_zone(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        land(held, Samples().put(WATTS, GPU, [(at(hours=1), 1.0)]), day(0))
        assert rows(held, "select cast(observed_at as date)::varchar from raw.power_samples") == [("2026-10-01",)]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_memory_stays_flat_because_batches_are_inserted_as_they_come(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was handed over is free at once, not when the transaction ends: that was 5 GB for 10,000 GPUs."""
    monkeypatch.setattr(telemetry_landing, "GROUP_ROWS", 4000)
    monkeypatch.setattr(parquet_files, "ROW_GROUP_ROWS", 4000)
    sizes: list[int] = []
    allocated_bytes: list[int] = []
    insert = telemetry_landing._Unit._insert

    def counted(unit: telemetry_landing._Unit, table: str, group: list[pa.RecordBatch]) -> None:
        sizes.append(sum(batch.num_rows for batch in group))
        # Copies, as Arrow counts only what it allocated itself.
        insert(unit, table, [batch.take(pa.array(range(batch.num_rows))) for batch in group])
        allocated_bytes.append(pa.total_allocated_bytes())

    monkeypatch.setattr(telemetry_landing._Unit, "_insert", counted)
    seconds = [(at(seconds=i), 1.0) for i in range(60_000)]
    land(held, Samples(batch_rows=3000).put(WATTS, GPU, seconds), day(0))
    assert sizes == [6000] * 10
    assert allocated_bytes[-1] - allocated_bytes[1] < 2 * 24 * 6000
