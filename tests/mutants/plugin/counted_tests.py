"""A plugin of pytest for one trial of a mutant: which tests count, in which order, until when, and what failed.

It is loaded into any checkout of the project (`python -m pytest -p counted_tests`), so it imports nothing of it. The
plan is a JSON file that the environment names: `near` (folders of tests, the nearest first), `words` (files of tests
that have one of them come first), `ignored` (beginnings of the names of tests that do not count), `seconds` (of the
processor, after which no test begins), `answer` (the file to write).
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PLAN = json.loads(Path(os.environ.pop("MUTANTS_PLAN")).read_text(encoding="utf-8"))
# The message of `tests.books.broken_project` where the text that a test falsifies is falsified already: no kill.
GONE_TEXT = re.compile(r"holds \d+ times, expected once|times, expected once: change it in")

CUT_OFF = "the mutant's time is over"

PARENT = os.getppid()

failed: list[str] = []


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what does not count; first the files of near folders that name what the mutant falsifies, then the rest
    of its own folder, then what names it elsewhere, then near folders, then all. Quick files come before slow ones."""
    counted = [item for item in items if not item.nodeid.startswith(tuple(PLAN["ignored"]))]
    if len(counted) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(counted)))
    files = {item.path: number for number, item in enumerate(items)}

    def place(item: pytest.Item) -> tuple[int, int, bool, int]:
        ranks = [rank for rank, folder in enumerate(PLAN["near"]) if item.nodeid.startswith(f"{folder}/")]
        rank, is_named = min(ranks, default=None), _names_it(item.path)
        is_near = rank is not None
        steps = (is_near and is_named, rank == 0, is_named, is_near, True)
        return steps.index(True), rank or 0, item.get_closest_marker("slow") is not None, files[item.path]

    items[:] = sorted(counted, key=place)


def _seconds() -> float:
    """What this process and those that it has waited for took of the processor."""
    return sum(os.times()[:4])


@cache
def _names_it(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return any(re.search(rf"\b{re.escape(word)}\b", text) for word in PLAN["words"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """A test that cannot falsify the text that the mutant replaced is skipped."""
    report = yield
    if report.failed and call.excinfo is not None and GONE_TEXT.search(str(call.excinfo.value)):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, "Skipped: the mutant has replaced its text")
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failed.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        failed.append(report.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    ended = yield
    is_over = PLAN["seconds"] and _seconds() > PLAN["seconds"]
    if is_over or os.getppid() != PARENT:  # whoever waited for this trial is gone
        item.session.shouldstop = CUT_OFF
    return ended


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    import pipelines  # noqa: PLC0415 (of the tree, which comes first only once pytest runs)

    answer = {
        "failed": list(dict.fromkeys(failed)),
        "is_whole": session.shouldstop != CUT_OFF,
        "count": session.testscollected,
        "seconds": _seconds(),
        "status": int(exitstatus),
        "code": str(pipelines.__path__[0]),
    }
    Path(PLAN["answer"]).write_text(json.dumps(answer), encoding="utf-8")
