"""`make mutants`: whether the tests see each of many small falsifications; results are in tests/mutants/results.csv.

The mutants are tried on a commit, in trees beside this checkout, which stays as it is. A run that was stopped goes on
where it was. A row that is deleted from the results is tried again.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time

from filelock import FileLock, Timeout

from tests.mutants.listed import Mutant, mutants
from tests.mutants.results import NO_TRIAL, SUITES, SURVIVES, Results, table
from tests.mutants.trees import Tree, commit_of, trees_folder
from tests.mutants.trials import Trials


def main() -> int:
    """0, or 1 where a control is killed, a mutant could not be tried, or one moved down in the table."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("names", nargs="*", default=["*"], help="of these mutants, such as 'pue-*' (all)")
    parser.add_argument(
        "--checkout", default="HEAD", help="the commit, or a checkout, whose tests and code are tried (HEAD)"
    )
    parser.add_argument("--column", default="after", help="the name of these tests among the results (after)")
    parser.add_argument("--suite", choices=SUITES, help="only this suite (first test, then test-rest on its survivors)")
    parser.add_argument("--jobs", type=int, default=2, help="how many trees are broken at a time (2)")
    parser.add_argument("--seconds", type=int, default=180, help="of the processor, for each mutant alone (180)")
    parser.add_argument("--alone", action="store_true", help="leave out the runs of all tests")
    parser.add_argument("--hours", type=float, default=4, help="of each suite, after which no trial begins (4)")
    parser.add_argument(
        "--table", nargs=2, metavar=("BEFORE", "AFTER"), help="only print two columns beside each other"
    )
    chosen = parser.parse_args()
    results = Results()
    matching = [
        mutant for name, mutant in mutants().items() if any(fnmatch.fnmatch(name, wanted) for wanted in chosen.names)
    ]
    if chosen.table:
        lines, moved_down = table(results, [mutant.name for mutant in matching], *chosen.table)
        print("\n".join(lines))
        return 1 if moved_down else 0
    try:
        with FileLock(trees_folder() / "lock", timeout=0):
            _try(chosen, matching, results)
    except Timeout:
        print("another `make mutants` of this user is running: wait for it", file=sys.stderr)
        return 2
    killed = [mutant.name for mutant in matching if results.killed_in(chosen.column, mutant.name) in SUITES]
    controls = [mutant.name for mutant in matching if mutant.control and mutant.name in killed]
    print(f"{len(killed)} of {len(matching)} mutants are killed")
    failed = [
        mutant
        for mutant in matching
        if NO_TRIAL in [results.verdict(chosen.column, mutant.name, suite) for suite in SUITES]
    ]
    for mutant in failed:
        print(f"{mutant.name} was not tried: {results.killer(chosen.column, mutant.name)}")
    for name in controls:
        print(
            f"{name} changes no figure, and {results.killer(chosen.column, name)} kills it: does this test read text?"
        )
    return 1 if controls or failed else 0


def _try(chosen: argparse.Namespace, matching: list[Mutant], results: Results) -> None:
    commit = commit_of(chosen.checkout)
    trees = [Tree.of(commit, str(number)) for number in range(1, chosen.jobs + 1)]
    trials = Trials(
        chosen.column,
        commit,
        trees,
        Tree.of(commit, "sound"),
        results,
        chosen.seconds,
    )
    for suite in [chosen.suite] if chosen.suite else SUITES:
        is_first = suite == next(iter(SUITES))
        alive = [
            mutant for mutant in matching if is_first or results.verdict(chosen.column, mutant.name, "test") == SURVIVES
        ]
        trials.run(alive, suite, until=time.monotonic() + 3600 * chosen.hours, is_alone=chosen.alone)
    for tree in (*trees, trials.sound):
        tree.remove()


if __name__ == "__main__":
    sys.exit(main())
