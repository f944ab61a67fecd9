"""Which tests kill a mutant: first alone, for some minutes, its own folder first; then together with others, by all.

Add here how a verdict comes about. Keep out trees and processes (`trees`), and what is written down (`results`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tests.mutants.listed import Mutant, TextNotFound, textual_tests
from tests.mutants.results import KILLED, NO_TEXT, NO_TRIAL, NOT_YET, SUITES, SURVIVES, Result, Results
from tests.mutants.trees import Answer, NoEnd, Tree, TrialFailed, stop_all

UNIT_TESTS = "tests/ledger/test_dbt_units.py"
# The folder of tests of code that has another name.
ALSO = {"analysis": "advice", "dbt_project": "ledger", "agent": "installation"}


@dataclass
class Trials:
    """The trials of one column: `trees` are free to be broken, `sound` never is."""

    column: str
    commit: str
    trees: Sequence[Tree]
    sound: Tree
    results: Results
    seconds: int
    # Tests that fail without a mutant: they count for nothing.
    failing: set[str] = field(default_factory=set)
    _passing: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(
        self, mutants: Iterable[Mutant], suite: str, *, until: float = float("inf"), is_alone: bool = False
    ) -> None:
        """Try the mutants that have no verdict yet; with `is_alone` leave those that their minutes do not kill. After
        `until`, of the monotonic clock, no trial begins."""
        left = [mutant for mutant in mutants if self._verdict(mutant, suite) not in (KILLED, SURVIVES, NO_TEXT)]
        # `test-rest` takes long for whatever it kills: there all are together from the beginning.
        if suite == next(iter(SUITES)):
            has_units = self._has_units(suite)
            new = [mutant for mutant in left if self._verdict(mutant, suite) != NOT_YET]
            # dbt renders a changed project anew: what changes none comes first, side by side.
            new.sort(key=lambda mutant: mutant.file.startswith("dbt_project/"))
            self._shared_out(new, until, lambda tree, mutant: self._tried(tree, mutant, suite, has_units))
            left = [mutant for mutant in left if self._verdict(mutant, suite) == NOT_YET]
        if left and not is_alone:
            groups = grouped(left, self.sound.graph())
            print(f"{suite}: {len(left)} mutants in {len(groups)} runs of all tests", flush=True)
            self._shared_out(groups, until, lambda tree, group: self._tried_together(tree, group, suite))

    def _verdict(self, mutant: Mutant, suite: str) -> str:
        return self.results.verdict(self.column, mutant.name, suite)

    def _shared_out(self, work: Sequence[Any], until: float, do: Callable[[Tree, Any], None]) -> None:
        """Do all the work, one piece in a tree at a time."""
        free: queue.Queue[Tree] = queue.Queue()
        for tree in self.trees:
            free.put(tree)

        def in_a_tree(piece: Any) -> None:
            if time.monotonic() > until:
                return
            tree = free.get()
            try:
                do(tree, piece)
            finally:
                free.put(tree)

        with ThreadPoolExecutor(len(self.trees)) as pool:
            running = [pool.submit(in_a_tree, piece) for piece in work]
            try:
                for trial in running:
                    trial.result()
            except BaseException:
                for trial in running:
                    trial.cancel()
                stop_all()
                raise

    def _tried(self, tree: Tree, mutant: Mutant, suite: str, has_units: bool) -> None:
        """`_alone`; what goes wrong with one mutant is its verdict, and the others go on."""
        try:
            self._alone(tree, mutant, suite, has_units)
        except TrialFailed as failure:
            self._write(mutant, suite, NO_TRIAL, " ".join(str(failure).split())[-300:], 0)

    def _alone(self, tree: Tree, mutant: Mutant, suite: str, has_units: bool) -> None:
        """Write the verdict of the mutant's own minutes."""
        try:
            tree.write([mutant])
        except TextNotFound:
            self._write(mutant, suite, NO_TEXT, "", 0)
            return
        is_sql = mutant.file.startswith("dbt_project/")
        if is_sql and has_units and (units := tree.failed_units([mutant.file])):
            with self._lock:
                of_sound = self.sound.failed_units([mutant.file])
            units = [name for name in units if name not in of_sound]
            if units:
                self._write(mutant, suite, KILLED, f"dbt's unit test {units[0]}", 0)
                return
        seconds, failed_once = 0.0, list[str]()

        def first_failure(tests: str) -> Answer:
            return tree.pytest(
                *("-x", "-m", SUITES[suite], tests),
                near=near(mutant.file, tree.path),
                words=mutant.words,
                ignored=[
                    *(*textual_tests(), *self.failing, *failed_once),
                    *([UNIT_TESTS] if is_sql and has_units else []),
                ],
                seconds=self.seconds,
            )

        of_tests = [*([mutant.seen_by] if mutant.seen_by else []), "tests"]
        while of_tests:
            try:
                answer = first_failure(of_tests[0])
            except NoEnd as no_end:
                self._write(mutant, suite, KILLED, str(no_end), seconds)
                return
            seconds += answer.seconds
            if not answer.failed:
                del of_tests[0]
                continue
            counted = self._counted(answer.failed)
            # What fails once and not again is no kill: a machine may be busy. What is wrong in a book that tests share
            # may show only beside the others.
            if counted and (tree.pytest(counted[0]).failed or counted[0] in first_failure(of_tests[0]).failed):
                self._write(mutant, suite, KILLED, counted[0], seconds)
                return
            failed_once += answer.failed
        self._write(mutant, suite, SURVIVES if answer.is_whole else NOT_YET, "", seconds)

    def _tried_together(self, tree: Tree, group: Sequence[Mutant], suite: str) -> None:
        """`_together`; where it goes wrong the mutants have no verdict, and the next run tries them again."""
        try:
            self._together(tree, group, suite)
        except (NoEnd, TrialFailed) as failure:
            names = ", ".join(mutant.name for mutant in group)
            print(f"{suite}: no verdict of {names}: {failure}", flush=True)

    def _together(self, tree: Tree, group: Sequence[Mutant], suite: str) -> None:
        """Write the verdicts of mutants that one run of all tests has together."""
        present = []
        for mutant in group:
            try:
                tree.write([mutant])
                present.append(mutant)
            except TextNotFound:
                self._write(mutant, suite, NO_TEXT, "", 0)
        tree.write(present)
        answer = tree.pytest("-m", SUITES[suite], "tests", ignored=[*textual_tests(), *self.failing])
        failed = self._counted(answer.failed)

        def first_failure(part: Sequence[Mutant]) -> str:
            tree.write(part)
            again = tree.pytest("-x", "-m", SUITES[suite], *failed, ignored=list(textual_tests()))
            return again.failed[0] if again.failed else ""

        killers = bisected(present, first_failure) if failed else {}
        for mutant in present:
            killer = killers.get(mutant.name, "")
            self._write(mutant, suite, KILLED if killer else SURVIVES, killer, answer.seconds / len(present))
        if failed and not killers:
            names = ", ".join(mutant.name for mutant in present)
            print(f"{suite}: {failed[0]} fails only where all of these are together: {names}", flush=True)

    def _counted(self, failed: Sequence[str]) -> list[str]:
        """Of failed tests those that pass without a mutant; the others count for nothing from now on."""
        with self._lock:
            unknown = [name for name in failed if name not in self._passing | self.failing]
            if unknown:
                fails = set(self.sound.pytest(*unknown).failed)
                self.failing |= fails
                self._passing |= set(unknown) - fails
            for name in self.failing.intersection(unknown):
                print(f"{name} fails without a mutant: it counts for nothing", flush=True)
            return [name for name in failed if name in self._passing]

    def _has_units(self, suite: str) -> bool:
        """Whether dbt's unit tests are a part of the suite."""
        if not (self.sound.path / UNIT_TESTS).exists():
            return False
        return self.sound.pytest("--collect-only", "-m", SUITES[suite], UNIT_TESTS).count > 0

    def _write(self, mutant: Mutant, suite: str, verdict: str, killer: str, seconds: float) -> None:
        self.results.write(Result(self.column, mutant.name, suite, verdict, killer, round(seconds), self.commit[:8]))


def near(file: str, tree: Path) -> list[str]:
    """The folders of tests of a file of the product, the nearest first: tests are arranged as the code is."""
    folders = sorted(path for path in (tree / "tests").rglob("*") if path.is_dir())
    nearest: list[str] = []
    for part in reversed(PurePosixPath(file).with_suffix("").parts):
        for folder in folders:
            name = folder.relative_to(tree).as_posix()
            if folder.name in (part, ALSO.get(part)) and name not in nearest:
                nearest.append(name)
    return nearest


def grouped(mutants: Iterable[Mutant], graph: Mapping[str, Any]) -> list[list[Mutant]]:
    """Groups to be applied together: never two in one file, and of dbt never two on one model or its ancestors."""
    nodes_of, parents = graph["nodes_of"], graph["parents"]

    def ancestors(keys: set[str]) -> set[str]:
        reached, waiting = set[str](), list(keys)
        while waiting:
            if (key := waiting.pop()) not in reached:
                reached.add(key)
                waiting += parents.get(key, [])
        return reached

    changed = {mutant.name: set(nodes_of.get(mutant.file, ())) for mutant in mutants}
    above = {name: ancestors(keys) for name, keys in changed.items()}

    def disturb(left: Mutant, right: Mutant) -> bool:
        is_sql = left.file.startswith("dbt_project/") and right.file.startswith("dbt_project/")
        # What is no model, seed or macro, such as dbt_project.yml, may change any of them.
        is_of_all = is_sql and not (changed[left.name] and changed[right.name])
        return (
            left.file == right.file
            or is_of_all
            or bool(changed[left.name] & above[right.name] or changed[right.name] & above[left.name])
        )

    groups: list[list[Mutant]] = []
    for mutant in mutants:
        fitting = [group for group in groups if not any(disturb(mutant, other) for other in group)]
        if fitting:
            fitting[0].append(mutant)
        else:
            groups.append([mutant])
    return groups


def bisected(group: Sequence[Mutant], first_failure: Callable[[Sequence[Mutant]], str]) -> dict[str, str]:
    """Mutant -> the test that fails with it alone, by halving; `first_failure` is empty where every test passes."""
    if len(group) == 1:
        failure = first_failure(group)
        return {group[0].name: failure} if failure else {}
    middle = len(group) // 2
    killers: dict[str, str] = {}
    for part in (group[:middle], group[middle:]):
        if len(part) == 1 or first_failure(part):
            killers |= bisected(part, first_failure)
    return killers
