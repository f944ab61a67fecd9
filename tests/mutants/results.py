"""What came of each trial, written as it comes: `results.csv`, one row for each mutant, column and suite of tests.

A column is one state of the tests, such as `before` and `after` a reduction. Add here how results are read and shown.
Keep out how they come about (`trials`).
"""

from __future__ import annotations

import csv
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

RESULTS = Path(__file__).with_name("results.csv")

KILLED, SURVIVES, NOT_YET, NO_TEXT, NO_TRIAL = "killed", "survives", "not yet", "text not there", "no trial"
# Of the suites, the one that is run first and more often comes first.
SUITES = {"test": "not rest", "test-rest": "rest"}


@dataclass(frozen=True)
class Result:
    """A trial: the mutant, by which tests, its verdict, the test that killed it, and what it took of the processor.
    Of `no trial`, `killed_by` is the reason.
    `not yet` is what its own minutes did not kill: it is applied together with others, in a run of all tests."""

    column: str
    mutant: str
    suite: str
    verdict: str
    killed_by: str
    seconds: int
    commit: str


class Results:
    """The results of a file; the last row of a mutant in a column and suite counts."""

    def __init__(self, path: Path = RESULTS) -> None:
        self._path = path
        self._lock = threading.Lock()
        rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()
        self._rows = {
            (row["column"], row["mutant"], row["suite"]): Result(**{**row, "seconds": int(row["seconds"])})
            for row in rows
        }

    def write(self, result: Result) -> None:
        """Add a result, and print it."""
        with self._lock:
            self._rows[result.column, result.mutant, result.suite] = result
            with self._path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, [field.name for field in fields(Result)], lineterminator="\n")
                writer.writeheader()
                writer.writerows(asdict(self._rows[key]) for key in sorted(self._rows))
        by = f" by {result.killed_by}" if result.killed_by else ""
        print(f"{result.suite}: {result.mutant}: {result.verdict}{by} ({result.seconds} s)", flush=True)

    def verdict(self, column: str, mutant: str, suite: str) -> str:
        """The verdict of a trial; empty where there was none."""
        result = self._rows.get((column, mutant, suite))
        return result.verdict if result else ""

    def killed_in(self, column: str, mutant: str) -> str:
        """The suite that kills a mutant, else `survives`, or what else came of it."""
        verdicts = {suite: self.verdict(column, mutant, suite) for suite in SUITES}
        killers = [suite for suite, verdict in verdicts.items() if verdict == KILLED]
        return killers[0] if killers else next((verdicts[suite] for suite in reversed(SUITES) if verdicts[suite]), "")

    def killer(self, column: str, mutant: str) -> str:
        """The test that kills a mutant."""
        killers = [
            self._rows[column, mutant, suite].killed_by for suite in SUITES if (column, mutant, suite) in self._rows
        ]
        return next(filter(None, killers), "")


def table(results: Results, names: Iterable[str], before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines `mutant · before · after`, and the mutants that moved down: from `test` to `test-rest`, or to none."""
    places = [*SUITES, SURVIVES]
    lines, moved_down = [f"mutant · {before} · {after} · killed by"], []
    for name in names:
        was, now = results.killed_in(before, name), results.killed_in(after, name)
        is_down = was in places and now in places and places.index(now) > places.index(was)
        if is_down:
            moved_down.append(name)
        killer = results.killer(after, name) or results.killer(before, name)
        lines.append(f"{name} · {was or '–'} · {now or '–'} · {killer}{' · moved down' if is_down else ''}")
    return lines, moved_down
