"""Unallocated boards: how many, since when, what a month of them takes, who fits, what giving them up saves.

One fleet is planted for two days: each site is one case. Power is constant; expected figures are worked out from what
is planted: watts × 730 h × PUE 1.2, 0.10 USD per kWh, 2 USD per GPU-hour of an A100, whose bare idle is 55 W by
reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.books import Book
from tests.planted import (
    DAY,
    DAY_SECONDS,
    ENERGY,
    HOURS,
    OUTPUT,
    Samples,
    Series,
    board,
    moment,
    plant,
    pod,
    rising,
    steady,
    vllm,
)

END = 2 * DAY_SECONDS
NOON = DAY_SECONDS + 12 * HOURS  # of the second day
ACTIVITY = "DCGM_FI_DEV_GPU_UTIL"
H100, A6000, H200_NVL = "NVIDIA H100 80GB HBM3", "NVIDIA RTX A6000", "NVIDIA H200 NVL"
MONTH = 730
# Node -> site.
NODES = {"w1": "west", "w2": "west", "e1": "east", "e2": "east", "n1": "north", "l1": "lab", "l2": "lab", "u1": "dark"}


def joules(watts: float, first: float = 0, last: float = END) -> Samples:
    """The counter of a board in millijoules, which runs from the beginning whoever holds it."""
    return rising(1000 * watts, first, last, start=1e9 + 1000 * watts * first)


def free(uuid: str, node: str, watts: float, last: float = END) -> Series:
    return ENERGY, board(uuid, node), joules(watts, 0, last)


def held(uuid: str, node: str, name: str, watts: float, span: tuple[float, float] = (0, END)) -> Series:
    return ENERGY, board(uuid, node, **pod(name)), joules(watts, *span)


def serves(name: str, *, until: float = END, per_second: float = 2) -> Series:
    """The tokens of a pod's vLLM, which moves none after `until`."""
    moved = rising(per_second, 0, until)
    rest = steady(moved[-1][1], until + 60, END) if until < END else []
    return OUTPUT, vllm(name, f"model-{name}"), moved + rest


def west() -> Iterator[Series]:
    """Four of five boards are free on one node, one of them a spare. An engine of `wide` has more than are free."""
    yield held("GPU-w-chat", "w1", "chat-0", 300)
    yield from (free(f"GPU-w-free-{n}", "w1", 60) for n in range(3))
    yield free("GPU-w-spare", "w1", 60)
    yield serves("chat-0", until=DAY_SECONDS)
    yield from (held(f"GPU-w-wide-{n}", "w2", "wide-0", 300) for n in range(4))
    yield serves("wide-0")


def east() -> Iterator[Series]:
    """Boards come and go. `pair` works all day on two GPUs, `half` half the time on one, `none` has no request."""
    yield held("GPU-e-half", "e1", "half-0", 200)
    yield held("GPU-e-none", "e1", "none-0", 200)
    yield serves("half-0", until=DAY_SECONDS)
    yield serves("none-0", per_second=0)
    yield held("GPU-e-late", "e1", "gone-0", 300, (0, NOON))
    yield ENERGY, board("GPU-e-late", "e1"), later(300, 80, NOON)
    yield held("GPU-e-early", "e1", "left-0", 300, (0, 6 * HOURS))
    yield ENERGY, board("GPU-e-early", "e1"), later(300, 100, 6 * HOURS)
    yield free("GPU-e-off", "e1", 60, NOON)
    yield free("GPU-e-back", "e1", 60, DAY_SECONDS)
    yield held("GPU-e-back", "e1", "back-0", 60, (DAY_SECONDS + 60, END))
    yield serves("back-0", until=6 * HOURS)
    yield from (held(f"GPU-e-pair-{n}", "e2", "pair-0", 300) for n in range(2))
    yield serves("pair-0")


def later(before: float, after: float, at: float) -> Samples:
    """A board's counter from a minute after `at`, when it began to draw `after` watts."""
    return rising(1000 * after, at + 60, END, start=1e9 + 1000 * (before * at + after * 60))


def elsewhere() -> Iterator[Series]:
    # A site whose tariff leaves out the night.
    yield held("GPU-n-busy", "n1", "alone-0", 300)
    yield free("GPU-n-free", "n1", 70)
    # Only `small` serves at the lab, on one A100: an H100 has as much memory, an A6000 has less.
    yield held("GPU-l-small", "l1", "small-0", 300)
    yield serves("small-0")
    yield ENERGY, board("GPU-l-h100", "l1") | {"modelName": H100}, joules(90)
    yield ENERGY, board("GPU-l-a6000", "l1") | {"modelName": A6000}, joules(30)
    yield ENERGY, board("GPU-l-nvl", "l1") | {"modelName": H200_NVL}, joules(150)
    # Its claimant is unknown: no exporter of its node maps pods.
    yield free("GPU-l-unknown", "l2", 60)
    # No meter: the boards report activity alone.
    yield ACTIVITY, board("GPU-u-busy", "u1", **pod("dark-0")), steady(50, 0, END)
    yield ACTIVITY, board("GPU-u-free", "u1"), steady(0, 0, END)
    yield serves("dark-0")


def sites() -> list[dict[str, object]]:
    """As the fleet file has them; in the north the night has no tariff."""
    common = {"zone": "US-CAL-CISO", "pue": 1.2}
    priced = [{"name": name, **common, "tariff": [{"usd_per_kwh": 0.1}]} for name in ("west", "east", "lab", "dark")]
    return [*priced, {"name": "north", **common, "tariff": [{"usd_per_kwh": 0.1, "local_hours": [7, 24]}]}]


SPARE = {"device_uuid": "GPU-w-spare", "spare": True}
PLACES = [{"name": node, "site": site} for node, site in NODES.items()]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    rate = {"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2, "valid_from": DAY, "source": "planted"}
    book = plant(
        tmp_path_factory.mktemp("free_boards"),
        [*west(), *east(), *elsewhere()],
        days=2,
        sites=sites(),
        nodes=PLACES,
        devices=[SPARE],
        cost_rates=[rate],
        marts=("free_boards",),
    )
    book.run()
    return book


def rows(book: Book, columns: str, where: str) -> list[tuple]:
    return book.query(f"select {columns} from marts.free_boards where {where} order by all")


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(moment(seconds), UTC)


def test_which_boards_are_free_is_a_row_per_site_and_type(book: Book) -> None:
    found = rows(book, "site, device_type, meter_scope, is_spare, gpus_now", "true")
    assert found == [
        ("dark", "a100-sxm4-80gb", "none", False, 1),
        ("east", "a100-sxm4-80gb", "board", False, 2),
        ("lab", "a6000", "board", False, 1),
        ("lab", "h100-sxm5-80gb", "board", False, 1),
        ("lab", "h200-nvl-141gb", "board", False, 1),
        ("north", "a100-sxm4-80gb", "board", False, 1),
        ("west", "a100-sxm4-80gb", "board", False, 3),
        ("west", "a100-sxm4-80gb", "board", True, 1),
    ]


def test_a_month_of_free_boards_is_their_watts_and_their_rate(book: Book) -> None:
    """3 × 60 W: 180 × 730 h × 1.2 = 157.68 kWh, 15.768 USD; 3 × 730 h × 2 USD. At bare idle 3 × 55 W."""
    columns = (
        "gpus_mean, gpu_hours, watts_per_gpu, mean_watts, facility_kwh_month, energy_cost_usd_month,"
        " capacity_cost_usd_month, cost_usd_month, bare_idle_watts, bare_idle_facility_kwh_month,"
        " bare_idle_energy_cost_usd_month"
    )
    (found,) = rows(book, columns, "site = 'west' and not is_spare")
    expected = (3, 3 * 48, 60, 180, 157.68, 15.768, 4380, 4395.768, 165, 144.54, 14.454)
    assert found == pytest.approx(expected, rel=1e-6)


def test_giving_them_up_saves_the_rate_or_the_energy(book: Book) -> None:
    columns = (
        "saving_gpu_hours_month_if_released, saving_usd_month_if_released, saving_kwh_month_if_switched_off,"
        " saving_usd_month_if_switched_off, saving_kgco2e_month_if_switched_off / (157.68 * gco2e_per_kwh / 1000)"
    )
    (found,) = rows(book, columns, "site = 'west' and not is_spare")
    assert found == pytest.approx((2190, 4380, 157.68, 15.768, 1), rel=1e-6)


def test_a_spare_is_counted_apart_and_gets_no_advice(book: Book) -> None:
    columns = (
        "gpus_now, gpus_mean, mean_watts, cost_usd_month, fitting_deployment, fitting_basis,"
        " saving_gpu_hours_month_if_released, saving_usd_month_if_released,"
        " saving_kwh_month_if_switched_off, saving_kgco2e_month_if_switched_off, saving_usd_month_if_switched_off"
    )
    (found,) = rows(book, columns, "site = 'west' and is_spare")
    assert found[:4] == pytest.approx((1, 1, 60, 60 * MONTH / 1000 * 1.2 * 0.1 + 2 * MONTH), rel=1e-6)
    assert found[4:] == (None,) * 7


def test_since_when_is_each_boards_own_time(book: Book) -> None:
    """At east one board is free since 06:00 of the first day, the other since noon of the second; a gone pod's labels
    end with its last sample. At west they had no claimant in the lookback."""
    columns = "first_free_since_at, all_free_since_at"
    assert rows(book, columns, "site = 'west'") == [(at(0), at(0))] * 2
    ((first, last),) = rows(book, columns, "site = 'east'")
    assert timedelta() <= first - at(6 * HOURS) <= timedelta(minutes=1)
    assert timedelta() <= last - at(NOON) <= timedelta(minutes=1)


def test_watts_are_those_of_the_boards_that_are_free_now(book: Book) -> None:
    """80 + 100 W, however long each is free; what was switched off at noon and what is held again do not draw."""
    ((watts,),) = rows(book, "mean_watts", "site = 'east'")
    assert watts == pytest.approx(180, rel=1e-3)


def test_the_mean_counts_boards_while_they_are_free(book: Book) -> None:
    """12 + 42 + 36 + 24 hours of 48."""
    ((mean,),) = rows(book, "gpus_mean", "site = 'east'")
    assert mean == pytest.approx((12 + 42 + 36 + 24) / 48, rel=1e-3)


def test_the_busiest_deployment_whose_engine_fits_on_one_node_is_named(book: Book) -> None:
    """At west `wide` needs four of one node. At east `none` is idle; `pair` is busier than `half`. At the lab the
    boards' types differ from the only deployment's: an H200 and an H100 have its 80 GB, an A6000 has 48."""
    columns = "site, device_type, fitting_deployment, fitting_gpus_per_engine, fitting_engines, fitting_basis"
    small = ("llm/model-small-0", 1, 1, "busiest_of_other_device_type")
    assert rows(book, columns, "not is_spare") == [
        ("dark", "a100-sxm4-80gb", "llm/model-dark-0", 1, 1, "busiest_of_device_type"),
        ("east", "a100-sxm4-80gb", "llm/model-pair-0", 2, 1, "busiest_of_device_type"),
        ("lab", "a6000", None, None, None, None),
        ("lab", "h100-sxm5-80gb", *small),
        ("lab", "h200-nvl-141gb", *small),
        ("north", "a100-sxm4-80gb", None, None, None, None),
        ("west", "a100-sxm4-80gb", "llm/model-chat-0", 1, 3, "busiest_of_device_type"),
    ]


def test_boards_without_a_meter_count_and_their_energy_is_not_known(book: Book) -> None:
    columns = (
        "gpus_now, gpus_mean, capacity_cost_usd_month, saving_usd_month_if_released, watts_per_gpu, mean_watts,"
        " facility_kwh_month, energy_cost_usd_month, cost_usd_month, location_kgco2e_month,"
        " saving_kwh_month_if_switched_off, saving_kgco2e_month_if_switched_off, saving_usd_month_if_switched_off"
    )
    (found,) = rows(book, columns, "site = 'dark'")
    assert found[:4] == pytest.approx((1, 1, 1460, 1460), rel=1e-3)
    assert found[4:] == (None,) * 9


def test_a_night_without_a_price_makes_the_energy_cost_unknown(book: Book) -> None:
    columns = (
        "facility_kwh_month, capacity_cost_usd_month, usd_per_kwh, energy_cost_usd_month, cost_usd_month,"
        " saving_usd_month_if_switched_off"
    )
    (found,) = rows(book, columns, "site = 'north'")
    assert found[:2] == pytest.approx((70 * MONTH / 1000 * 1.2, 1460), rel=1e-6)
    assert found[2:] == (None,) * 4


def test_a_rate_that_holds_the_electricity_is_not_charged_with_it_again(book: Book) -> None:
    """The seed's rate of an H100, 1.30 USD, includes energy: switching the board off saves kWh and no dollar."""
    columns = (
        "energy_cost_usd_month, cost_usd_month, saving_usd_month_if_released, saving_kwh_month_if_switched_off,"
        " saving_usd_month_if_switched_off"
    )
    (found,) = rows(book, columns, "device_type = 'h100-sxm5-80gb'")
    kwh = 90 * MONTH / 1000 * 1.2
    assert found == pytest.approx((kwh * 0.1, 1.3 * MONTH, 1.3 * MONTH, kwh, 0), rel=1e-6)


def test_what_has_no_reference_or_rate_is_unknown(book: Book) -> None:
    """No figure of an H200 NVL's bare idle is known; an A6000 has no rate."""
    ((watts, bare),) = rows(book, "mean_watts, bare_idle_watts", "device_type = 'h200-nvl-141gb'")
    assert (watts, bare) == (pytest.approx(150, rel=1e-6), None)
    columns = "energy_cost_usd_month, capacity_cost_usd_month, cost_usd_month, saving_usd_month_if_switched_off"
    (found,) = rows(book, columns, "device_type = 'a6000'")
    cost = pytest.approx(30 * MONTH / 1000 * 1.2 * 0.1, rel=1e-6)
    assert found == (cost, None, None, cost)
