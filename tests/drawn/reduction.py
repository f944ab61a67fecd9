"""Reduction of cells that are wrong: the fewest genes that still fail, found for all of them in a few bookings."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.drawn.cells import Cell, plant
from tests.drawn.genes import ORDINARY
from tests.drawn.verdicts import Verdict, verdicts

ROUNDS = 12


def reduced(found: Sequence[Verdict], grid_seconds: int) -> list[Verdict]:
    """Each verdict's cell with as many genes ordinary as leave it of the same kind, and that cell's verdict.

    In each round each cell is tried with one odd gene less, all cells and genes in one booking; the first that is still
    of its kind goes on.
    """
    left = list(found)
    for _ in range(ROUNDS):
        tried: list[Cell] = []
        of: list[int] = []
        for place, verdict in enumerate(left):
            for gene, value in verdict.cell.genes.items():
                if value != ORDINARY[gene]:
                    tried.append(verdict.cell.with_genes(10_000 + len(tried), **{gene: ORDINARY[gene]}))
                    of.append(place)
        better = {
            place: verdict
            for place, verdict in reversed(list(zip(of, booked(tried, grid_seconds), strict=True)))
            if verdict.kind == left[place].kind
        }
        if not better:
            break
        left = [better.get(place, verdict) for place, verdict in enumerate(left)]
    return left


def booked(cells: Sequence[Cell], grid_seconds: int) -> list[Verdict]:
    """The verdicts of cells that are booked together, in intervals of so many seconds."""
    if not cells:
        return []
    with tempfile.TemporaryDirectory() as folder:
        book = plant(Path(folder), cells, grid_seconds=grid_seconds)
        book.run()
        return verdicts(book, cells)
