"""Which money of advice is saved now, at a date or never. A month has 730 hours: 16 GPUs at 1 USD are 11,680 USD."""

from __future__ import annotations

from datetime import date
from typing import Any

import pandas as pd
import pytest

from pipelines.analysis import avoidable

TODAY = date(2026, 11, 26)
PRICES = ["site", "device_type", "on_date", "paid_as", "gpus", "usd_per_gpu_hour", "valid_from", "valid_to"]
Board = tuple[str | None, str | None, float]  # unit, holder (None: free), GPUs


def advice(name: str, freed: float, usd: float | None = None, energy: float | None = None) -> dict[str, Any]:
    """A row that frees so many GPUs of the deployment of its name; without its own price, at 1 USD an hour."""
    return {
        "recommendation_id": name, "exclusive_group_id": name, "holder": name, "site": "west", "device_type": "h100",
        "freed_gpus": freed, "saving_energy_usd_month": energy, "move_to_node": None,
        "saving_usd_month_if_released": freed * 730 if usd is None else usd,
    }  # fmt: skip


def paid(paid_as: str, usd: float, gpus: float | None = None, start: str = "2026-01-01", end: str | None = None) -> Any:
    until = None if end is None else date.fromisoformat(end)
    return ("west", "h100", TODAY, paid_as, gpus, usd, date.fromisoformat(start), until)


def split(rows: list[dict[str, Any]], boards: list[Board], prices: list[Any]) -> dict[str, tuple[Any, ...]]:
    """Name -> USD now, USD later, the date, USD never."""
    held = pd.DataFrame(
        [("west", "h100", *board) for board in boards], columns=["site", "device_type", "unit", "holder", "gpus"]
    )
    rows = [{**row, "current_gpus": sum(n for _, name, n in boards if name == row["holder"])} for row in rows]
    made = avoidable.split(pd.DataFrame(rows), held, pd.DataFrame(prices, columns=PRICES)).set_index(
        "recommendation_id"
    )
    return {
        name: tuple(None if pd.isna(value) else value for value in values)
        for name, *values in made[
            ["avoidable_now_usd_month", "avoidable_later_usd_month", "avoidable_from", "not_avoidable_usd_month"]
        ].itertuples()
    }


SIXTEEN: list[Board] = [("n1", "a", 8), ("n2", "a", 8)]


@pytest.mark.parametrize(
    ("prices", "expected"),
    [
        # All 16 are committed: nothing is saved before the commitment's end.
        ([paid("on_demand", 2), paid("committed", 1, 16, end="2027-07-01")], (0, 11_680, date(2027, 7, 1), 0)),
        ([paid("on_demand", 1)], (11_680, 0, None, 0)),
        ([paid("spot", 1, 16), paid("on_demand", 3)], (11_680, 0, None, 0)),
        # What is written off is spent already.
        ([paid("owned", 1)], (0, 0, None, 11_680)),
        ([paid("committed", 1, 16)], (0, 0, None, 11_680)),
        # 8 on demand at 3 USD, then 8 committed: 17,520 and 5,840.
        ([paid("on_demand", 3), paid("committed", 1, 8, end="2027-07-01")], (17_520, 5_840, date(2027, 7, 1), 0)),
        # Of 24 committed 8 are unused: they end first, and nothing is saved by that.
        (
            [paid("committed", 3, 8, end="2027-01-01"), paid("committed", 1, 16, end="2028-01-01")],
            (0, 11_680, date(2028, 1, 1), 0),
        ),
        # By end: 8 in January at 3 USD, 8 in July at 1 USD; all of it from July on.
        (
            [paid("committed", 1, 8, end="2027-07-01"), paid("committed", 3, 8, end="2027-01-01")],
            (0, 17_520 + 5_840, date(2027, 7, 1), 0),
        ),
        # What replaces a commitment at its end binds on, also within the month after it.
        (
            [
                paid("committed", 3, 16, end="2027-01-01"),
                paid("committed", 1, 16, start="2027-01-10", end="2028-01-01"),
                paid("on_demand", 2),
            ],
            (0, 11_680, date(2028, 1, 1), 0),
        ),
        # One that begins in a year binds nothing now.
        ([paid("on_demand", 1), paid("committed", 1, 16, start="2027-12-01", end="2028-12-01")], (11_680, 0, None, 0)),
        ([paid("on_demand", 1), paid("committed", 1, 16, start="2026-12-01", end="2027-12-01")],
            (0, 11_680, date(2027, 12, 1), 0)),
        # Owned accelerators stay last: 8 committed ones can be given back at their end.
        ([paid("owned", 3), paid("committed", 1, 8, end="2027-07-01")], (0, 5_840, date(2027, 7, 1), 17_520)),
        # No price: not known, and never 0.
        ([], (None, 0, None, 0)),
    ],
)  # fmt: skip
def test_what_is_paid_for_by_contract_is_saved_at_its_end(prices: list[Any], expected: tuple[Any, ...]) -> None:
    assert split([advice("a", 16)], SIXTEEN, prices) == {"a": expected}


def test_two_pieces_of_advice_never_claim_the_same_hours() -> None:
    """24 GPUs: 8 on demand at 2 USD, 8 at a spot price of 1.50, 8 committed at 1. Whose saving is greater chooses
    first; of equal ones the first by name."""
    prices = [paid("on_demand", 2), paid("spot", 1.5, 8), paid("committed", 1, 8, end="2027-01-01")]
    boards: list[Board] = [("n1", "a", 8), ("n2", "b", 8), ("n3", "c", 8)]
    rows = [advice("c", 8), advice("b", 8), advice("a", 8)]
    assert split(rows, boards, prices) == {
        "a": (11_680, 0, None, 0),
        "b": (8_760, 0, None, 0),
        "c": (0, 5_840, date(2027, 1, 1), 0),
    }
    rows[0]["saving_usd_month_if_released"] = 9_999
    assert split(rows, boards, prices)["c"] == (11_680, 0, None, 0)
    # Alone each of them is off what is on demand.
    assert split([advice("b", 8)], boards, prices) == {"b": (11_680, 0, None, 0)}


def test_what_one_piece_of_advice_leaves_of_the_hours_on_demand_is_the_next_ones() -> None:
    """12 of 20 GPUs are on demand at 2 USD: 8 for a, and 4 for b, whose other 4 are committed."""
    prices = [paid("on_demand", 2), paid("committed", 1, 8, end="2027-01-01")]
    boards: list[Board] = [("n1", "a", 8), ("n2", "b", 8), ("n3", "c", 4)]
    assert split([advice("a", 8), advice("b", 8)], boards, prices) == {
        "a": (11_680, 0, None, 0),
        "b": (5_840, 2_920, date(2027, 1, 1), 0),
    }


def test_owned_accelerators_are_given_back_last() -> None:
    prices = [paid("owned", 3), paid("committed", 1, 8, end="2027-07-01")]
    assert split([advice("a", 8)], [("n1", "a", 8), ("n2", "b", 8)], prices) == {"a": (0, 5_840, date(2027, 7, 1), 0)}


def test_what_is_free_already_is_given_back_first() -> None:
    prices = [paid("on_demand", 2), paid("committed", 1, 8, end="2027-01-01")]
    assert split([advice("a", 8)], [("n1", "a", 8), ("n2", None, 8)], prices) == {"a": (0, 5_840, date(2027, 1, 1), 0)}
    # A free board of a node that is used is not given back, so its hours are not saved before.
    used: list[Board] = [("n1", "a", 8), ("n2", None, 4), ("n2", "b", 4)]
    assert split([advice("a", 8)], used, prices) == {"a": (11_680, 0, None, 0)}


@pytest.mark.parametrize(
    ("rows", "boards", "expected"),
    [
        # Half of a node: the other half works on.
        ([advice("a", 4)], [("n1", "a", 8)], {"a": (0, 0, None, 2_920)}),
        ([advice("a", 4)], [("n1", "a", 4), ("n1", "b", 4)], {"a": (0, 0, None, 2_920)}),
        # Its twin: rented by the board, each board is a unit.
        ([advice("a", 4)], [(f"GPU-{n}", "a", 1) for n in range(8)], {"a": (2_920, 0, None, 0)}),
        # Both who share a node leave it; or the rest is free.
        (
            [advice("a", 4), advice("b", 4)],
            [("n1", "a", 4), ("n1", "b", 4)],
            {"a": (2_920, 0, None, 0), "b": (2_920, 0, None, 0)},
        ),
        ([advice("a", 4)], [("n1", "a", 4), ("n1", None, 4)], {"a": (2_920, 0, None, 0)}),
        # 12 of 24: what stays is on two nodes, one is empty.
        ([advice("a", 12)], [("n1", "a", 8), ("n2", "a", 8), ("n3", "a", 8)], {"a": (5_840, 0, None, 2_920)}),
        # Own nodes of 4 and 8, of which 8 GPUs leave: the greater one.
        ([advice("a", 8)], [("n1", "a", 4), ("n2", "a", 8)], {"a": (5_840, 0, None, 0)}),
        # A board that two share is given back once both have left it.
        ([advice("a", 0.5)], [("GPU-1", "a", 0.5), ("GPU-1", "b", 0.5)], {"a": (0, 0, None, 365)}),
        # 99 of 100 are not all of them: one node of two empties.
        ([advice("a", 99)], [("n1", "a", 50), ("n2", "a", 50)], {"a": (36_500, 0, None, 35_770)}),
        # Where it is, is not known.
        ([advice("a", 8)], [(None, "a", 8)], {"a": (0, 0, None, 5_840)}),
        ([advice("a", 8)], [], {"a": (0, 0, None, 5_840)}),
    ],
)
def test_a_board_of_a_node_that_is_still_used_is_not_handed_back(
    rows: list[dict[str, Any]], boards: list[Board], expected: dict[str, tuple[Any, ...]]
) -> None:
    assert split(rows, boards, [paid("on_demand", 1)]) == expected


def test_electricity_is_saved_now_and_every_amount_has_its_basis() -> None:
    rows = [advice("a", 16, energy=30), {**advice("b", 0, energy=5), "saving_usd_month_if_released": None}]
    prices = [paid("on_demand", 2), paid("committed", 1, 12, end="2027-01-01")]
    boards = pd.DataFrame(
        [("west", "h100", *board) for board in (*SIXTEEN, ("n3", "b", 0))],
        columns=["site", "device_type", "unit", "holder", "gpus"],
    )
    made = avoidable.split(pd.DataFrame(rows).assign(current_gpus=16), boards, pd.DataFrame(prices, columns=PRICES))
    assert made[["recommendation_id", "saving_now_usd_month"]].values.tolist() == [["a", 5_870], ["b", 5]]
    assert made["avoidable_basis"].tolist()[0] == "4 on demand; 12 committed until 2027-01-01"
    assert pd.isna(made["avoidable_now_usd_month"][1]) and pd.isna(made["avoidable_basis"][1])


def test_what_is_only_tried_frees_nothing_and_keeps_its_node() -> None:
    """A trial on half of node n1 is beside 4 GPUs that another deployment leaves: those stay paid for, 4 × 730 USD."""
    boards: list[Board] = [("n1", "tried", 4), ("n1", "left", 4)]
    rows = [advice("left", 4), advice("tried", float("nan"), usd=float("nan"))]
    assert split(rows, boards, [paid("on_demand", 1)]) == {
        "left": (0, 0, None, 2920),
        "tried": (None, None, None, None),
    }


LEFT = [advice("left", 4), advice("larger", 4)]  # 4 of the 8 that "larger" has are enough


def test_who_moves_to_a_node_that_others_left_gives_back_its_own() -> None:
    """Of n1's 8 GPUs 4 are enough, and the 4 of n2 are left. On n1 they are beside GPUs in use: 2,920 USD of n2 alone
    are saved. On n2 they free all of n1: 8 × 730 USD, which both rows freed."""
    boards: list[Board] = [("n1", "larger", 8), ("n2", "left", 4)]
    prices = [paid("on_demand", 1)]
    assert split(LEFT, boards, prices) == {"left": (2_920, 0, None, 0), "larger": (0, 0, None, 2_920)}
    moved = [LEFT[0], {**LEFT[1], "move_to_node": "n2"}]
    assert split(moved, boards, prices) == {"left": (2_920, 0, None, 0), "larger": (2_920, 0, None, 0)}


def test_a_move_that_frees_nothing_itself_frees_what_others_leave_on_its_node() -> None:
    """4 of n1's 8 GPUs are left, and the 4 of n2: with the mover on n2 all 8 of n1 are handed back, and of n2 none."""
    boards: list[Board] = [("n1", "stays", 4), ("n1", "beside", 4), ("n2", "left", 4)]
    rows = [advice("left", 4), advice("beside", 4), {**advice("stays", 0), "move_to_node": "n2"}]
    found = split(rows, boards, [paid("on_demand", 1)])
    assert {name: amounts[0] for name, amounts in found.items() if name != "stays"} == {"left": 2_920, "beside": 2_920}
    # Of six on n2 it needs four: the other two are beside it.
    six = split([*rows[1:], advice("left", 6)], [*boards[:2], ("n2", "left", 6)], [paid("on_demand", 1)])
    assert six["left"] == (2_920, 0, None, 1_460)


def test_a_move_to_a_node_that_is_free_gives_back_as_many_hours_for_it() -> None:
    """n2's four are free and used then, four of n1 instead: given back before any row, at 2 USD; then "larger"."""
    prices = [paid("on_demand", 2), paid("committed", 1, 8, end="2027-01-01")]
    boards: list[Board] = [("n1", "larger", 8), ("n2", None, 4)]
    rows = [{**advice("larger", 4), "move_to_node": "n2"}]
    assert split(rows, boards, prices) == {"larger": (0, 2_920, date(2027, 1, 1), 0)}
