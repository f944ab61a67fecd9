"""Rules of the book, each broken in one place: what the drawn worlds must find.

`make drawn ARGS='--files 0 --cells 0 --mutations'` books the same worlds by each broken rule and lists the rules that
break without a wrong figure. The rules are the mutants that have `worlds` (tests/mutants/mutants.yaml). Keep out how a
project is broken (`tests.books.broken_project`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.books import Book, broken_project
from tests.drawn.cells import plant
from tests.drawn.verdicts import Verdict, verdicts
from tests.mutants.listed import mutants

MUTATIONS = tuple(mutant for mutant in mutants().values() if mutant.worlds)


def not_found(right: Sequence[Verdict], grid_seconds: int) -> Iterator[str]:
    """Book the cells of these verdicts, which the unbroken project gave, by each broken rule; a sentence for each rule
    that breaks without a cell that becomes wrong or falsely flagged, and without a date that is held back."""
    cells = [verdict.cell for verdict in right]
    for mutation in MUTATIONS:
        with tempfile.TemporaryDirectory() as folder:
            project = broken_project(Path(folder, "project"), mutant=mutation.name)
            book: Book = replace(plant(Path(folder), cells, grid_seconds=grid_seconds), project=project)
            book.start_empty()
            book.run()
            broken = [
                now.kind for before, now in zip(right, verdicts(book, cells), strict=True) if now.kind != before.kind
            ]
            invariants = sorted({name for (name,) in book.query("select invariant from marts.held_back_dates")})
        wrong, alarms = broken.count("wrong"), broken.count("false alarm")
        print(
            f"mutation: {mutation.worlds}: {wrong} more wrong, {alarms} more false alarms of {len(cells)};"
            f" held back by {', '.join(invariants) or 'nothing'}",
            flush=True,
        )
        if not (wrong or alarms or invariants):
            yield f"nothing shows that this rule was broken: {mutation.worlds}"
