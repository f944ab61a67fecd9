"""Accelerators that a node has and no meter shows: a cost row of their own, and none where all are metered.

Boards draw 360 W all day; a GPU-hour costs 2 USD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from tests.planted import DAY, ENERGY, OUTPUT, Series, board, pod, rising, vllm
from tests.shapes import Seen, Shape, shape

A100_TYPE = "a100-sxm4-80gb"
# Site -> the boards that report there, each on the node of the site.
BOARDS = {
    "part": ("a", "free"),
    "full": ("a", "free"),
    "unstated": ("a", "free"),
    "unlit": (),
    "committed": ("a",),
    "evening": (),
    "mixed": ("a", "h"),
    "unpriced": ("a",),
}
BASES = ("variable", "usage", "allocation", "fully_loaded")


def series() -> Iterator[Series]:
    for site, boards in BOARDS.items():
        for of in boards:
            labels = {} if of == "free" else pod(f"{of}-{site}")
            if of == "h":
                labels |= {"modelName": "NVIDIA H100 80GB HBM3"}
            yield ENERGY, board(f"GPU-{of}-{site}", f"n-{site}", **labels), rising(360_000, 0, start=1e9)
            if of != "free":
                yield OUTPUT, vllm(f"{of}-{site}", f"{of}-{site}"), rising(10)


def gpus(count: int, **more: object) -> dict[str, object]:
    return {"device_type": A100_TYPE, "count": count, **more}


STATED = {
    "part": [gpus(4)],
    "full": [gpus(2)],
    "unstated": [],
    "unlit": [gpus(3)],
    "committed": [gpus(3)],
    # Local midnight is 07:00 UTC: seventeen hours of this UTC date.
    "evening": [gpus(1, valid_from=DAY), gpus(9, valid_to=DAY - timedelta(days=30))],
    # One A100 is metered, and so is an H100, which is one of the node's four all the same.
    "mixed": [gpus(4)],
    "unpriced": [{"device_type": "b200", "count": 1}, gpus(1)],
}
UNMETERED = shape(
    "unmetered",
    series,
    sites=[
        {
            "name": site,
            "zone": "unknown",
            "pue": 1.2,
            "tariff": [{"usd_per_kwh": 0.1}],
            **({"time_zone": "America/Los_Angeles"} if site == "evening" else {}),
            **({"cooling_share_of_overhead": 0.7, "operations": [{"usd_per_month": 7440.0}]} if site == "part" else {}),
        }
        for site in STATED
    ]
    + [{"name": "unmetered", "zone": "unknown", "pue": 1.2}],
    nodes=[{"name": f"n-{site}", "site": site, "host_watts": 0, "gpus": of_node} for site, of_node in STATED.items()],
    devices=[{"device_uuid": f"GPU-free-{site}", "node": f"n-{site}"} for site in BOARDS if "free" in BOARDS[site]],
    cost_rates=[
        {"device_type": A100_TYPE, "usd_per_gpu_hour": 2.0, "source": "contract"},
        {"device_type": "h100-sxm5-80gb", "usd_per_gpu_hour": 3.0, "source": "contract"},
    ],
    commitments=[
        {
            "commitment": "c",
            "site": "committed",
            "device_type": A100_TYPE,
            "gpus": 5.0,
            "usd_per_gpu_hour": 1.0,
            "valid_from": DAY,
        }
    ],
)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(UNMETERED)


def unmetered(book: Seen, site: str, basis: str = "allocation") -> list[tuple]:
    """(device type, part, USD, is_cost_complete) of the site's unmetered GPUs."""
    return book.query(
        "select device_type, part, round(cost_usd::double, 6), is_cost_complete from marts.cost_daily where site = ?"
        " and basis = ? and deployment = '__unmetered__' and model = '__unmetered__' order by device_type, part",
        [site, basis],
    )


def costs(book: Seen, site: str, deployment: str) -> dict[str, float]:
    """Part -> USD of a deployment's day by allocation."""
    return dict(
        book.query(
            "select part, round(cost_usd::double, 6) from marts.cost_daily where site = ? and basis = 'allocation'"
            " and (model = ? or deployment = ?)",
            [site, deployment, deployment],
        )
    )


@pytest.mark.parametrize("basis", BASES)
def test_what_no_meter_shows_costs_its_capacity_and_its_energy_is_unknown(book: Seen, basis: str) -> None:
    assert unmetered(book, "part", basis) == [
        (A100_TYPE, "capacity", 96.0, True),  # 2 of 4 GPUs × 24 h × 2 USD
        (A100_TYPE, "cooling", None, False),
        (A100_TYPE, "energy", None, False),
        (A100_TYPE, "overhead", None, False),
    ]


@pytest.mark.parametrize("site", ["full", "unstated"])
def test_a_node_whose_boards_are_all_metered_and_one_without_gpus_have_no_such_row(book: Seen, site: str) -> None:
    assert unmetered(book, site) == []
    # A free board is metered: it is no unmetered one, and what is not held is known.
    assert costs(book, site, "__remainder__")["capacity"] == 48.0
    assert book.query(
        "select bool_and(is_cost_complete) from marts.cost_daily where site = ? and part = 'energy'", [site]
    ) == [(True,)]


def test_the_remainder_of_energy_is_flagged_where_gpus_are_unmetered(book: Seen) -> None:
    assert book.query(
        "select distinct is_cost_complete from marts.cost_daily where site = 'part' and part = 'energy'"
        " and deployment = '__remainder__'"
    ) == [(False,)]
    # The fees are shared by what is claimed, as without the unmetered ones: 240 USD by a and the free board.
    assert costs(book, "part", "a-part")["operations"] == 120.0
    assert costs(book, "part", "__remainder__")["capacity"] == 48.0


def test_a_node_without_any_meter_is_unmetered_whole(book: Seen) -> None:
    assert unmetered(book, "unlit")[0][:3] == (A100_TYPE, "capacity", 144.0)


def test_a_count_holds_on_the_local_dates_of_the_site(book: Seen) -> None:
    assert unmetered(book, "evening")[0][:3] == (A100_TYPE, "capacity", 34.0)


def test_a_board_of_another_type_is_one_of_the_nodes(book: Seen) -> None:
    assert unmetered(book, "mixed")[0][:3] == (A100_TYPE, "capacity", 96.0)


def test_a_type_without_a_rate_is_null_and_flagged(book: Seen) -> None:
    assert unmetered(book, "unpriced") == [
        ("b200", "capacity", None, False),
        ("b200", "energy", None, False),
        ("b200", "overhead", None, False),
    ]


def test_a_commitment_covers_unmetered_gpus_before_it_is_unused(book: Seen) -> None:
    assert unmetered(book, "committed")[0][:3] == (A100_TYPE, "capacity", 48.0)  # 2 × 24 h × 1 USD
    assert costs(book, "committed", "__unused_commitment__") == {"capacity": 48.0}  # of 5 committed 3 are there
    assert costs(book, "committed", "a-committed")["capacity"] == 24.0


def test_each_basis_adds_up_to_the_same_amount(book: Seen) -> None:
    assert book.query("select count(*) from marts.cost_daily where deployment = '__unmetered__'") != [(0,)]
    assert (
        book.query(
            "select site, part from (select site, part, basis, sum(cost_usd) as usd from marts.cost_daily group by all)"
            " group by site, part having count(distinct usd) > 1 or count(*) <> 4"
        )
        == []
    )
    assert book.query("select count(*) from marts.token_class_cost_daily where deployment = '__unmetered__'") == [(0,)]
