"""Who frees a larger node by moving to a smaller one that others leave: nodes and holders by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from pipelines.analysis import moves

Board = tuple[str | None, str | None, float]  # unit, holder (None: free), GPUs
EIGHT_AND_FOUR: list[Board] = [("n8", "mover", 8), ("n4", "left", 4)]


def found(
    boards: list[Board],
    *movers: tuple[str, float],
    leavers: tuple[str, ...] = ("left",),
    types: tuple[str, ...] = (),
    ranks: tuple[int, ...] = (),
) -> list[tuple[object, ...]]:
    """Holder, node, freed node, GPUs more, whose advice comes first, of movers (holder, GPUs that it needs)."""
    held = pd.DataFrame(boards, columns=["unit", "holder", "gpus"])
    held = held.assign(site="west", device_type=types or "h100")
    frame = pd.DataFrame(movers, columns=["holder", "gpus_then"]).assign(rank=ranks or 0)
    made = moves.found(frame, leavers, held)
    return [(frame["holder"][index], *row) for index, row in zip(made.index, made.values.tolist(), strict=True)]


def test_a_smaller_size_moves_to_the_smaller_node_that_another_leaves() -> None:
    assert found(EIGHT_AND_FOUR, ("mover", 4)) == [("mover", "n4", "n8", 4, "left")]


@pytest.mark.parametrize(
    ("boards", "gpus", "leavers"),
    [
        (EIGHT_AND_FOUR, 4, ()),  # n4 stays in use
        (EIGHT_AND_FOUR, 5, ("left",)),  # it does not fit there
        ([("n8", "mover", 8), ("m8", "left", 8)], 4, ("left",)),  # as large: nothing is gained
        ([("n8", "mover", 4), ("n8", "other", 4), ("n4", "left", 4)], 4, ("left",)),  # another one works on n8
        ([("n8", "mover", 8), ("n4", "left", 3), ("n4", "other", 1)], 4, ("left",)),  # ... or on n4
        ([("n8", "mover", 8), ("n8 too", "mover", 8), ("n4", "left", 4)], 4, ("left",)),  # it is on two nodes
        ([(None, "mover", 8), ("n4", "left", 4)], 4, ("left",)),  # its node is not known
        ([(f"GPU-{n}", "mover", 1) for n in range(8)] + [("GPU-9", "left", 1)], 1, ("left",)),  # rented by the board
        (EIGHT_AND_FOUR, float("nan"), ("left",)),  # its size is not known
    ],
)
def test_nothing_moves_without_gain(boards: list[Board], gpus: float, leavers: tuple[str, ...]) -> None:
    assert found(boards, ("mover", gpus), leavers=leavers) == []


def test_nothing_moves_to_another_type_of_accelerator() -> None:
    assert found(EIGHT_AND_FOUR, ("mover", 4), types=("h100", "a100")) == []
    assert found(EIGHT_AND_FOUR, ("mover", 4), types=("h100", "h100")) == [("mover", "n4", "n8", 4, "left")]


def test_what_others_leave_beside_it_or_is_free_keeps_no_node() -> None:
    """A mover of unchanged size, beside four that are left, or free; and a node that is empty already."""
    shared: list[Board] = [("n8", "mover", 4), ("n8", "left", 4), ("n4", "left", 4)]
    assert found(shared, ("mover", 4)) == [("mover", "n4", "n8", 4, "left")]
    free: list[Board] = [("n8", "mover", 4), ("n8", None, 4), ("n4", None, 4)]
    assert found(free, ("mover", 4)) == [("mover", "n4", "n8", 4, None)]


def test_a_node_has_one_mover_the_lower_rank_first_and_then_who_frees_more() -> None:
    boards: list[Board] = [("n4", "left", 4), ("n5", "small", 5), ("n8", "mover", 8)]
    assert found(boards, ("small", 4), ("mover", 4)) == [("mover", "n4", "n8", 4, "left")]
    assert found(boards, ("small", 4), ("mover", 4), ranks=(0, 1)) == [("small", "n4", "n5", 1, "left")]
    # Each has one where there are two, the smallest that holds it.
    two: list[Board] = [*boards, ("n3", "left", 3)]
    assert found(two, ("small", 3), ("mover", 4)) == [
        ("mover", "n4", "n8", 4, "left"),
        ("small", "n3", "n5", 2, "left"),
    ]
