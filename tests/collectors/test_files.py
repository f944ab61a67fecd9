"""The files collector: shapes, times, bad rows, windows. Literal files in, literal samples out."""

import gzip
import math
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collectors.protocols.mapped_files import FileMapping
from collectors.protocols.sample_files import FilesCollector
from collectors.samples import Family, SourceError, Window, microseconds
from collectors.series import SeriesRegister
from tests import optional

DAY = Window(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 10, 2, tzinfo=UTC))
FAMILIES = {
    "wall_power_watts": Family("wall_power_watts", "power", "wall_meter"),
    "nvml_power_watts": Family("nvml_power_watts", "power", "nvml"),
    "output_tokens_total": Family("output_tokens_total", "tokens", "token_log"),
}
WALL = {"time": "at", "labels": {"node": "node"}, "values": {"wall_power_watts": "watts"}}


def collected(*mappings, window=DAY):
    """Rows (stream, metric, labels, microseconds into the window, value) as they arrive, and the register."""
    register = SeriesRegister("wall", window)
    batches = list(FilesCollector("wall", mappings).collect(window, FAMILIES, register))
    series = {row["series_id"]: row for row in register.series_table().to_pylist()}
    rows = []
    for stream, samples in batches:
        for sample in samples.to_pylist():
            one = series[sample["series_id"]]
            after_us = microseconds(sample["observed_at"]) - window.start_us
            rows.append((stream, one["metric"], one["labels"], after_us, sample["value"]))
    return rows, register


def watts(after_us, value, node="n1"):
    return ("power", "wall_power_watts", f'{{"node":"{node}"}}', after_us, value)


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_wide_csv_with_every_spelling_of_iso_time(tmp_path, ending):
    text = (
        "node,at,watts,extra\n"
        "n1,2026-10-01T00:00:00.877Z,2351.0,a\n"
        "n1,2026-10-01T02:00:01+02:00,2352,b\n"
        "n1,2026-10-01 00:00:02,2353,\n"
        'n2,"2026-10-01T00:00:03.123456789Z",1e3,"quoted, comma"\n'
        "n1,2026-09-30T17:00:04-07,+5,c"
    )
    path = tmp_path / f"power{ending}"
    path.write_bytes(gzip.compress(text.encode()) if ending == ".csv.gz" else text.encode())
    rows, _ = collected(FileMapping(str(path), **WALL))
    assert rows == [
        watts(877_000, 2351.0),
        watts(1_000_000, 2352.0),
        watts(2_000_000, 2353.0),
        watts(3_123_456, 1000.0, "n2"),
        watts(4_000_000, 5.0),
    ]


@pytest.mark.parametrize(
    ("unit", "first", "second"),
    [
        ("s", "1790812800.5", "1790812801"),
        ("ms", "1790812800500", "1790812801000.0"),
        ("us", "1790812800500000", "1790812801000000"),
    ],
)
def test_epoch_times_in_a_declared_unit(tmp_path, unit, first, second):
    path = written(tmp_path / "p.csv", f"node,at,watts\nn1,{first},1\nn1,{second},2\nn1,2026-10-01,3\n")
    rows, register = collected(FileMapping(path, **WALL, time_unit=unit))
    assert rows == [watts(500_000, 1.0), watts(1_000_000, 2.0)]
    assert register.chunk_table()["rejects"].to_pylist() == [1]


def test_the_window_is_half_open(tmp_path):
    lines = [
        "2026-09-30T23:59:59.999999Z,1",
        "2026-10-01T00:00:00Z,2",
        "2026-10-01T23:59:59.999999Z,3",
        "2026-10-02T00:00:00Z,4",
    ]
    path = written(tmp_path / "p.csv", "at,watts\n" + "\n".join(lines))
    rows, _ = collected(
        FileMapping(path, time="at", values={"wall_power_watts": "watts"}, constant_labels={"node": "n1"})
    )
    assert rows == [watts(0, 2.0), watts(86_399_999_999, 3.0)]


def test_bad_rows_are_counted_and_the_day_goes_on(tmp_path):
    text = (
        "node,at,watts\n"
        "n1,2026-10-01T00:00:00Z,100\n"
        "n1,2026-10-01T00:00:01Z,N/A\n"  # text: landed as NaN, a reject
        "n1,2026-10-01T00:00:02Z,-1.0\n"  # negative: landed, a reject
        "n1,yesterday,7\n"  # no time: a reject
        "n1,2026-02-30T00:00:00Z,7\n"  # no such day: a reject
        "n1,,7\n"  # no time: a reject
        "n1,2026-10-01T00:00:03Z,\n"  # nothing measured: no sample
        "n1,2026-10-01T00:00:04Z\n"  # a field short: unreadable
        "n1,2026-10-01T00:00:05Z,inf\n"  # landed, a reject
        "n1,2026-10-01T00:00:06Z, 106 \n"
    )
    rows, register = collected(FileMapping(written(tmp_path / "p.csv", text), **WALL))
    assert [row[3:] for row in rows if not math.isnan(row[4])] == [
        (0, 100),
        (2_000_000, -1),
        (5_000_000, math.inf),
        (6_000_000, 106),
    ]
    assert [row[3] for row in rows if math.isnan(row[4])] == [1_000_000]
    (chunk,) = register.chunk_table().to_pylist()
    assert (chunk["samples"], chunk["rejects"]) == (2, 6)
    # Without a time, or a field short.
    assert (register.rejects.rows, register.rejects.read) == (4, 6)
    assert [reason.partition("p.csv")[2] for reason in register.rejects.first] == [
        ": 'n1,2026-10-01T00:00:04Z' has 2 fields, expected 3",
        ", row 4: column 'at' holds 'yesterday', expected a time of this century",
        ", row 5: column 'at' holds '2026-02-30T00:00:00Z', expected a time of this century",
    ]


def test_rows_without_a_time_count_in_the_window_of_the_row_before(tmp_path):
    text = "node,at,watts\nn1,?,0\nn1,2026-10-01T00:00:00Z,1\nn1,?,2\nn1,2026-10-02T00:00:00Z,3\nn1,?,4\nn1,?,5\n"
    text += "n1,2026-10-03T00:00:00Z,6\nn1,2026-10-03T00:00:01Z,7\n"
    mapping = FileMapping(written(tmp_path / "p.csv", text), **WALL)
    next_day = Window(DAY.end_at, datetime(2026, 10, 3, tzinfo=UTC))
    assert collected(mapping)[1].chunk_table()["rejects"].to_pylist() == [2]
    assert collected(mapping, window=next_day)[1].chunk_table()["rejects"].to_pylist() == [2]


def test_a_series_with_only_untimed_rows_is_reported_without_times(tmp_path):
    text = "node,at,watts\nn1,2026-10-01T00:00:00Z,1\nn2,?,2\n"
    _, register = collected(FileMapping(written(tmp_path / "p.csv", text), **WALL))
    seen = {row["labels"]: row["first_seen_at"] for row in register.series_table().to_pylist()}
    assert seen == {'{"node":"n1"}': DAY.start_at, '{"node":"n2"}': None}


def long_table(labels):
    at = pa.array([datetime(2026, 10, 1, 0, 0, second, tzinfo=UTC) for second in (0, 0, 1, 1, 2)])
    return pa.table(
        {
            "metric": [
                "nvml_power_watts",
                "output_tokens_total",
                "nvml_power_watts",
                "output_tokens_total",
                "new_metric",
            ],
            "labels": labels,
            "observed_at": at.cast(pa.timestamp("us", "UTC")),
            "value": [300.5, 10.0, 301.5, 20.0, 1.0],
        }
    )


LONG = {"time": "observed_at", "metric": "metric", "labels_json": "labels", "value": "value"}
GPU, ENGINE = {"uuid": "GPU-a", "node": "n1"}, {"model": 'm"1', "engine": "e\\1"}


@pytest.mark.parametrize("shape", ["json", "dictionary", "map"])
def test_long_parquet_with_labels_as_json_or_map(tmp_path, shape):
    if shape == "map":
        maps = [list(one.items()) for one in (GPU, ENGINE, GPU, ENGINE, GPU)]
        labels = pa.array(maps, pa.map_(pa.string(), pa.string()))
    else:
        texts = ['{"node":"n1","uuid":"GPU-a"}', '{"engine":"e\\\\1","model":"m\\"1"}']
        labels = pa.array([texts[0], texts[1], texts[0], texts[1], texts[0]])
        labels = labels.dictionary_encode() if shape == "dictionary" else labels
    pq.write_table(long_table(labels), tmp_path / "spool.parquet")
    rows, register = collected(FileMapping(str(tmp_path / "spool.parquet"), **LONG))
    gpu, engine = '{"node":"n1","uuid":"GPU-a"}', '{"engine":"e\\\\1","model":"m\\"1"}'
    assert rows == [
        ("power", "nvml_power_watts", gpu, 0, 300.5),
        ("power", "nvml_power_watts", gpu, 1_000_000, 301.5),
        ("tokens", "output_tokens_total", engine, 0, 10.0),
        ("tokens", "output_tokens_total", engine, 1_000_000, 20.0),
    ]
    assert register.unknown_table().to_pylist() == [{"metric": "new_metric", "series": 1}]


def test_labels_that_are_no_json_are_unreadable_rows(tmp_path):
    pq.write_table(long_table(["{}", "oops", "{}", "[1]", "{}"]), tmp_path / "spool.parquet")
    rows, register = collected(FileMapping(str(tmp_path / "spool.parquet"), **LONG))
    assert [row[1:] for row in rows] == [
        ("nvml_power_watts", "{}", 0, 300.5),
        ("nvml_power_watts", "{}", 1_000_000, 301.5),
    ]
    assert (register.rejects.rows, register.rejects.read) == (2, 3)
    assert register.rejects.first[0].endswith("column 'labels' holds 'oops', expected a JSON object")


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns", "UTC"), pa.timestamp("ms"), pa.timestamp("s", "Europe/Madrid"), pa.int64(), pa.string()]
)
def test_parquet_row_groups_outside_the_window_are_not_read(tmp_path, kind, monkeypatch):
    start_s = DAY.start_us // 1_000_000
    seconds = np.arange(start_s - 86400, start_s + 2 * 86400, 3600)
    if kind == pa.string():
        times = pa.array([datetime.fromtimestamp(s, UTC).isoformat() for s in seconds.tolist()])
    else:
        times = pa.array(seconds) if kind == pa.int64() else pa.array(seconds).cast(pa.timestamp("s")).cast(kind)
    table = pa.table({"at": times, "node": ["n1"] * len(seconds), "watts": np.arange(len(seconds), dtype=np.int32)})
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=12)
    read = []
    iter_batches = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda self, *a, row_groups, **k: read.extend(row_groups) or iter_batches(self, *a, row_groups=row_groups, **k),
    )
    mapping = FileMapping(str(tmp_path / "p.parquet"), **WALL, time_unit="s" if kind == pa.int64() else None)
    rows, _ = collected(mapping)
    assert rows == [watts(hour * 3_600_000_000, 24.0 + hour) for hour in range(24)]
    assert read == (list(range(6)) if kind == pa.string() else [2, 3])


def test_several_label_columns_of_any_type_and_nulls(tmp_path):
    at = pa.array([DAY.start_at] * 4).cast(pa.timestamp("us", "UTC"))
    columns = {
        "at": at,
        "node": ["a", "a", None, "b"],
        "gpu": pa.array([0, 1, 0, None], pa.int8()),
        "watts": [1.0, 2.0, 3.0, None],
    }
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    mapping = FileMapping(
        str(tmp_path / "p.parquet"),
        time="at",
        labels={"node": "node", "gpu": "gpu"},
        values={"wall_power_watts": "watts"},
    )
    assert [(row[2], row[4]) for row in collected(mapping)[0]] == [
        ('{"gpu":"0","node":"a"}', 1.0),
        ('{"gpu":"1","node":"a"}', 2.0),
        ('{"gpu":"0"}', 3.0),
    ]


def test_a_glob_reads_its_files_by_name_and_none_is_an_error(tmp_path):
    for second in (2, 0, 1):
        written(tmp_path / f"part-{second}.csv", f"node,at,watts\nn1,2026-10-01T00:00:0{second}Z,{second}\n")
    rows, register = collected(FileMapping(str(tmp_path / "part-*.csv"), **WALL))
    assert rows == [watts(0, 0.0), watts(1_000_000, 1.0), watts(2_000_000, 2.0)]
    assert register.chunk_table()["out_of_order"].to_pylist() == [0]
    with pytest.raises(SourceError, match=r"/none-\*\.csv: there is no such file"):
        collected(FileMapping(str(tmp_path / "none-*.csv"), **WALL))


def test_errors_name_file_column_and_what_there_is(tmp_path):
    path = written(tmp_path / "p.csv", "node,time,watts\n")
    with pytest.raises(SourceError, match=r"p\.csv: no column 'at'; there are 'node', 'time', 'watts'"):
        collected(FileMapping(path, **WALL))
    pq.write_table(pa.table({"node": ["n"], "at": [5], "w": [1.0]}), tmp_path / "p.parquet")
    with pytest.raises(SourceError, match=r"p\.parquet: no column 'watts'; there are 'node', 'at', 'w'"):
        collected(FileMapping(str(tmp_path / "p.parquet"), **WALL))
    pq.write_table(pa.table({"node": ["n"], "at": [5], "watts": [1.0]}), tmp_path / "p.parquet")
    with pytest.raises(SourceError, match=r"p\.parquet: column 'at' is int64: set its time_unit"):
        collected(FileMapping(str(tmp_path / "p.parquet"), **WALL))
    with pytest.raises(SourceError, match=r"p\.txt: no column 'at'; there are 'x'"):
        collected(FileMapping(written(tmp_path / "p.txt", "x"), **WALL))


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("power", "170 W", 170),
        ("power (kW)", "0.17", 170),
        ("power [mW]", "170000", 170),
        ("power", "0.17 kW", 170),
        ("power [W]", "170 W", 170),
        ("power (total)", "170", 170),  # no unit: as it is
    ],
)
def test_the_unit_of_a_column_or_its_cells_is_that_of_its_numbers(tmp_path, column, cell, expected):
    """0.17 kW are 170 W: a column `power (kW)` was read as if it were watts."""
    path = written(tmp_path / "p.csv", f"node,at,{column}\nn1,2026-10-01T00:00:00Z,{cell}\n")
    mapping = FileMapping(path, time="at", labels={"node": "node"}, values={"wall_power_watts": column})
    ((*_, value),) = collected(mapping)[0]
    assert value == pytest.approx(expected)


def test_degrees_are_no_watts(tmp_path):
    path = written(tmp_path / "p.csv", "node,at,GPU 0\nn1,2026-10-01T00:00:00Z,61 °C\n")
    mapping = FileMapping(path, time="at", labels={"node": "node"}, values={"wall_power_watts": "GPU 0"})
    with pytest.raises(SourceError, match=r"column 'GPU 0' is in °C, expected watts\. Correct `values`"):
        collected(mapping)
    # One odd cell among others is a reject of its own.
    text = "node,at,GPU 0\n" + "".join(
        f"n1,2026-10-01T00:00:0{n}Z,{cell}\n" for n, cell in enumerate(("170", "61 °C", "171"))
    )
    rows, register = collected(replace(mapping, path=written(tmp_path / "one.csv", text)))
    assert [rows[0], rows[-1]] == [watts(0, 170.0), watts(2_000_000, 171.0)]
    assert register.chunk_table()["rejects"].to_pylist() == [1]


@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz", "p.parquet"])
def test_an_empty_or_broken_file_is_a_source_error(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(SourceError, match=name):
        collected(FileMapping(str(tmp_path / name), **WALL))


def test_a_file_with_a_header_only_is_an_empty_source(tmp_path):
    rows, register = collected(FileMapping(written(tmp_path / "p.csv", "node,at,watts\n"), **WALL))
    assert rows == []
    assert register.chunk_table().num_rows == 0


def test_a_mapping_is_wide_or_long():
    for wrong in ({}, {"values": {"a": "b"}, "metric": "m", "value": "v"}, {"metric": "m"}):
        with pytest.raises(ValueError, match=r"p\.csv: a file maps either values, or metric and value"):
            FileMapping("p.csv", time="at", **wrong)
    with pytest.raises(ValueError, match="time_unit is one of s, ms, us, ns, got 'minutes'"):
        FileMapping("p.csv", time="at", values={"a": "b"}, time_unit="minutes")


def test_memory_does_not_grow_with_the_file(tmp_path):
    """A file five times as long may not cost a tenth more of what Arrow and numpy hold at most."""
    peaks = []
    for rows in (400_000, 2_000_000):
        at = pa.array(DAY.start_us + np.arange(rows) * 40_000).view(pa.timestamp("us", "UTC"))
        table = pa.table(
            {
                "at": at,
                "node": pa.array(["n1"]).take(pa.array(np.zeros(rows, np.int64))),
                "watts": np.random.default_rng(0).random(rows),
            }
        )
        path = tmp_path / f"{rows}.parquet"
        pq.write_table(table, path, row_group_size=100_000)
        code = (
            "import sys, tracemalloc, pyarrow; sys.path.insert(0, '.'); from tests.collectors import test_files as t\n"
            # How far Arrow's threads run ahead of each other is up to the machine's load.
            "pyarrow.set_cpu_count(1)\n"
            f"mapping = t.FileMapping({str(path)!r}, **t.WALL)\n"
            "register = t.SeriesRegister('wall', t.DAY)\n"
            "tracemalloc.start()\n"
            "batches = t.FilesCollector('wall', [mapping]).collect(t.DAY, t.FAMILIES, register)\n"
            "n = sum(batch.samples.num_rows for batch in batches)\n"
            "print(n, tracemalloc.get_traced_memory()[1] + pyarrow.default_memory_pool().max_memory())"
        )
        root = Path(__file__).resolve().parents[2]
        done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
        count, peak = map(int, done.stdout.split())
        assert count == rows
        peaks.append(peak)
    assert peaks[1] < 1.1 * peaks[0]


@pytest.mark.needs("validation-data")
def test_the_mlperf_wall_meter_lands_whole():
    (data,) = optional.required("validation-data")
    path = data / "mlperf_v4_1_h200" / "power.csv"
    mapping = FileMapping(str(path), time="ts_utc", labels={"node": "node"}, values={"wall_power_watts": "watts"})
    window = Window(datetime(2024, 7, 17, tzinfo=UTC), datetime(2024, 7, 25, tzinfo=UTC))
    rows, register = collected(mapping, window=window)
    assert len(rows) == 29_769
    assert rows[0] == ("power", "wall_power_watts", '{"node":"H200-SXM-141GBx8_TRT_MaxQ"}', 24_163_877_000, 2351.0)
    (chunk,) = register.chunk_table().to_pylist()
    assert (chunk["samples"], chunk["rejects"], chunk["out_of_order"]) == (29_767, 2, 0)


def test_of_a_gzipped_file_that_broke_off_the_whole_lines_before_are_read(tmp_path):
    rows = [f"n1,2026-10-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z,{n}" for n in range(20_000)]
    whole = gzip.compress("\n".join(["node,at,watts", *rows, ""]).encode(), mtime=0)
    path = tmp_path / "p.csv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    found, register = collected(FileMapping(str(path), **WALL))
    assert [row[4] for row in found] == list(range(len(found)))
    assert 5_000 < len(found) < 15_000
    assert (register.rejects.rows, register.rejects.read) == (1, len(found))
    assert register.rejects.first == [
        f"{path}: cannot be read any further: Compressed file ended before the end-of-stream marker was reached"
    ]
    path.write_bytes(whole[:9])
    with pytest.raises(SourceError, match="cannot be read"):
        collected(FileMapping(str(path), **WALL))


def test_a_time_that_is_not_of_this_century_costs_its_row(tmp_path):
    """Arrow turns seconds that do not fit into microseconds into other times of today."""
    start_s = DAY.start_us // 1_000_000
    seconds = [start_s, start_s + (1 << 64) // 1_000_000, start_s + 60, 0, start_s + 120, start_s + 180]
    held = {"at": pa.array(seconds, pa.timestamp("s")), "node": ["n1"] * 6, "watts": [1.0, 2, 3, 4, 5, 6]}
    pq.write_table(pa.table(held), tmp_path / "p.parquet")
    rows, register = collected(FileMapping(str(tmp_path / "p.parquet"), **WALL))
    assert [row[4] for row in rows] == [1, 3, 5, 6]
    assert (register.rejects.rows, register.rejects.read) == (2, 4)
    assert register.chunk_table()["rejects"].to_pylist() == [2]


def test_a_cell_that_is_not_utf8_costs_itself(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(b"node,at,watts\nn1,2026-10-01T00:00:00Z,1\nn\xff,2026-10-01T00:00:01Z,2\nn1,\xff,3\nn1,\xff\n")
    rows, register = collected(FileMapping(str(path), **WALL))
    assert [(row[2], row[4]) for row in rows] == [('{"node":"n1"}', 1.0), ('{"node":"n\ufffd"}', 2.0)]
    assert register.rejects.rows == 2
