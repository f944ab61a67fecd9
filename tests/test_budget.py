"""The budget of the tests: what is counted and metered while they run, and that too much is seen."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.fleet.places import PROJECT
from tests import budget, commands, metered

TESTS = {
    "test_dear.py": """
import time
import pytest
from tests import metered

def work(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass

@pytest.fixture(scope="module")
def dear():
    work(0.2)

def test_first(dear):
    metered.counts["bookings"] += 1

def test_second(dear):
    metered.counts["bookings"] += 2

def test_deselected():
    metered.counts["bookings"] += 4
""",
    "test_other.py": """
from tests import metered

def test_other():
    metered.counts["bookings"] += 8
""",
}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_meters_what_its_processes_did(tmp_path: Path, workers: int) -> None:
    """1 + 2 + 8 bookings; the fixture's 0.2 s are those of the test that asks first."""
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    plugins = ["-p", "xdist", "-p", "tests.metered"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    options = [*plugins, "-n", str(workers), "--dist", "loadfile", "--metered", "took.json"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "not deselected", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    took = json.loads((tmp_path / "took.json").read_text(encoding="utf-8"))
    assert took["counts"] == {"cases": 3, "bookings": 11}
    (dearest, seconds), *others = took["tests"].items()
    assert (dearest, len(others)) == ("test_dear.py::test_first", 2)
    assert used >= took["core_seconds"] > seconds >= 0.2 > max(seconds for _, seconds in others)
    assert f"{seconds:7.1f} test_dear.py::test_first" in done.stdout.splitlines()


def test_a_command_counts_with_the_seconds_of_its_own_process() -> None:
    before, seconds = metered.counts["commands"], len(metered.seconds_elsewhere)
    assert commands.run(["--help"], os.environ, timeout=600).returncode == 0
    assert metered.counts["commands"] == before + 1
    assert [elsewhere > 0 for elsewhere in metered.seconds_elsewhere[seconds:]] == [True]


COMMITTED = {"suites": {"test": {"cases": 10, "bookings": 2}, "test-rest": {"cases": 3}}, "multiple": 200, "raised": []}
# Their median is 4 s: 1.4 × 200 of it are 1,120 s.
REFERENCE = [9.0, 2.0, 4.0]


def took(cases: int, seconds: float = 1120, **more: int) -> dict[str, Any]:
    return {"counts": {"cases": cases, **more}, "core_seconds": seconds}


REST = {"test-rest": took(3, 99_999)}  # whose seconds are not asserted


@pytest.mark.parametrize(
    ("suites", "lines"),
    [
        ({"test": took(10, bookings=2), **REST}, []),
        ({"test": took(9, bookings=1), **REST}, []),
        ({"test": took(11, bookings=3), **REST}, [
            "make test: 11 cases, and the budget has 10", "make test: 3 bookings, and the budget has 2",
        ]),
        ({"test": took(10, commands=1), **REST}, ["make test: 1 commands, and the budget has 0"]),
        ({"test": took(10)}, ["make test-rest: it was not metered"]),
        ({"test": took(10), "test-bi": took(1), **REST}, ["make test-bi: 1 cases, and the budget has 0"]),
        ({"test": took(10, 1124), **REST}, [
            "make test: 281 times a reference booking in processor seconds, and the budget has 1.4 times 200",
        ]),
    ],
)  # fmt: skip
def test_more_than_the_budget_is_named(suites: dict[str, Any], lines: list[str]) -> None:
    assert budget.exceeded(COMMITTED, suites, REFERENCE) == lines


def test_a_suite_that_was_stopped_is_not_asked_for_its_numbers() -> None:
    assert budget.exceeded(COMMITTED, {"test": took(10)}, REFERENCE, {"test-rest"}) == []
    assert budget.exceeded(COMMITTED, REST, REFERENCE, {"test-rest"}) == ["make test: it was not metered"]


def test_the_budget_is_written_from_a_run_and_keeps_its_reasons(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "budget.yaml"
    monkeypatch.setattr(budget, "BUDGET", file)
    monkeypatch.setattr(budget, "PROJECT", tmp_path)
    file.write_text("# Why.\n" + yaml.safe_dump({**COMMITTED, "raised": ["cases 9 to 10: a new table"]}), "utf-8")
    (tmp_path / "test.json").write_text(json.dumps(took(12, 1200, bookings=2)), encoding="utf-8")
    (tmp_path / "reference.json").write_text(json.dumps(REFERENCE), encoding="utf-8")

    def status(word: str) -> int:
        monkeypatch.setattr(sys, "argv", ["budget", word, str(tmp_path)])
        return budget.main()

    assert status("check") == 1
    assert capsys.readouterr().out.splitlines() == [
        "make test: 1,200 processor seconds for 12 cases, 2 bookings",
        "make test: 300 times a reference booking of 9.00, 2.00, 4.00 processor seconds",
        "over the budget: make test-rest: it was not metered",
        "over the budget: make test: 12 cases, and the budget has 10",
        "over the budget: make test: 300 times a reference booking in processor seconds, and the budget has 1.4 times"
        " 200",
        "Make the tests cheaper, or raise the number in budget.yaml and add why to `raised`.",
    ]
    assert status("write") == 0
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# Why.\n")
    assert yaml.safe_load(text) == {
        "suites": {"test": {"cases": 12, "bookings": 2}, "test-rest": {"cases": 3}},
        "multiple": 300,
        "raised": ["cases 9 to 10: a new table"],
    }


def test_the_projects_budget_can_be_read() -> None:
    stated = yaml.safe_load(budget.BUDGET.read_text(encoding="utf-8"))
    assert stated.keys() == {"suites", "multiple", "raised"}
    assert budget.TIMED in stated["suites"]
    assert all(isinstance(reason, str) for reason in stated["raised"])
