"""What a run prints while it goes on: nothing new in a file; on a terminal one line that shows how far it is."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from pipelines.command_line import console
from pipelines.warehouse import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    changed = [logging.getLogger(name) for name in ("pipelines", progress.LOGGER)]
    before = [(one.level, one.handlers[:], one.propagate) for one in changed]
    yield
    for one, (level, handlers, propagates) in zip(changed, before, strict=True):
        one.level, one.handlers, one.propagate = level, handlers, propagates


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


def test_dagster_keeps_no_line_of_progress() -> None:
    """It keeps what is logged below the loggers that dagster.yaml names; a handler of the root would get it, too."""
    kept = yaml.safe_load((Path(console.__file__).parent / "dagster.yaml").read_text())["python_logs"]
    console.show_progress(Terminal())
    (named,) = kept["managed_python_loggers"]
    assert named == "pipelines"
    assert logging.getLogger("pipelines.landing").parent is logging.getLogger(named)
    passing = logging.getLogger(progress.LOGGER)
    assert passing.parent is logging.getLogger()
    assert not passing.propagate


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


def test_with_json_each_line_is_an_object(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # put back afterwards: `show` replaces them
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    console.show("json")
    logging.getLogger("pipelines.landing").info("cluster: %s rows", 7)
    logging.getLogger(progress.LOGGER).info("booking: 3 of 70")
    print('a "table"\n\n  and its second line')
    print("no such file", file=sys.stderr)
    shown = capsys.readouterr()
    lines = [json.loads(line) for line in shown.out.splitlines()]
    assert [(one["level"], one["logger"], one["message"]) for one in lines] == [
        ("info", "pipelines.landing", "cluster: 7 rows"),
        ("info", "pipelines.printed", 'a "table"'),
        ("info", "pipelines.printed", "  and its second line"),
    ]
    assert datetime.fromisoformat(lines[0]["time"]).tzinfo is not None
    (refused,) = (json.loads(line) for line in shown.err.splitlines())
    assert (refused["level"], refused["message"]) == ("error", "no such file")
