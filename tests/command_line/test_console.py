"""What a run prints while it goes on: nothing new in a file; on a terminal one line that shows how far it is."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pipelines.command_line import console
from pipelines.warehouse import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    ours = logging.getLogger("pipelines")
    before = ours.level, ours.handlers[:], ours.propagate
    yield ours
    ours.level, ours.handlers, ours.propagate = before


def printed(stream: io.StringIO) -> str:
    console.show_progress(stream)
    progress.of("landing cluster", 1, 2)
    progress.of("landing cluster", 2, 2)
    logging.getLogger("pipelines.landing").info("cluster: %d rows", 7)
    progress.of_dbt(SimpleNamespace(info=SimpleNamespace(name="LogStartLine"), data=SimpleNamespace(index=3, total=9)))
    progress.of_dbt(SimpleNamespace(info=SimpleNamespace(name="MainReportVersion"), data=SimpleNamespace()))
    progress.over()
    return stream.getvalue()


def test_a_file_gets_the_log_lines_alone() -> None:
    assert printed(io.StringIO()) == "  cluster: 7 rows\n"


def test_on_a_terminal_each_line_of_progress_gives_way_to_the_next_line() -> None:
    new = "\r\x1b[2K"
    assert printed(Terminal()) == (
        f"{new}  landing cluster: 1 of 2{new}  landing cluster: 2 of 2{new}  cluster: 7 rows\n"
        f"{new}  booking: 3 of 9{new}"
    )


def test_a_line_of_progress_is_never_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What wraps cannot be taken back; a log line is kept whole."""
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    console.show_progress(terminal)
    progress.of("landing of-a-long-name", 1, 2)
    logging.getLogger("pipelines.landing").info("of-a-long-name: 7 rows")
    assert terminal.getvalue() == "\r\x1b[2K  landing of-a-long\r\x1b[2K  of-a-long-name: 7 rows\n"
