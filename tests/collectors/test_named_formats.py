"""Sample files of a named format: each is known by its content and lands with literal values, without a mapping.

The shapes are those that each tool documents or prints: `nvidia-smi --help-query-gpu`, `nvidia-smi dmon -h`, NVIDIA
DCGM's user guide (dcgmi dmon), AMD SMI's command line reference. The lines are invented. Real logs are booked in
tests/ledger/test_real_power_logs.py.
"""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from collectors.formats.named_formats import NamedFiles
from collectors.protocols.sample_files import FilesCollector
from collectors.samples import SourceError, Window, microseconds
from collectors.series import SeriesRegister
from pipelines.fleet import catalog

DAY = Window(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 10, 2, tzinfo=UTC))
SMI = (
    "timestamp, index, uuid, name, power.draw [W], utilization.gpu [%], memory.used [MiB], enforced.power.limit [W]\n"
    "2026/10/01 08:00:00.000, 0, GPU-a, NVIDIA H100, 100.00 W, 50 %, 2 MiB, 700.00 W\n"
    "2026/10/01 08:00:00.000, 1, GPU-b, NVIDIA H100, [N/A], [N/A], [N/A], [N/A]\n"
    "2026/10/01 08:00:10.000, 0, GPU-a, NVIDIA H100, 200.00 W, 100 %, 3 MiB, 700.00 W\n"
)
EIGHT = 8 * 3600


def landed(*files: NamedFiles, window: Window = DAY) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """(metric, labels) -> (seconds into the window, value) of each sample."""
    register = SeriesRegister("logs", window)
    batches = list(FilesCollector("logs", files).collect(window, catalog.families(), register))
    names = {row["series_id"]: (row["metric"], row["labels"]) for row in register.series_table().to_pylist()}
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _, samples in batches:
        for row in samples.to_pylist():
            after = (microseconds(row["observed_at"]) - window.start_us) / 1e6
            found.setdefault(names[row["series_id"]], []).append((after, row["value"]))
    return found


def watts(samples: dict[tuple[str, str], list[tuple[float, float]]]) -> dict[str, list[tuple[float, float]]]:
    """Labels -> samples of power."""
    return {labels: rows for (metric, labels), rows in samples.items() if "power" in metric and "limit" not in metric}


def joules(rows: list[tuple[float, float]]) -> float:
    """The trapezoid over samples."""
    return sum((t - s) * (a + b) / 2 for (s, a), (t, b) in pairwise(rows))


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def refusal(*files: NamedFiles) -> str:
    with pytest.raises(SourceError) as refused:
        landed(*files)
    return refused.value.reason


def test_nvidia_smi_has_its_units_in_the_header_and_in_the_cells(tmp_path: Path) -> None:
    board = '{"device_type":"NVIDIA H100","index":"0","node":"n1","uuid":"GPU-a"}'
    found = landed(NamedFiles(written(tmp_path / "gpu.log", SMI), "nvidia_smi", {"node": "n1"}))
    assert {key: rows for key, rows in found.items() if key[1] == board} == {
        ("nvml_power_watts", board): [(EIGHT, 100.0), (EIGHT + 10, 200.0)],
        ("nvml_power_limit_watts", board): [(EIGHT, 700.0), (EIGHT + 10, 700.0)],
        ("nvml_utilization_gpu_ratio", board): [(EIGHT, 0.5), (EIGHT + 10, 1.0)],
        ("nvml_memory_used_bytes", board): [(EIGHT, 2097152.0), (EIGHT + 10, 3145728.0)],
    }
    # (100 W + 200 W) / 2 for 10 s; the board with [N/A] has no sample, not a sample of 0.
    assert joules(found["nvml_power_watts", board]) == 1500.0
    assert {labels for _, labels in found} == {board}


def packed(text: str, how: str) -> bytes:
    """The bytes of a text as a shell or a tool may leave them."""
    if how == "gz":
        return gzip.compress(text.encode())
    if how == "zst":
        return bytes(pa.Codec("zstd").compress(text.encode(), asbytes=True))
    if how == "UTF-16":
        return text.encode("utf-16")
    if how == "BOM":
        return b"\xef\xbb\xbf" + text.encode()
    return text.replace("\n", "\r\n").encode() if how == "Windows" else text.encode()


@pytest.mark.parametrize("how", ["plain", "gz", "zst", "BOM", "Windows", "UTF-16"])
@pytest.mark.parametrize("name", ["gpu.csv", "gpu.txt"])
def test_a_file_is_known_by_its_content_however_it_is_packed(tmp_path: Path, name: str, how: str) -> None:
    (tmp_path / name).write_bytes(packed(SMI, how))
    (rows,) = watts(landed(NamedFiles(str(tmp_path / name), "nvidia_smi"))).values()
    assert joules(rows) == 1500.0


def test_without_units_and_with_another_order_of_columns(tmp_path: Path) -> None:
    rows = "150.5, GPU-a, 2026-10-01T08:00:00+02:00\n151.5, GPU-a, 2026-10-01T08:00:01+02:00\n"
    text = f"power.draw, uuid, timestamp\n{rows}"
    found = landed(NamedFiles(written(tmp_path / "gpu.csv", text), "nvidia_smi"))
    assert watts(found) == {'{"uuid":"GPU-a"}': [(6 * 3600, 150.5), (6 * 3600 + 1, 151.5)]}


def test_units_in_the_cells_alone_and_milliwatts(tmp_path: Path) -> None:
    text = "timestamp,uuid,power.draw\n2026-10-01 08:00:00,GPU-a,150500 mW\n2026-10-01 08:00:01,GPU-a,151500 mW\n"
    found = landed(NamedFiles(written(tmp_path / "gpu.csv", text), "nvidia_smi"))
    assert watts(found) == {'{"uuid":"GPU-a"}': [(EIGHT, 150.5), (EIGHT + 1, 151.5)]}


def test_average_power_counts_where_the_board_reports_no_other(tmp_path: Path) -> None:
    text = "timestamp, uuid, power.draw [W], power.draw.average [W]\n2026/10/01 08:00:00.000, GPU-a, [N/A], 80.00 W\n"
    found = landed(NamedFiles(written(tmp_path / "gpu.csv", text), "nvidia_smi"))
    assert watts(found) == {'{"uuid":"GPU-a"}': [(EIGHT, 80.0)]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1790841600", "1790841601.5"),
        ("1790841600000", "1790841601500"),
        ("1790841600000000", "1790841601500000"),
        ("1790841600000000000", "1790841601500000000"),
        ("2026/10/01 08:00:00.000", "2026/10/01 08:00:01.500"),
        ("2026-10-01T08:00:00Z", "2026-10-01T08:00:01.5Z"),
        ("2026-10-01T10:00:00+02:00", "2026-10-01 01:00:01.5-07:00"),
    ],
)
def test_times_in_every_form(tmp_path: Path, first: str, second: str) -> None:
    text = f"timestamp,uuid,power.draw [W]\n{first},GPU-a,1\n{second},GPU-a,2\n"
    found = landed(NamedFiles(written(tmp_path / "gpu.csv", text), "nvidia_smi"))
    assert watts(found) == {'{"uuid":"GPU-a"}': [(EIGHT, 1.0), (EIGHT + 1.5, 2.0)]}


def test_a_clock_in_a_stated_zone(tmp_path: Path) -> None:
    path = written(tmp_path / "gpu.csv", SMI)
    (rows,) = watts(landed(NamedFiles(path, "nvidia_smi", time_zone="America/Los_Angeles"))).values()
    assert [at for at, _ in rows] == [EIGHT + 7 * 3600, EIGHT + 7 * 3600 + 10]


def test_the_hour_that_a_clock_has_twice_is_not_guessed(tmp_path: Path) -> None:
    # Berlin's clocks go from 03:00 back to 02:00 at 01:00 UTC on 2026-10-25.
    rows = "".join(f"2026/10/25 {at}, GPU-a, {n} W\n" for n, at in enumerate(("01:59:59", "02:30:00", "03:00:00")))
    path = written(tmp_path / "gpu.csv", f"timestamp, uuid, power.draw [W]\n{rows}")
    day = Window(datetime(2026, 10, 24, tzinfo=UTC), datetime(2026, 10, 26, tzinfo=UTC))
    (found,) = watts(landed(NamedFiles(path, "nvidia_smi", time_zone="Europe/Berlin"), window=day)).values()
    assert found == [(86_400 - 1, 0.0), (86_400 + 2 * 3600, 2.0)]


def test_times_that_count_from_a_start(tmp_path: Path) -> None:
    path = written(tmp_path / "gpu.csv", "timestamp,uuid,power.draw\n0.0,GPU-a,100\n0.5,GPU-a,110\n")
    assert refusal(NamedFiles(path, "nvidia_smi")).startswith("column 'timestamp' counts from a start: add starts_at")
    at = datetime(2026, 10, 1, 10, tzinfo=timezone(timedelta(hours=2)))
    found = landed(NamedFiles(path, "nvidia_smi", starts_at=at))
    assert watts(found) == {'{"uuid":"GPU-a"}': [(EIGHT, 100.0), (EIGHT + 0.5, 110.0)]}


def test_rows_without_a_name_are_the_boards_of_the_host(tmp_path: Path) -> None:
    moments = "".join(f"2026/10/01 08:00:0{n}, {10 + n} W\n2026/10/01 08:00:0{n}, {20 + n} W\n" for n in range(3))
    path = written(tmp_path / "gpu.csv", f"timestamp, power.draw [W]\n{moments}")
    assert watts(landed(NamedFiles(path, "nvidia_smi", {"node": "n1"}))) == {
        '{"index":"0","node":"n1"}': [(EIGHT + n, 10.0 + n) for n in range(3)],
        '{"index":"1","node":"n1"}': [(EIGHT + n, 20.0 + n) for n in range(3)],
    }


DMON = (
    "#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem     fb\n"
    "#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %     MB\n"
    " 20261001   08:00:00      0    100     43      -     50      0      2\n"
    " 20261001   08:00:00      1      -     43      -      -      0      2\n"
    "#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem     fb\n"
    "#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %     MB\n"
    " 20261001   08:00:10      0    200     43      -    100      0      2\n"
)


def test_dmon_of_nvidia_smi(tmp_path: Path) -> None:
    found = landed(NamedFiles(written(tmp_path / "dmon.log", DMON), "nvidia_smi_dmon", {"node": "n1"}))
    board = '{"index":"0","node":"n1"}'
    assert found["nvml_power_watts", board] == [(EIGHT, 100.0), (EIGHT + 10, 200.0)]
    assert joules(found["nvml_power_watts", board]) == 1500.0
    assert found["nvml_utilization_gpu_ratio", board] == [(EIGHT, 0.5), (EIGHT + 10, 1.0)]
    assert found["nvml_memory_used_bytes", board] == [(EIGHT, 2097152.0), (EIGHT + 10, 2097152.0)]
    assert ("nvml_power_watts", '{"index":"1","node":"n1"}') not in found


def test_dmon_without_a_time_counts_its_rows(tmp_path: Path) -> None:
    text = "# gpu    pwr\n# Idx      W\n    0    100\n    1    300\n    0    200\n    1    300\n"
    path = written(tmp_path / "dmon.log", text)
    assert refusal(NamedFiles(path, "nvidia_smi_dmon")).startswith("its rows have no time: add starts_at")
    found = landed(NamedFiles(path, "nvidia_smi_dmon", starts_at=DAY.start_at, step_seconds=5))
    assert watts(found) == {'{"index":"0"}': [(0, 100), (5, 200)], '{"index":"1"}': [(0, 300), (5, 300)]}


def test_dmon_with_times_of_the_day_goes_over_midnight(tmp_path: Path) -> None:
    text = "#Time        gpu    pwr\n#HH:MM:SS    Idx      W\n 23:59:59      0    100\n 00:00:01      0    200\n"
    path = written(tmp_path / "dmon.log", text)
    two_days = Window(DAY.start_at, DAY.end_at + timedelta(days=1))
    start = datetime(2026, 10, 1, 23, 59, 58, tzinfo=UTC)
    found = landed(NamedFiles(path, "nvidia_smi_dmon", starts_at=start), window=two_days)
    assert watts(found) == {'{"index":"0"}': [(86_399, 100), (86_401, 200)]}


def test_dcgmi_dmon(tmp_path: Path) -> None:
    text = (
        "#Entity   POWER      TOTEC      GRACT\n"
        "ID            W         mJ\n"
        "GPU 1     100.5    1000000      0.500\n"
        "GPU 0     200.5    5000000        N/A\n"
        "GPU 1     100.5    1150000      0.500\n"
        "GPU 0     200.5    5300000      0.250\n"
    )
    files = NamedFiles(
        written(tmp_path / "dcgmi.txt", text), "dcgmi_dmon", {"node": "n1"}, starts_at=DAY.start_at, step_seconds=1.5
    )
    found = landed(files)
    first, second = '{"gpu":"0","node":"n1"}', '{"gpu":"1","node":"n1"}'
    assert found["DCGM_FI_DEV_POWER_USAGE", first] == [(0, 200.5), (1.5, 200.5)]
    # Millijoules: 150 J in 1.5 s of board 1, 300 J of board 0.
    assert found["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", second] == [(0, 1e6), (1.5, 1.15e6)]
    assert found["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", first] == [(0, 5e6), (1.5, 5.3e6)]
    assert found["DCGM_FI_PROF_GR_ENGINE_ACTIVE", first] == [(1.5, 0.25)]


def test_dcgmi_dmon_with_a_time_before_each_line(tmp_path: Path) -> None:
    text = (
        "2026-10-01T08:00:00Z #Entity   POWER\n2026-10-01T08:00:00Z ID   W\n"
        "2026-10-01T08:00:01Z GPU 0   100.5\n2026-10-01T08:00:02Z GPU 0   101.5\n"
    )
    found = landed(NamedFiles(written(tmp_path / "dcgmi.txt", text), "dcgmi_dmon"))
    assert found == {("DCGM_FI_DEV_POWER_USAGE", '{"gpu":"0"}'): [(EIGHT + 1, 100.5), (EIGHT + 2, 101.5)]}


def test_amd_smi_as_csv(tmp_path: Path) -> None:
    text = (
        "timestamp,gpu,xcp,power_usage,gfx,vram_used,total_energy_consumption\n"
        "1790841600,0,0,300,90,1024,50.5\n"
        "1790841600,0,1,N/A,N/A,N/A,N/A\n"
        "1790841602,0,0,310,90,1024,660.5\n"
    )
    found = landed(NamedFiles(written(tmp_path / "amd.csv", text), "amd_smi", {"node": "m1"}))
    board = '{"gpu_id":"0","node":"m1"}'
    assert found["gpu_package_power", board] == [(EIGHT, 300.0), (EIGHT + 2, 310.0)]
    # Joules in the file, microjoules by the exporter's name: 610 J in 2 s.
    assert found["gpu_energy_consumed", board] == [(EIGHT, 50.5e6), (EIGHT + 2, 660.5e6)]
    assert found["gpu_gfx_activity", board] == [(EIGHT, 90.0), (EIGHT + 2, 90.0)]


def test_amd_smi_as_json(tmp_path: Path) -> None:
    text = (
        '[{"timestamp": 1790841600, "gpu": 0, "power": {"socket_power": {"value": 300, "unit": "W"}}},'
        ' {"timestamp": 1790841602, "gpu": 0, "power": {"socket_power": {"value": 310, "unit": "W"}}}]'
    )
    found = landed(NamedFiles(written(tmp_path / "amd.json", text), "amd_smi"))
    assert watts(found) == {'{"gpu_id":"0"}': [(EIGHT, 300.0), (EIGHT + 2, 310.0)]}


@pytest.mark.parametrize(
    ("text", "named", "reason"),
    [
        ("node,at,watts\nn1,2026-10-01,5\n", "nvidia_smi", "is not of the format nvidia_smi; it begins with"),
        (DMON, "nvidia_smi", "is not of the format nvidia_smi, but of nvidia_smi_dmon"),
        ("index, power.draw [W]\n0, 20 W\n", "nvidia_smi", "is of the format nvidia_smi and has no column timestamp"),
        ("timestamp, utilization.gpu [%]\n2026/10/01 08:00:00, 5 %\n", "nvidia_smi", "add power.draw to --query-gpu"),
        ("2026/10/01 08:00:00, 22.89 W\n", "nvidia_smi", "its columns have no names (noheader)"),
        ("#Entity  GPUTL\nGPU 0  5\n", "dcgmi_dmon", "has neither POWER nor TOTEC"),
        ("gpu,socket_power\n0,300\n", "amd_smi", "has no column timestamp: it is one reading"),
        ("", "nvidia_smi", "it begins with ''"),
    ],
)
def test_what_cannot_be_read_is_reported_with_the_fix(tmp_path: Path, text: str, named: str, reason: str) -> None:
    assert reason in refusal(NamedFiles(written(tmp_path / "log.csv", text), named))


def test_one_odd_file_of_a_glob_does_not_stop_the_others(tmp_path: Path) -> None:
    written(tmp_path / "a.csv", SMI)
    written(tmp_path / "b.csv", "node,at,watts\nn1,2026-10-01,5\n")
    (rows,) = watts(landed(NamedFiles(str(tmp_path / "*.csv"), "nvidia_smi"))).values()
    assert joules(rows) == 1500.0


def test_a_board_that_never_reports_its_power_has_no_sample(tmp_path: Path) -> None:
    text = "timestamp, uuid, power.draw [W]\n2026/10/01 08:00:00.000, GPU-a, [N/A]\n"
    assert landed(NamedFiles(written(tmp_path / "gpu.csv", text), "nvidia_smi")) == {}
