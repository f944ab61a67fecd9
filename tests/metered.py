"""What a run of the tests takes: `pytest --metered FILE` writes it to a JSON file, and prints the twenty dearest tests.

Seconds are the processor's, not the wall's: of a test with what its fixtures took, which goes to the first test that
asks for them. A process counts once a test has waited for it. A command in a forked process (`tests.commands`) reports
its own; what the server that forks it loads, once per worker, does not count. A failure is printed when it happens,
too: `.ci/run` stops a suite that is late, and then pytest sums nothing up. Add here what else is counted while tests
run. Keep out how much of it there may be: that is `tests.budget`.
"""

from __future__ import annotations

import json
import resource
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

DEAREST = 20
# What the tests of this process did: bookings, commands, ….
counts = Counter[str]()
# What the processes took that this one does not wait for.
seconds_elsewhere: list[float] = []


def core_seconds(*, has_children: bool = True) -> float:
    """Processor seconds of this process and of those that it waited for, until now."""
    usages = [resource.getrusage(resource.RUSAGE_SELF)]
    if has_children:
        usages.append(resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(seconds_elsewhere)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--metered", metavar="FILE", help="write what the run took to a JSON file (tests/metered.py)")


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("metered"):
        config.pluginmanager.register(Meter(config, Path(file)))


class Meter:
    """Meters the tests of this process; the process that xdist's workers report to sums them up."""

    def __init__(self, config: pytest.Config, file: Path) -> None:
        self.config = config
        self.file = file
        self.cases = 0
        self.tests: dict[str, float] = {}
        self.workers: list[dict[str, Any]] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.cases = len(session.items)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = core_seconds()
        try:
            return (yield)
        finally:
            self.tests[item.nodeid] = core_seconds() - before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not hasattr(self.config, "workerinput"):
            reporter = self.config.pluginmanager.get_plugin("terminalreporter")
            reporter.write_line(f"\nFAILED {report.nodeid}\n{report.longreprtext}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker that crashed reports nothing; the run is red then."""
        self.workers.append(node.workeroutput["metered"] if hasattr(node, "workeroutput") else {})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        own = {
            "counts": {"cases": self.cases, **counts},
            # Workers are children of the process that they report to, and report their own.
            "core_seconds": core_seconds(has_children=not self.workers),
            "tests": self.tests,
        }
        if hasattr(self.config, "workerinput"):
            self.config.workeroutput["metered"] = own
        else:
            self.file.write_text(json.dumps(summed([own, *self.workers]), indent=1), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        metered = json.loads(self.file.read_text(encoding="utf-8"))
        terminalreporter.section(f"the {DEAREST} dearest tests, in processor seconds")
        for test, seconds in list(metered["tests"].items())[:DEAREST]:
            terminalreporter.write_line(f"{seconds:7.1f} {test}")
        listed = ", ".join(f"{number:,} {name}" for name, number in metered["counts"].items())
        terminalreporter.write_line(f"{metered['core_seconds']:,.0f} processor seconds for {listed}")


def summed(processes: list[dict[str, Any]]) -> dict[str, Any]:
    """What the processes of a run took together, the dearest test first. Each worker collects all cases."""
    processes = [process for process in processes if process]
    total = sum((Counter(process["counts"]) for process in processes), Counter[str]())
    total["cases"] = max(process["counts"]["cases"] for process in processes)
    tests = {test: seconds for process in processes for test, seconds in process["tests"].items()}
    return {
        "counts": dict(total),
        "core_seconds": sum(process["core_seconds"] for process in processes),
        "tests": dict(sorted(tests.items(), key=lambda test: -test[1])),
    }
