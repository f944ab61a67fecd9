"""A node whose boards report no power: its wall meter is held by those whom the labels of its boards name.

Every engine writes 10 output tokens per second, so a joule per token is a tenth of its watts.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.planted import (
    DAY_SECONDS,
    ENERGY,
    INPUT,
    OUTPUT,
    Series,
    board,
    pod,
    rising,
    steady,
    vllm,
)
from tests.shapes import Seen, Shape, shape

UTIL, WALL = "DCGM_FI_DEV_GPU_UTIL", "ipmi_dcmi_power_consumption_watts"
TOKENS = 10 * DAY_SECONDS


def serving(name: str) -> list[Series]:
    """The counters of an engine that serves a model of its own name."""
    return [(metric, vllm(f"{name}-0", name), rising(rate)) for metric, rate in ((OUTPUT, 10), (INPUT, 30))]


def silent(uuid: str, node: str, of_pod: str | None, **labels: str) -> Series:
    """A board that reports its utilisation and no power."""
    return UTIL, {**board(f"GPU-{uuid}", node), **(pod(of_pod) if of_pod else {}), **labels}, steady(80)


def wall(node: str, watts: float) -> Series:
    return WALL, {"nodename": node}, steady(watts)


def planted() -> list[Series]:
    return [
        *(one for name in ("behind", "left", "right", "worker", "half") for one in serving(name)),
        # A leader on a board with a meter; its worker's two boards are behind the wall.
        (ENERGY, {**board("GPU-behind", "n-front"), **pod("behind-0")}, rising(300_000)),
        silent("behind-1", "n-behind", "behind-0-1"),
        silent("behind-2", "n-behind", "behind-0-1"),
        wall("n-behind", 600),
        # Two engines behind one wall.
        silent("left", "n-both", "left-0"),
        silent("right", "n-both", "right-0"),
        wall("n-both", 400),
        # The exporter maps no pods.
        silent("nameless", "n-nameless", None),
        wall("n-nameless", 500),
        # One board is held, the other is free.
        silent("half-1", "n-half", "half-0"),
        silent("half-2", "n-half", None),
        wall("n-half", 300),
        # The twin: a board with a meter is its engine's, and the wall measures the host.
        (ENERGY, {**board("GPU-worker", "n-worker"), **pod("worker-0")}, rising(200_000)),
        silent("worker-2", "n-worker", "worker-0"),
        wall("n-worker", 350),
    ]


RATES = [{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "source": "contract"}]
WALLS = shape("walls", planted, cost_rates=RATES)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(WALLS)


def rows(book: Seen, model: str) -> list[tuple]:
    columns = (
        "meter_scope, device_type, output_tokens::double, energy_joules::double, capacity_cost_usd::double,"
        " joules_per_output_token"
    )
    return book.query(f"select {columns} from marts.model_daily where model = ? order by meter_scope", [model])


def test_the_worker_behind_the_wall_is_its_engines(book: Seen) -> None:
    """One board, and two behind the wall: a third and two thirds of the tokens, and of 144 USD of three A100. In all
    (300 + 600) W / 10 tokens per second = 90 J per token; 30 without the wall's 600 W."""
    assert rows(book, "behind") == [
        ("board", "a100-sxm4-80gb", TOKENS / 3, 300.0 * DAY_SECONDS, pytest.approx(48), 90.0),
        ("node", "a100-sxm4-80gb", TOKENS * 2 / 3, 600.0 * DAY_SECONDS, pytest.approx(96), 90.0),
    ]


@pytest.mark.parametrize(("model", "node"), [("left", "n-both"), ("half", "n-half")])
def test_a_wall_that_two_engines_or_a_free_board_share_is_unknown(book: Seen, model: str, node: str) -> None:
    """How many of its watts are whose is unknown: no joule is an engine's."""
    assert rows(book, model) == [("none", "none", TOKENS, None, None, None)]
    assert book.query("select distinct model, engine from marts.energy_ledger where node = ?", [node]) == [
        ("__unknown__", "__unknown__")
    ]


def test_the_wall_of_a_node_with_a_metered_board_measures_its_host(book: Seen) -> None:
    ((*_, per_token),) = rows(book, "worker")
    assert per_token is None  # the second board is the same engine's, and has no power
    assert book.query("select distinct node from marts.unmetered_devices") == [("n-worker",)]


def test_an_exporter_that_maps_no_pods_says_nothing_of_who_holds_its_boards(book: Seen) -> None:
    found = "select model, unknown_reason, sum(energy_joules)::double from marts.energy_ledger"
    assert book.query(f"{found} where node = 'n-nameless' group by all") == [
        ("__unknown__", "no_claimant", 500.0 * DAY_SECONDS)
    ]


def test_no_date_is_held_back_and_no_board_is_advised_as_free(book: Seen) -> None:
    assert book.query("select * from marts.free_boards") == []
    assert book.query("select * from marts.held_back_dates") == []
    assert book.broken() == {}
