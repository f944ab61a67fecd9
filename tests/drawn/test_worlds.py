"""Worlds of watts and tokens per second are booked as they were, however they were seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.books import Book
from tests.drawn.cells import Cell, drawn, made, plant
from tests.drawn.genes import FITS, ORDINARY, VALUES, drawn_genes
from tests.drawn.verdicts import wrong_figures

SEED, COUNT, APART = 1, 200, 6
# Short and long intervals, in bookings of their own.
OTHER_GRIDS = {60: 40, 900: 40}


RETOLD = ("pages", "names", "board", "tokens", "server")


def by_themselves(number: int) -> list[Cell]:
    """Worlds of each of which one thing is odd, and what that needs, from this number on."""
    odd = [(gene, value) for gene in RETOLD for value in VALUES[gene][1:]]
    needed = [{gene: values[0] for gene, values in FITS.get(one, {}).items()} for one in odd]
    return [
        made(SEED, number + place, {**ORDINARY, **needed[place], gene: value})
        for place, (gene, value) in enumerate(odd)
    ]


def first_of(seed: int, count: int) -> list[Cell]:
    """The first cells of a seed."""
    return [drawn(seed, number) for number in range(count)]


def rows(book: Book, cells: Sequence[Cell]) -> dict[str, set[tuple[object, ...]]]:
    """Every row of the two ledgers at the sites of these cells."""
    sites = tuple(f"{cell.name}-site" for cell in cells)
    return {
        mart: set(book.query(f"select * from marts.{mart} where site in {sites}"))
        for mart in ("energy_ledger", "token_ledger")
    }


def test_the_same_seed_draws_the_same_world() -> None:
    first, second = drawn(SEED, 7), drawn(SEED, 7)
    assert (first.genes, first.world.truths()) == (second.genes, second.world.truths())


def test_each_retelling_is_drawn_by_itself_too() -> None:
    shown = {value for cell in by_themselves(0) for gene in RETOLD if (value := cell.genes[gene]) != ORDINARY[gene]}
    assert shown == {value for gene in RETOLD for value in VALUES[gene][1:]}


def test_setting_one_gene_leaves_all_others() -> None:
    before = drawn_genes(SEED, 7)
    assert drawn_genes(SEED, 7, step="30 s") == before | {"step": "30 s"}


@pytest.mark.parametrize("topology", VALUES["topology"])
def test_what_the_models_of_a_world_hold_is_at_most_what_its_boards_draw(topology: str) -> None:
    world = drawn(SEED, 1, topology=topology).world
    held = sum(truth.joules for truth in world.truths().values())
    assert 0 < held <= world.joules() * (1 + 1e-12)


def test_worlds_are_booked_as_they_were_and_alone_as_among_others(tmp_path: Path) -> None:
    cells = first_of(SEED, COUNT) + by_themselves(COUNT)
    among = plant(tmp_path / "among", cells)
    among.run()
    assert wrong_figures(among, cells) == []
    assert among.broken() == {}
    apart = plant(tmp_path / "apart", cells[:APART], marts=("energy_ledger", "token_ledger"))
    apart.run()
    found = rows(apart, cells[:APART])
    assert found == rows(among, cells[:APART])
    assert all(found.values())


@pytest.mark.long
@pytest.mark.parametrize("grid_seconds", OTHER_GRIDS)
def test_worlds_are_booked_as_they_were_in_other_intervals(tmp_path: Path, grid_seconds: int) -> None:
    cells = first_of(grid_seconds, OTHER_GRIDS[grid_seconds])
    book = plant(tmp_path, cells, grid_seconds=grid_seconds)
    book.run()
    assert wrong_figures(book, cells) == []
    assert book.broken() == {}
