"""Identity of series and the facts a register counts: literal cases, and properties against a naive reference."""

import itertools
import json
import math
import statistics
import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.cells import distinct
from collectors.facts import STEPS_KEPT
from collectors.runs import heads
from collectors.samples import SAMPLE_SCHEMA, Family, SourceError, Window, sample_batch
from collectors.series import SeriesRegister, series_id

DAY = Window(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 10, 2, tzinfo=UTC))
POWER = Family("DCGM_FI_DEV_POWER_USAGE", "power", "dcgm_exporter")
SECOND = 1_000_000
NAN, INF = math.nan, math.inf


def register_of(rows, cuts=()):
    """A register after (series name, second of the day, value) rows, cut into batches at the given positions."""
    register = SeriesRegister("cluster", DAY)
    ids = np.array([register.series_id(POWER, {"UUID": name}) for name, _, _ in rows], dtype=np.int64)
    times = np.array([DAY.start_us + round(second * SECOND) for _, second, _ in rows], dtype=np.int64)
    batch = sample_batch(ids, times, np.array([value for _, _, value in rows], dtype=np.float64))
    edges = [0, *sorted(cuts), len(rows)]
    for start, end in itertools.pairwise(edges):
        register.observe(batch.slice(start, end - start))
    return register


def facts_of(rows, cuts=()):
    """Facts of the only series, times as seconds of the day."""
    (chunk,) = register_of([("GPU-a", second, value) for second, value in rows], cuts).chunk_table().to_pylist()
    for name in ("first_at", "last_at"):
        chunk[name] = chunk[name] and (chunk[name] - DAY.start_at).total_seconds()
    return {name: chunk[name] for name in FACTS}


FACTS = (
    *("samples", "first_at", "first_value", "last_at", "last_value", "falls", "duplicates", "out_of_order", "rejects"),
    *("longest_gap_seconds", "typical_interval_seconds", "steepest_rise_per_second"),
)


def facts(*values):
    return dict(zip(FACTS, values, strict=True))


def test_identity_is_a_hash_of_source_metric_and_sorted_labels():
    assert series_id("cluster", "m", {"b": "2", "a": "1"}) == series_id("cluster", "m", {"a": "1", "b": "2"})
    # printf '["cluster","m",{"a":"1","b":"2"}]' | b2sum -l 64: a4ede1a1737fe228
    assert series_id("cluster", "m", {"a": "1", "b": "2"}) == -6562340998465199576
    assert series_id("cluster", "m", {"a": "1", "b": "2", "container": ""}) == -6562340998465199576
    assert series_id("cluster", "m", {"a": '1","b":"2'}) != -6562340998465199576
    assert series_id("other", "m", {"a": "1", "b": "2"}) == 6671805348740183661


def test_replica_labels_do_not_make_another_series():
    register = SeriesRegister("cluster", DAY, replica_labels=["prometheus_replica"])
    one = register.series_id(POWER, {"UUID": "GPU-a", "prometheus_replica": "0"})
    two = register.series_id(POWER, {"UUID": "GPU-a", "prometheus_replica": "1"})
    assert one == two == series_id("cluster", POWER.metric, {"UUID": "GPU-a"})
    register.observe(sample_batch(np.array([one, two]), np.array([DAY.start_us] * 2), np.array([1.0, 1.0])))
    assert register.series_table().to_pylist() == [
        {
            "series_id": one,
            "source": "cluster",
            "source_kind": "dcgm_exporter",
            "metric": "DCGM_FI_DEV_POWER_USAGE",
            "labels": '{"UUID":"GPU-a"}',
            "first_seen_at": DAY.start_at,
            "last_seen_at": DAY.start_at,
        }
    ]


def test_labels_are_compact_json_with_sorted_names():
    register = register_of([('Ä "quoted" \\ \n', 0, 1.0)])
    (labels,) = register.series_table()["labels"].to_pylist()
    assert labels == '{"UUID":"Ä \\"quoted\\" \\\\ \\n"}'
    assert json.loads(labels) == {"UUID": 'Ä "quoted" \\ \n'}


CASES = {
    "one sample": ([(5, 7.0)], facts(1, 5.0, 7.0, 5.0, 7.0, 0, 0, 0, 0, 0.0, None, None)),
    "steady": ([(0, 1.0), (15, 2.0), (30, 2.0)], facts(3, 0.0, 1.0, 30.0, 2.0, 0, 0, 0, 0, 15.0, 15.0, 1 / 15)),
    "a fall and a gap": (
        [(0, 1.0), (10, 5.0), (20, 0.0), (260, 9.0)],
        facts(4, 0.0, 1.0, 260.0, 9.0, 1, 0, 0, 0, 240.0, 10.0, 0.4),
    ),
    "invalid values are rejects and make no step": (
        [(0, 1.0), (1, NAN), (2, -1.0), (3, INF), (4, -INF), (5, 9223372036854775794.0), (6, 2.0)],
        facts(2, 0.0, 1.0, 6.0, 2.0, 0, 0, 0, 5, 6.0, 6.0, 1 / 6),
    ),
    "only invalid values": ([(0, NAN)], facts(0, None, None, None, None, 0, 0, 0, 1, None, None, None)),
    "the larger of two values of one time stands": (
        [(0, 3.0), (0, 2.0), (10, 1.0), (10, 4.0), (20, 5.0)],
        facts(5, 0.0, 3.0, 20.0, 5.0, 0, 2, 0, 0, 10.0, 10.0, 0.1),
    ),
    "a clock that jumps back": (
        [(0, 1.0), (10, 2.0), (5, 3.0), (15, 4.0)],
        facts(4, 0.0, 1.0, 15.0, 4.0, 0, 0, 1, 0, 10.0, 10.0, 0.1),
    ),
    "the later half first": (
        [(20, 3.0), (30, 4.0), (0, 9.0), (10, 10.0)],
        facts(4, 0.0, 9.0, 30.0, 4.0, 1, 0, 1, 0, 10.0, 10.0, 0.1),
    ),
    "only falls": ([(0, 9.0), (10, 4.0)], facts(2, 0.0, 9.0, 10.0, 4.0, 1, 0, 0, 0, 10.0, 10.0, -0.5)),
    "a value of the last time that another row raises": (
        [(0, 1.0), (10, 2.0), (10, 6.0), (20, 7.0)],
        facts(4, 0.0, 1.0, 20.0, 7.0, 0, 1, 0, 0, 10.0, 10.0, 0.5),
    ),
    "the steepest step lies between two files": (
        [(20, 30.0), (30, 31.0), (0, 1.0), (10, 2.0)],
        facts(4, 0.0, 1.0, 30.0, 31.0, 0, 0, 1, 0, 10.0, 10.0, 2.8),
    ),
    "written backwards": (
        [(40, 3.0), (20, 2.0), (10, 4.0), (0, 1.0)],
        facts(4, 0.0, 1.0, 40.0, 3.0, 1, 0, 3, 0, 20.0, 10.0, 0.3),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_facts_at_every_cut(case):
    rows, expected = CASES[case]
    assert facts_of(rows) == expected
    assert facts_of(rows, cuts=range(1, len(rows))) == expected
    for cut in range(1, len(rows)):
        assert facts_of(rows, cuts=[cut]) == expected


def test_seen_but_never_valid_is_still_seen():
    (row,) = register_of([("GPU-a", 3, NAN), ("GPU-a", 8, -1.0)]).series_table().to_pylist()
    assert (row["first_seen_at"].second, row["last_seen_at"].second) == (3, 8)


def test_registered_but_never_seen_is_not_reported():
    register = SeriesRegister("cluster", DAY)
    register.series_id(POWER, {"UUID": "GPU-a"})
    assert register.series_table().num_rows == 0
    assert register.chunk_table().num_rows == 0


def test_a_sample_of_an_unregistered_series_is_an_error():
    with pytest.raises(ValueError, match="not registered: 12345"):
        SeriesRegister("cluster", DAY).observe(sample_batch(np.array([12345]), np.array([0]), np.array([1.0])))


def test_unknown_families_with_the_most_series_ever_reported():
    register = SeriesRegister("cluster", DAY)
    register.unknown("vllm:new_total", 4)
    register.unknown("DCGM_FI_NEW", 8)
    register.unknown("vllm:new_total", 3)
    assert register.unknown_table().to_pylist() == [
        {"metric": "DCGM_FI_NEW", "series": 8},
        {"metric": "vllm:new_total", "series": 4},
    ]


def test_the_typical_interval_sees_the_whole_day_and_both_halves_of_an_alternation():
    # Two scrapers 1 s apart at 10 s: steps 1, 9, 1, 9 …; then from noon on one of them alone.
    morning = [s for start in range(0, 43200, 10) for s in (start, start + 1)]
    assert facts_of([(s, 1.0) for s in morning])["typical_interval_seconds"] == 1.0
    assert facts_of([(s, 1.0) for s in morning[1:]])["typical_interval_seconds"] == 9.0
    slow_from_two = [*range(0, 7200, 15), *range(7200, 86400, 60)]
    assert facts_of([(s, 1.0) for s in slow_from_two])["typical_interval_seconds"] == 60.0


def reference(rows):
    """Facts of one series, row by row, from all rows at once; exact whatever the order, except the median's choice."""
    kept = [(t, v) for t, v in rows if 0 <= v < 9.2e18]
    largest = {}
    for t, v in kept:
        largest[t] = max(v, largest.get(t, v))
    points = sorted(largest.items())
    steps = [b[0] - a[0] for a, b in itertools.pairwise(points)]
    stride = 1
    while math.ceil(len(steps) / stride) > STEPS_KEPT:
        stride *= 3
    return facts(
        len(kept),
        *(points[0] if points else (None, None)),
        *(points[-1] if points else (None, None)),
        sum(b[1] < a[1] for a, b in itertools.pairwise(points)),
        len(kept) - len(points),
        sum(b[0] < a[0] for a, b in itertools.pairwise(kept)),
        len(rows) - len(kept),
        max(steps, default=0.0) if points else None,
        statistics.median(steps[::stride]) if steps else None,
        max(((b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(points)), default=None),
    )


VALUES = st.sampled_from([0.0, 1.0, 2.0, 3.5, NAN, -1.0, INF, 9223372036854775792.0])
ROWS = st.lists(st.tuples(st.integers(0, 40).map(float), VALUES), min_size=1, max_size=40)


@given(ROWS, st.sets(st.integers(1, 39)))
@settings(max_examples=150, deadline=None)
def test_facts_do_not_depend_on_cuts(rows, cuts):
    assert facts_of(rows, [cut for cut in cuts if cut < len(rows)]) == facts_of(rows)


@given(ROWS, st.sets(st.integers(1, 39)))
@settings(max_examples=150, deadline=None)
def test_rows_in_time_order_have_exact_facts(rows, cuts):
    rows = sorted(rows, key=lambda row: row[0])
    assert facts_of(rows, [cut for cut in cuts if cut < len(rows)]) == reference(rows)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 8), VALUES), min_size=1, max_size=6), min_size=1, max_size=6),
    st.sets(st.integers(1, 39)),
)
@settings(max_examples=150, deadline=None)
def test_late_runs_that_do_not_overlap_have_exact_facts(pieces, cuts):
    runs = [sorted((10.0 * i + t, v) for t, v in piece) for i, piece in enumerate(pieces)]
    rows = [row for run in reversed(runs) for row in run]
    assert facts_of(rows, [cut for cut in cuts if cut < len(rows)]) == reference(rows)


@given(ROWS)
@settings(max_examples=150, deadline=None)
def test_overlapping_late_runs_keep_their_bounds_and_are_named(rows):
    register = register_of([("GPU-a", second, value) for second, value in rows])
    found, exact = facts_of(rows), reference(rows)
    for name in ("samples", "first_at", "first_value", "last_at", "last_value", "out_of_order", "rejects"):
        assert found[name] == exact[name]
    assert found["duplicates"] <= exact["duplicates"]
    assert (found["longest_gap_seconds"] or 0) >= (exact["longest_gap_seconds"] or 0)
    if not register.overlapping_series():
        assert found == exact


def test_a_clock_jump_is_named_as_overlapping_and_two_files_in_the_wrong_order_are_not():
    jump = register_of([("GPU-a", s, 1.0) for s in (0, 10, 20, 12, 22)])
    assert jump.overlapping_series() == [series_id("cluster", POWER.metric, {"UUID": "GPU-a"})]
    assert register_of([("GPU-a", s, 1.0) for s in (20, 30, 0, 10)]).overlapping_series() == []


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20).map(float), VALUES), min_size=1, max_size=60),
    st.sets(st.integers(1, 59)),
)
@settings(max_examples=150, deadline=None)
def test_series_interleaved_in_one_batch_are_kept_apart(rows, cuts):
    register = register_of(rows, [cut for cut in cuts if cut < len(rows)])
    together = {row["series_id"]: row for row in register.chunk_table().to_pylist()}
    assert len(together) == len({name for name, _, _ in rows})
    for name in {name for name, _, _ in rows}:
        (alone,) = register_of([row for row in rows if row[0] == name]).chunk_table().to_pylist()
        assert together[alone["series_id"]] == alone


def test_long_series_thin_their_steps_the_same_way_at_any_cut():
    seconds = np.cumsum(np.random.default_rng(7).integers(1, 30, 3000))
    rows = [(float(s), 1.0) for s in seconds]
    expected = reference(rows)
    assert facts_of(rows) == expected
    assert facts_of(rows, cuts=range(7, 3000, 7)) == expected
    assert facts_of(rows, cuts=range(1, 3000)) == expected


def test_series_that_come_late_leave_the_steps_of_the_first_ones_as_they_were(monkeypatch):
    monkeypatch.setattr("collectors.facts.MEDIANS_AT_ONCE", 7)
    register = SeriesRegister("cluster", DAY)
    seconds = np.cumsum([0, *[10] * 9, *[30] * 20, *[50] * 9])  # the median step is 30 s

    def see(name, seconds):
        ids = np.full(len(seconds), register.series_id(POWER, {"UUID": name}), dtype=np.int64)
        register.observe(sample_batch(ids, DAY.start_us + seconds * SECOND, np.ones(len(seconds))))

    for part in np.split(seconds, [10, 20, 30]):
        see("GPU-a", part)
    for n in range(200):
        see(f"GPU-{n}", np.array([n, n + 5]))
    by_id = {row["series_id"]: row["typical_interval_seconds"] for row in register.chunk_table().to_pylist()}
    assert by_id.pop(register.series_id(POWER, {"UUID": "GPU-a"})) == 30.0
    assert set(by_id.values()) == {5.0}


def test_a_landing_takes_so_many_series_and_no_more():
    register = SeriesRegister("cluster", DAY, most_series=2)
    for name in ("GPU-a", "GPU-b", "GPU-a"):
        register.series_id(POWER, {"UUID": name})
    with pytest.raises(SourceError, match=r"cluster: more than 2 series, now of DCGM_FI_DEV_POWER_USAGE"):
        register.series_id(POWER, {"UUID": "GPU-c"})


def test_chunk_table_has_the_window_and_the_types_of_the_raw_table():
    table = register_of([("GPU-a", 0, 1.0)]).chunk_table()
    at = pa.timestamp("us", tz="UTC")
    assert table.schema.field("series_id").type == pa.int64()
    assert [table.schema.field(n).type for n in ("chunk_start_at", "chunk_end_at", "first_at", "last_at")] == [at] * 4
    assert table["chunk_start_at"].to_pylist() == [DAY.start_at]
    assert table["chunk_end_at"].to_pylist() == [DAY.end_at]
    assert sample_batch(np.array([1]), np.array([0]), np.array([1.0])).schema == SAMPLE_SCHEMA


def test_windows_are_aware_and_not_empty():
    with pytest.raises(ValueError, match="aware"):
        Window(datetime(2026, 10, 1), datetime(2026, 10, 2))  # noqa: DTZ001 - the naive time is what is tested
    with pytest.raises(ValueError, match="ends after"):
        Window(DAY.end_at, DAY.end_at)
    assert str(DAY) == "[2026-10-01T00:00:00+00:00, 2026-10-02T00:00:00+00:00)"


def test_a_source_error_never_carries_a_secret():
    error = SourceError("https://bob:hunter2@prom.example:9090/api/v1/query?token=hunter3#x", 401, "refused")
    assert str(error) == "https://prom.example:9090/api/v1/query: HTTP 401: refused"
    assert "hunter" not in repr(error) + str(vars(error))


def test_importing_the_package_pulls_in_nothing_heavy():
    code = "import sys, collectors; print(sorted({'pyarrow', 'numpy', 'urllib3', 'pandas'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_run_begins_where_any_column_changes():
    first, second = np.array([1, 1, 1, 2, 1]), np.array([5, 5, 6, 6, 6])
    assert heads(first).tolist() == [0, 3, 4]
    assert heads(first, second).tolist() == [0, 2, 3, 4]
    assert heads(np.array([], np.int64)).tolist() == []


@pytest.mark.parametrize("columns", [["metric"], ["metric", "labels"], []])
def test_texts_of_rows_are_the_same_in_runs_and_interleaved(columns):
    metrics = ["power", "power", None, "energy", "power", "energy"]
    labels = ["a", "a", "a", "b", "b", None]
    rows = pa.record_batch({"metric": metrics, "labels": labels})
    codes, keys = distinct(rows, columns)
    assert [keys[code] for code in codes] == [tuple(row[name] for name in columns) for row in rows.to_pylist()]


def test_no_rows_have_no_texts():
    codes, _ = distinct(pa.record_batch({"metric": pa.array([], pa.string())}), ["metric"])
    assert codes.tolist() == []
