"""Whether the tests stay within their budget, `tests/budget.yaml`: what `.ci/run` asks at its end.

python -m tests.budget reference FOLDER   times a reference booking three times; again, three times more
python -m tests.budget check FOLDER       compares what the suites took (FOLDER/test.json, …) with the budget; status 1
python -m tests.budget write FOLDER       makes what they took the budget

The suites are metered by `tests.metered`. Machines differ by two, and so does one from hour to hour: so the seconds of
`make test` are compared as a multiple of the reference booking of the same run, timed before and after it. Add here
what else a run may not exceed. Keep out what the tests count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipelines.fleet.places import PROJECT
from tests.books import Book, demo_fleet, on
from tests.metered import core_seconds

BUDGET = PROJECT / "tests" / "budget.yaml"
# The suite whose seconds are asserted, and by what they may exceed their multiple: a busy machine is not a slower test.
TIMED = "test"
ALLOWANCE = 1.4
TIMES = 3
Metered = dict[str, Any]


def exceeded(
    budget: Mapping[str, Any],
    suites: Mapping[str, Metered],
    reference: Sequence[float],
    stopped: Collection[str] = (),
) -> list[str]:
    """One line for each number of a suite that is above the budget, or is not in it, and for each suite that was not
    metered, but those that `.ci/run` stopped."""
    missing = [suite for suite in budget["suites"] if suite not in {*suites, *stopped}]
    lines = [f"make {suite}: it was not metered" for suite in missing]
    for suite, metered in suites.items():
        allowed = budget["suites"].get(suite, {})
        for name, number in metered["counts"].items():
            if number > allowed.get(name, 0):
                lines.append(f"make {suite}: {number:,} {name}, and the budget has {allowed.get(name, 0):,}")
    if TIMED in suites:
        multiple = suites[TIMED]["core_seconds"] / statistics.median(reference)
        if multiple > ALLOWANCE * budget["multiple"]:
            lines.append(
                f"make {TIMED}: {multiple:,.0f} times a reference booking in processor seconds, and the budget has"
                f" {ALLOWANCE} times {budget['multiple']:,}"
            )
    return lines


def reference_seconds() -> list[float]:
    """Processor seconds of three bookings of one day of the demo, in this process, after one that loads what they
    need."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        fleet = demo_fleet(Path(folder), on("10-06"), on("10-07"))
        for number in range(TIMES + 1):
            before = core_seconds()
            Book.of(fleet, Path(folder) / f"data-{number}").run()
            seconds.append(core_seconds() - before)
    return seconds[1:]


def write(budget: dict[str, Any], suites: Mapping[str, Metered], reference: Sequence[float]) -> None:
    """Make what the suites took the budget; suites that were not metered keep theirs, and reasons stay."""
    for suite, metered in suites.items():
        budget["suites"][suite] = metered["counts"]
    if TIMED in suites:
        budget["multiple"] = round(suites[TIMED]["core_seconds"] / statistics.median(reference))
    comments = [line for line in BUDGET.read_text(encoding="utf-8").splitlines(keepends=True) if line.startswith("#")]
    text = yaml.safe_dump(budget, sort_keys=False, width=120, allow_unicode=True)
    BUDGET.write_text("".join(comments) + text, encoding="utf-8")


def main() -> int:
    """Time the reference booking, check the budget or write it; returns 1 where a suite exceeds it."""
    parser = argparse.ArgumentParser(prog="python -m tests.budget")
    parser.add_argument("word", choices=("reference", "check", "write"))
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    timed = given.folder / "reference.json"
    if given.word == "reference":
        before = json.loads(timed.read_text(encoding="utf-8")) if timed.exists() else []
        timed.write_text(json.dumps(before + reference_seconds()), encoding="utf-8")
        return 0
    budget = yaml.safe_load(BUDGET.read_text(encoding="utf-8"))
    files = {path.stem: path for path in sorted(given.folder.glob("test*.json"))}
    suites = {suite: json.loads(path.read_text(encoding="utf-8")) for suite, path in files.items()}
    reference = json.loads(timed.read_text(encoding="utf-8"))
    for suite, metered in suites.items():
        counted = ", ".join(f"{number:,} {name}" for name, number in metered["counts"].items())
        print(f"make {suite}: {metered['core_seconds']:,.0f} processor seconds for {counted}")
    if TIMED in suites:
        multiple = suites[TIMED]["core_seconds"] / statistics.median(reference)
        timings = ", ".join(f"{seconds:.2f}" for seconds in reference)
        print(f"make {TIMED}: {multiple:,.0f} times a reference booking of {timings} processor seconds")
    if given.word == "write":
        write(budget, suites, reference)
        return 0
    stopped = {path.stem for path in given.folder.glob("*.stopped")}
    lines = exceeded(budget, suites, reference, stopped)
    for line in lines:
        print(f"over the budget: {line}")
    if lines:
        print(f"Make the tests cheaper, or raise the number in {BUDGET.relative_to(PROJECT)} and add why to `raised`.")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
