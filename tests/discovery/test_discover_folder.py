"""`discover` on folders of logs: the file it writes books without a hand on it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipelines.command_line.main import main
from pipelines.fleet.fleet_file import load_fleet
from tests.books import Book
from tests.optional import required


@pytest.mark.needs("validation-data")
def test_a_real_log_of_nvidia_smi_books_its_joules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (data,) = required("validation-data")
    shutil.copy(data / "logs" / "nvidia_smi_50ms.csv", tmp_path)
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    assert main(["discover", str(tmp_path), "--name", "lab", "--yes"]) == 0
    printed = capsys.readouterr()
    assert "1 files, 1 of which can be read" in printed.out
    assert "state its time_zone" in printed.out
    fleet = load_fleet(tmp_path / "lab.yaml")
    assert str(fleet.period.start) == "2024-10-30"
    book = Book(fleet, marts=("fleet_daily",))
    book.run()
    # The trapezoid over the log's samples: 79.8203 J.
    ((joules,),) = book.query("select sum(energy_joules)::double from marts.fleet_daily")
    assert joules == pytest.approx(79.8203, abs=0.001)


def test_nothing_in_a_folder_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("nothing of ours\n")
    assert main(["discover", str(tmp_path), "--yes"]) == 2
    assert capsys.readouterr().err == f"{tmp_path} has no file that can be read (docs/files.md lists what can)\n"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("{folder}/none", "{folder}/none: there is no such file or folder\n"),
        (
            "memory://logs",
            "got 'memory://logs', expected http://HOST:PORT, a metrics page (http://HOST:PORT/metrics), a folder of"
            " logs, or the spool of an agent\n",
        ),
    ],
)
def test_a_place_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, expected: str) -> None:
    assert main(["discover", place.format(folder=tmp_path), "--yes"]) == 2
    assert capsys.readouterr().err == expected.format(folder=tmp_path)


def test_a_fleet_file_elsewhere_would_read_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs, other = tmp_path / "logs", tmp_path / "other"
    logs.mkdir()
    other.mkdir()
    assert main(["discover", str(logs), "--out", str(other / "f.yaml"), "--yes"]) == 2
    assert "a fleet file reads files beside it and below" in capsys.readouterr().err


def test_what_it_wrote_is_no_file_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second look lists neither the fleet file of the first one nor its schema, whatever the user called them."""
    monkeypatch.setenv("WATTLEDGER_DATA", str(tmp_path / "data"))
    (tmp_path / "wall.csv").write_text("node,at,watts\nn1,2026-10-01T08:00:00Z,300\n")
    (tmp_path / "notes.txt").write_text("nothing of ours\n")
    assert main(["discover", str(tmp_path), "--name", "one", "--yes"]) == 0
    assert main(["discover", str(tmp_path), "--name", "two", "--yes"]) == 0
    first, second = capsys.readouterr().out.split(f"written: {tmp_path}/one.yaml")
    assert first.splitlines()[0] == second.splitlines()[2]
    assert first.splitlines()[0].endswith("2 files, 1 of which can be read")
    assert [line for line in second.splitlines() if "no known" in line] == [
        f"  - {tmp_path}/notes.txt: is of no known format; it begins with 'nothing of ours'"
    ]
