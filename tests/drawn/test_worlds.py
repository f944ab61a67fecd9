"""Worlds of watts and tokens per second are booked as they were, however they were seen."""

from __future__ import annotations

from pathlib import Path

from tests.drawn.cells import drawn, plant
from tests.drawn.verdicts import wrong_figures

SEED = 1
# Of all genes, those whose worlds the book gets right. The others are in `make drawn ARGS=--worlds`.
TOPOLOGIES = ("single", "tensor_parallel", "replicas", "two_models_of_a_node", "swapped_model")
EVENTS = ("nothing", "counter reset", "engine restart")


def test_the_same_seed_draws_the_same_world() -> None:
    first, second = drawn(SEED, 7), drawn(SEED, 7)
    assert (first.genes, first.world.truths()) == (second.genes, second.world.truths())


def test_what_the_models_of_a_world_hold_is_what_its_boards_draw() -> None:
    cell = drawn(SEED, 1, "tensor_parallel", "nothing")
    watts = sum(cell.world.watts(board).total() for board in cell.world.boards.values())
    assert sum(truth.joules for truth in cell.world.truths().values()) == watts


def test_worlds_are_booked_as_they_were(tmp_path: Path) -> None:
    genes = [(topology, event) for topology in TOPOLOGIES for event in EVENTS] * 4
    cells = [drawn(SEED, number, *of_cell) for number, of_cell in enumerate(genes)]
    book = plant(tmp_path, cells, marts=("model_daily",))
    book.run()
    assert list(wrong_figures(book, cells)) == []
