"""Who wrote a file of the spool, with which library, makes no difference to whoever reads it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from collectors.devices import spool_writer
from collectors.devices.spool import Spool
from collectors.devices.spool_collector import SPOOL_SCHEMA, SpoolCollector
from collectors.devices.spool_writer import SpoolWriter
from collectors.readings import Reading, labels_json
from collectors.samples import Family, Window
from collectors.series import SeriesRegister, series_id

# A file of the agent that wrote with pyarrow, of the rows and the metadata that `written` gives it too.
BY_PYARROW = Path(__file__).parent / "spool" / "written_by_pyarrow.parquet"
DAY = date(2026, 10, 14)
NOON_US = 1_791_979_200_000_000
BOARD = {"node": "gpu-é", "uuid": "GPU-1"}
FAMILIES = {
    "nvml_power_watts": Family("nvml_power_watts", "power", "nvml"),
    "page_reads_total": Family("page_reads_total", "tokens", "vllm"),
}


def written(folder: Path) -> Path:
    """The same file, as the agent of today writes it."""
    writer = SpoolWriter(Spool(folder), "gpu-a")
    watts = [
        Reading(NOON_US + second * 1_000_000, "nvml", "nvml_power_watts", labels_json(BOARD), 70.0 + second)
        for second in range(3)
    ]
    page = Reading(NOON_US + 123_456, "vllm", "page_reads_total", labels_json({"model": "m"}), 5.0)
    writer.add([*watts, page], {"python_info": 3}, {"other_watts": ['{"uuid":"GPU-2"}']})
    assert writer.flush()
    (file,) = folder.rglob("*.parquet")
    return file


@pytest.fixture(params=["pyarrow", "arro3"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "arro3":
        return written(tmp_path / "spool")
    path = tmp_path / "spool" / "host=gpu-a" / f"date={DAY}" / "1.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(BY_PYARROW.read_bytes())
    return path


def test_pyarrow_reads_the_same_schema_rows_and_metadata(file: Path) -> None:
    table = pq.read_table(file, partitioning=None)
    assert table.schema.equals(SPOOL_SCHEMA)
    assert table.schema.metadata == {
        b"wattledger_unknown_families": b'{"python_info": 3}',
        b"wattledger_unknown_labels": b'{"other_watts": ["{\\"uuid\\":\\"GPU-2\\"}"]}',
    }
    assert table.num_rows == 4
    assert table.to_pylist()[3] == {
        "observed_at": datetime(2026, 10, 14, 12, 0, 0, 123_456, tzinfo=UTC),
        "source_kind": "vllm",
        "metric": "page_reads_total",
        "labels": '{"model":"m"}',
        "value": 5.0,
    }


def test_duckdb_reads_the_same_types_and_rows(file: Path) -> None:
    source = f"read_parquet('{file}', hive_partitioning=false)"
    read = duckdb.sql(f"select * from {source}")
    assert list(map(str, read.types)) == ["TIMESTAMP WITH TIME ZONE", "VARCHAR", "VARCHAR", "VARCHAR", "DOUBLE"]
    row = duckdb.sql(f"select epoch_us(observed_at), metric, labels, value from {source}").fetchall()[2]
    assert row == (NOON_US + 2_000_000, "nvml_power_watts", '{"node":"gpu-é","uuid":"GPU-1"}', 72.0)


def test_a_landing_takes_the_same_samples(file: Path) -> None:
    window = Window.of_day(DAY)
    collector, register = SpoolCollector("agents", file.parents[2]), SeriesRegister("agents", window)
    rows = {
        (batch.stream, row["series_id"], row["observed_at"], row["value"])
        for batch in collector.collect(window, FAMILIES, register)
        for row in batch.samples.to_pylist()
    }
    board = series_id("agents", "nvml_power_watts", BOARD)
    page = series_id("agents", "page_reads_total", {"model": "m"})
    noon = datetime(2026, 10, 14, 12, tzinfo=UTC)
    assert rows == {
        ("power", board, noon, 70.0),
        ("power", board, noon.replace(second=1), 71.0),
        ("power", board, noon.replace(second=2), 72.0),
        ("tokens", page, noon.replace(microsecond=123_456), 5.0),
    }
    assert (collector.problems, collector.landed(window)) == ([], 1)
    assert register.unknown_table().to_pylist() == [{"metric": "python_info", "series": 3}]


def test_both_ends_of_the_spool_name_the_same_columns() -> None:
    # The agent cannot import the reader's schema, which is pyarrow's.
    assert spool_writer.SPOOL_SCHEMA.names == SPOOL_SCHEMA.names


def test_a_batch_of_every_odd_value_is_whole(tmp_path: Path) -> None:
    odd = [float("inf"), float("-inf"), float("nan"), -0.0, 5e-324, 1.7976931348623157e308]
    writer = SpoolWriter(Spool(tmp_path), "gpu-a")
    writer.add([Reading(NOON_US, "page", f"m{n}", '{"a":"\\u0000🔥"}', value) for n, value in enumerate(odd)])
    assert writer.flush()
    (path,) = tmp_path.rglob("*.parquet")
    table = pq.read_table(path, partitioning=None)
    assert list(map(repr, table["value"].to_pylist())) == list(map(repr, odd))
    assert table["labels"].to_pylist() == ['{"a":"\\u0000🔥"}'] * 6
