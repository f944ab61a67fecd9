"""Logs that go on where another session stopped, and boards of one query that are some milliseconds apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors.formats.named_formats import NamedFiles
from collectors.protocols.sample_files import FilesCollector
from collectors.recognition.file_kinds import recognised_file
from collectors.series import SeriesRegister
from pipelines.fleet import catalog
from tests.collectors.test_named_formats import DAY, EIGHT, joules, landed, packed, watts, written

AT = "2026/10/01 08:{:02d}:{:06.3f}"


def rows_of(ticks: list[list[tuple[float, float]]]) -> str:
    """A log without index or uuid: (seconds after 08:00, W) of each row."""
    lines = [f"{AT.format(int(at // 60), at % 60)}, NVIDIA A100, {power:.2f} W" for tick in ticks for at, power in tick]
    return "timestamp, name, power.draw [W]\n" + "\n".join(lines) + "\n"


def by_index(found: dict[str, list[tuple[float, float]]]) -> dict[str, float]:
    """Joules by the board's place."""
    return {labels.split('"index":"')[1][0]: round(joules(rows), 6) for labels, rows in found.items()}


# Four boards, 2 ms apart, each second for ten seconds: 9 s at 100, 200, 300 and 400 W.
FOUR = [[(second + 0.002 * n, 100.0 * (n + 1)) for n in range(4)] for second in range(10)]


def test_boards_of_one_query_are_apart_however_many_milliseconds_lie_between(tmp_path: Path) -> None:
    path = written(tmp_path / "gpu.csv", rows_of(FOUR))
    found = watts(landed(NamedFiles(path, "nvidia_smi", {"node": "n1"})))
    assert by_index(found) == {"0": 900, "1": 1800, "2": 2700, "3": 3600}
    # Rows of one tick have the time of its first one.
    assert {tuple(at for at, _ in rows) for rows in found.values()} == {tuple(EIGHT + n for n in range(10))}
    assert recognised_file(path).interval_seconds == 1


@pytest.mark.parametrize(
    ("ticks", "expected"),
    [
        # One board twice a second, and every 100 ms with 20 ms of jitter.
        ([[(0.5 * n, 100.0)] for n in range(21)], {"0": 1000}),
        ([[(0.1 * n + 0.02 * (n * 7 % 3), 100.0)] for n in range(100)], {"0": 990}),
        # Single queries hung for a minute: no tick of hundreds of boards.
        ([[(n + 60.0 * (n > 30) + 60.0 * (n > 70), 100.0)] for n in range(100)], {"0": 21_900}),
        # Two boards whose query takes 0.2 of each second.
        ([[(n, 100.0), (n + 0.2, 50.0)] for n in range(11)], {"0": 1000, "1": 500}),
        # Two of three boards in the same millisecond.
        ([[(n, 100.0), (n, 50.0), (n + 0.003, 10.0)] for n in range(11)], {"0": 1000, "1": 500, "2": 100}),
    ],
    ids=["twice a second", "every 100 ms", "queries hung", "a slow query", "one millisecond"],
)
def test_a_tick_is_what_the_cadence_of_its_log_shows(
    tmp_path: Path, ticks: list[list[tuple[float, float]]], expected: dict[str, float]
) -> None:
    path = written(tmp_path / "gpu.csv", rows_of(ticks))
    assert by_index(watts(landed(NamedFiles(path, "nvidia_smi", {"node": "n1"})))) == pytest.approx(expected)


@pytest.mark.parametrize("seconds", [2, 3, 10])
def test_few_ticks_before_a_second_header_are_ticks(tmp_path: Path, seconds: int) -> None:
    """Above the second header are two or three ticks: as rows of one board, three boards lost their joules."""
    header, *rows = rows_of(FOUR).splitlines()
    other = "name, timestamp, power.draw [W]"
    swapped = [f"{name}, {at}, {power}" for at, name, power in (row.split(", ") for row in rows[4 * seconds :])]
    text = "\n".join([header, *rows[: 4 * seconds], *([other, *swapped] if swapped else [])]) + "\n"
    path = written(tmp_path / "gpu.csv", text)
    found = watts(landed(NamedFiles(path, "nvidia_smi", {"node": "n1"})))
    assert by_index(found) == {"0": 900, "1": 1800, "2": 2700, "3": 3600}
    assert recognised_file(path).interval_seconds == 1


@pytest.mark.parametrize("step", [0.1, 1.0])
def test_a_short_log_that_hung_in_the_middle_is_of_one_board(tmp_path: Path, step: float) -> None:
    """Four rows, a minute, four rows: no two ticks of four boards. 2 × 3 steps and the minute at 100 W."""
    path = written(tmp_path / "gpu.csv", rows_of([[(step * n + 60 * (n > 3), 100.0)] for n in range(8)]))
    assert by_index(watts(landed(NamedFiles(path, "nvidia_smi", {"node": "n1"})))) == pytest.approx(
        {"0": 100 * (7 * step + 60)}
    )


def test_a_tick_that_lacks_a_board_is_refused_and_the_others_stay(tmp_path: Path) -> None:
    ticks = [tick if second != 5 else tick[:3] for second, tick in enumerate(FOUR)]
    path = written(tmp_path / "gpu.csv", rows_of(ticks))
    found = watts(landed(NamedFiles(path, "nvidia_smi", {"node": "n1"})))
    assert {len(rows) for rows in found.values()} == {9}


# 10 s at 300 W; then another session, with other columns: 10 s at 200 W.
FIRST = "timestamp, uuid, power.draw [W], utilization.gpu [%]\n" + "".join(
    f"{AT.format(0, second)}, GPU-a, 300.00, 50\n" for second in range(11)
)
SECOND = "".join(f"GPU-a, 50 %, 200.00 W, {AT.format(1, second)}\n" for second in range(11))


@pytest.mark.parametrize("how", ["plain", "gz", "zst", "BOM", "Windows"])
def test_a_second_header_is_read_anew(tmp_path: Path, how: str) -> None:
    text = FIRST + "uuid, utilization.gpu [%], power.draw [W], timestamp\n" + SECOND
    (tmp_path / "gpu.csv").write_bytes(packed(text, how))
    ((labels, rows),) = watts(landed(NamedFiles(str(tmp_path / "gpu.csv"), "nvidia_smi"))).items()
    assert labels == '{"uuid":"GPU-a"}'
    # 3,000 J, 50 s from 300 to 200 W, and 2,000 J.
    assert (len(rows), joules(rows)) == (22, 3000 + 50 * 250 + 2000)


def test_a_session_that_logged_no_power_costs_itself(tmp_path: Path) -> None:
    second = "timestamp, uuid, utilization.gpu [%], temperature.gpu\n2026/10/01 08:01:00.000, GPU-a, 50 %, 61\n"
    register = SeriesRegister("logs", DAY)
    files = [NamedFiles(written(tmp_path / "gpu.csv", FIRST + second), "nvidia_smi")]
    batches = list(FilesCollector("logs", files).collect(DAY, catalog.families(), register))
    # 11 rows of power and of activity; the other session is one line with its reason.
    assert sum(samples.num_rows for _, samples in batches) == 22
    (line,) = register.rejects.first
    assert line.endswith(
        "gpu.csv: is of the format nvidia_smi and has no column power.draw: add power.draw to --query-gpu"
    )


def test_a_header_that_comes_again_unchanged_is_no_row(tmp_path: Path) -> None:
    header, *lines = FIRST.splitlines()
    text = "".join(f"{header}\n{line}\n" for line in lines)
    ((_, rows),) = watts(landed(NamedFiles(written(tmp_path / "gpu.csv", text), "nvidia_smi"))).items()
    assert (len(rows), joules(rows)) == (11, 3000)


@pytest.mark.parametrize(
    ("preface", "format_", "text", "expected"),
    [
        ("Unable to determine the device handle for GPU0: Unknown Error\n", "nvidia_smi", FIRST, 3000),
        (
            "'CTRL' + 'C' to stop watching output:\n",
            "amd_smi",
            "timestamp,gpu,power_usage,max_power\n1790841600,0,400,750\n1790841601,0,410,750\n",
            405,
        ),
    ],
)
def test_what_a_program_prints_before_the_header_is_no_header(
    tmp_path: Path, preface: str, format_: str, text: str, expected: float
) -> None:
    path = written(tmp_path / "gpu.csv", preface + text)
    assert (recognised_file(path).format, recognised_file(path).reason) == (format_, None)
    ((_, rows),) = watts(landed(NamedFiles(path, format_, {"node": "n1"}))).items()
    assert joules(rows) == expected


def amd_tick(at: int, *powers: float) -> str:
    """What `amd-smi monitor -w 1 --json` prints at each tick."""
    boards = [
        {"timestamp": at, "gpu": n, "power": {"socket_power": {"value": power, "unit": "W"}}}
        for n, power in enumerate(powers)
    ]
    return json.dumps(boards, indent=4) + "\n"


def test_an_array_for_each_tick_is_a_log(tmp_path: Path) -> None:
    text = "".join(amd_tick(1790841600 + n, 400, 410) for n in range(11))
    path = written(tmp_path / "amd.json", text)
    assert recognised_file(path).interval_seconds == 1
    found = watts(landed(NamedFiles(path, "amd_smi", {"node": "n1"})))
    assert sorted(joules(rows) for rows in found.values()) == [4000, 4100]
    # Ended by CTRL+C in the middle of a tick.
    path = written(tmp_path / "cut.json", text[: -len(amd_tick(0, 400, 410)) // 2])
    found = watts(landed(NamedFiles(path, "amd_smi", {"node": "n1"})))
    assert sorted(len(rows) for rows in found.values()) == [10, 11]
    # One array of all ticks, cut off within its last board.
    ticks = [row for n in range(11) for row in json.loads(amd_tick(1790841600 + n, 400, 410))]
    path = written(tmp_path / "one.json", json.dumps(ticks, indent=4)[:-30])
    found = watts(landed(NamedFiles(path, "amd_smi", {"node": "n1"})))
    assert sorted(len(rows) for rows in found.values()) == [10, 11]


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("amd_smi", "timestamp,gpu,socket_power,power_usage\n1790841600,0,N/A,400\n1790841601,0,N/A,410\n"),
        ("amd_smi", json.dumps([{"timestamp": at, "gpu": 0, "socket_power": "N/A", "power_usage": {"value": 405}}
                                for at in (1790841600, 1790841601)])),
    ],
)  # fmt: skip
def test_the_first_column_of_power_that_has_numbers_is_read(tmp_path: Path, format_: str, text: str) -> None:
    ((_, rows),) = watts(landed(NamedFiles(written(tmp_path / "x", text), format_, {"node": "n1"}))).items()
    assert joules(rows) == 405
