"""Rows of one time in a file: boards with a label each, with an order alone, or with neither."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collectors.protocols import rows_of_a_moment
from collectors.protocols.mapped_files import FileMapping
from collectors.protocols.sample_files import FilesCollector
from collectors.samples import Family, SourceError, Window, microseconds
from collectors.series import SeriesRegister

Found = dict[tuple[str, str], list[tuple[int, float]]]
DAY = Window(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 10, 2, tzinfo=UTC))
FAMILIES = {
    "nvml_power_watts": Family("nvml_power_watts", "power", "nvml"),
    "DCGM_FI_DEV_GPU_UTIL": Family("DCGM_FI_DEV_GPU_UTIL", "power", "dcgm_exporter"),
}
SMI = {
    "time": "timestamp",
    "constant_labels": {"node": "n1"},
    "values": {"nvml_power_watts": "power.draw [W]", "DCGM_FI_DEV_GPU_UTIL": "utilization.gpu [%]"},
}
HEADER = "timestamp, power.draw [W], utilization.gpu [%]\n"


def log(*moments: tuple[str, ...]) -> str:
    """nvidia-smi every second: the watts of each board of a moment."""
    return HEADER + "".join(
        f"2026/10/01 00:00:{second:02}.997, {watts} W, 0 %\n"
        for second, boards in enumerate(moments)
        for watts in boards
    )


def read(path: Path, text: str, **mapping: object) -> tuple[Found, SeriesRegister]:
    """(metric, labels) -> (second, value) of each sample, and the register."""
    path.write_text(text, encoding="utf-8")
    return collected(FileMapping(str(path), **{**SMI, **mapping}))


def collected(*mappings: FileMapping) -> tuple[Found, SeriesRegister]:
    register = SeriesRegister("smi", DAY)
    batches = list(FilesCollector("smi", mappings).collect(DAY, FAMILIES, register))
    series = {row["series_id"]: (row["metric"], row["labels"]) for row in register.series_table().to_pylist()}
    found: Found = {}
    for _, samples in batches:
        for sample in samples.to_pylist():
            seconds = (microseconds(sample["observed_at"]) - DAY.start_us) // 1_000_000
            found.setdefault(series[sample["series_id"]], []).append((seconds, sample["value"]))
    return found, register


def watts_of(found: Found) -> dict[str, list[tuple[int, float]]]:
    return {labels: samples for (metric, labels), samples in found.items() if metric == "nvml_power_watts"}


def test_boards_that_no_label_tells_apart_are_refused_with_what_to_log(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as refused:
        read(tmp_path / "smi.csv", log(("118.11", "118.68"), ("118.11", "118.68"), ("118.2", "118.2")))
    assert refused.value.reason == (
        "2 rows have the time '2026/10/01 00:00:00.997' and the same labels, expected one. The file has no column such"
        " as uuid or index: log it too (nvidia-smi --query-gpu=timestamp,uuid,…). If each moment has the same boards in"
        " the same order, write rows_are: boards"
    )


@pytest.mark.parametrize(("column", "named"), [(" uuid", "uuid"), (" index", "index"), (" pci.bus_id", "pci.bus_id")])
def test_the_refusal_names_the_column_that_is_not_mapped(tmp_path: Path, column: str, named: str) -> None:
    text = f"timestamp, power.draw [W], utilization.gpu [%],{column}\n" + "".join(
        f"2026/10/01 00:00:0{second}, {watts} W, 0 %, {name}\n"
        for second in (0, 1)
        for name, watts in (("a", 118), ("b", 119))
    )
    with pytest.raises(
        SourceError, match=rf"Column '{named}' is not mapped: add it under labels, \{{{named}: {named}\}}"
    ):
        read(tmp_path / "smi.csv", text)


def test_a_label_of_each_board_is_enough(tmp_path: Path) -> None:
    text = "timestamp, uuid, power.draw [W], utilization.gpu [%]\n" + "".join(
        f"2026/10/01 00:00:0{second}, GPU-{name}, {watts} W, 0 %\n"
        for second in (0, 1)
        for name, watts in (("a", 118), ("b", 119))
    )
    found, _ = read(tmp_path / "smi.csv", text, labels={"uuid": "uuid"})
    assert watts_of(found) == {
        '{"node":"n1","uuid":"GPU-a"}': [(0, 118.0), (1, 118.0)],
        '{"node":"n1","uuid":"GPU-b"}': [(0, 119.0), (1, 119.0)],
    }


def test_rows_that_are_boards_are_numbered_by_their_order(tmp_path: Path) -> None:
    # At 1 s both draw the same; they are still two boards.
    found, register = read(tmp_path / "smi.csv", log(("118", "119"), ("120", "120"), ("121", "122")), rows_are="boards")
    assert watts_of(found) == {
        '{"index":"0","node":"n1"}': [(0, 118.0), (1, 120.0), (2, 121.0)],
        '{"index":"1","node":"n1"}': [(0, 119.0), (1, 120.0), (2, 122.0)],
    }
    assert len(found) == 4  # two boards, watts and activity
    assert str(register.rejects) == ""


def test_a_moment_without_all_boards_is_rejected(tmp_path: Path) -> None:
    # At 1 s one of two is missing, and which is not known; the last moment is still being written.
    found, register = read(
        tmp_path / "smi.csv", log(("118", "119"), ("119",), ("121", "122"), ("7",)), rows_are="boards"
    )
    assert watts_of(found) == {
        '{"index":"0","node":"n1"}': [(0, 118.0), (2, 121.0)],
        '{"index":"1","node":"n1"}': [(0, 119.0), (2, 122.0)],
    }
    assert str(register.rejects) == (
        f"2 of 6 rows rejected: {tmp_path}/smi.csv, row 3: 1 rows have the time '2026/10/01 00:00:01.997', expected 2"
        f" boards; {tmp_path}/smi.csv, row 6: 1 rows have the time '2026/10/01 00:00:03.997', expected 2 boards"
    )


@pytest.mark.parametrize("rows", [3, 5, 7])
def test_a_moment_that_two_batches_share_is_whole(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "smi.parquet"
    seconds = [second for second in range(20) for _ in range(4)]
    pq.write_table(
        pa.table(
            {
                "at": pa.array([DAY.start_us + second * 1_000_000 for second in seconds], pa.timestamp("us", "UTC")),
                "host": ["n1"] * 80,
                "watts": [100.0 + n % 4 + n // 4 for n in range(80)],
            }
        ),
        path,
    )  # fmt: skip
    monkeypatch.setattr("collectors.protocols.file_batches.PARQUET_BATCH_ROWS", rows)
    found, register = collected(
        FileMapping(str(path), "at", labels={"node": "host"}, values={"nvml_power_watts": "watts"}, rows_are="boards")
    )
    assert watts_of(found) == {
        f'{{"index":"{n}","node":"n1"}}': [(second, 100.0 + n + second) for second in range(20)] for n in range(4)
    }
    assert str(register.rejects) == ""


def test_each_host_of_a_file_has_boards_of_its_own(tmp_path: Path) -> None:
    text = "timestamp, host, power.draw [W], utilization.gpu [%]\n" + "".join(
        f"2026/10/01 00:00:0{second}, {host}, {watts} W, 0 %\n"
        for second in (0, 1)
        for host, watts in (("n1", 118), ("n2", 300), ("n1", 119))
    )
    found, _ = read(tmp_path / "smi.csv", text, labels={"node": "host"}, constant_labels={}, rows_are="boards")
    assert {labels: samples[0][1] for labels, samples in watts_of(found).items()} == {
        '{"index":"0","node":"n1"}': 118.0,
        '{"index":"1","node":"n1"}': 119.0,
        '{"index":"0","node":"n2"}': 300.0,
    }


@pytest.mark.parametrize(
    "text",
    [
        # Each row twice, one moment of three read twice, and a metric in a row of its own.
        log(("118", "118"), ("119", "119"), ("120", "120")),
        log(("118", "119"), ("119",), ("120",)),
        HEADER + "".join(f"2026/10/01 00:00:0{s}, 118 W,\n2026/10/01 00:00:0{s},, 7 %\n" for s in range(3)),
    ],
    ids=["repeated rows", "one moment", "a row per metric"],
)
def test_what_only_looks_like_several_boards_is_read_as_one(tmp_path: Path, text: str) -> None:
    found, _ = read(tmp_path / "smi.csv", text)
    assert len(watts_of(found)) == 1


def test_a_file_without_identity_leaves_the_others(tmp_path: Path) -> None:
    for name, moments in (("a", [("1", "2"), ("1", "2")]), ("b", [("3",), ("4",)]), ("c", [("5",), ("6",)])):
        (tmp_path / f"{name}.csv").write_text(log(*moments), encoding="utf-8")
    found, register = collected(FileMapping(str(tmp_path / "*.csv"), **SMI))
    assert watts_of(found) == {'{"node":"n1"}': [(0, 3.0), (1, 4.0), (0, 5.0), (1, 6.0)]}
    assert str(register.rejects).startswith(f"1 of 5 rows rejected: {tmp_path}/a.csv: 2 rows have the time")


def test_a_column_of_days_is_no_moment_of_boards(tmp_path: Path) -> None:
    rows = "".join(f"2026-10-01 00:00:00, {n} W, 0 %\n" for n in range(rows_of_a_moment.MOST_BOARDS + 1))
    with pytest.raises(SourceError, match="1,025 rows have one time, expected at most 1,024 boards"):
        read(tmp_path / "smi.csv", HEADER + rows, rows_are="boards")


def test_an_index_that_is_mapped_leaves_nothing_to_number() -> None:
    with pytest.raises(ValueError, match="rows_are numbers the rows under the label 'index', which labels map too"):
        FileMapping("smi.csv", **SMI, labels={"index": "index"}, rows_are="boards")
