"""What a meter shows while its board works, and cannot be right: 0 W or less than half of idle, a counter that does
not move. Book and balance pass over it; the next meter in rank books these seconds, else they are unknown.

A node's meter that shows less than its boards measures no host.
Add here a bound of physics, with its innocent twins. Keep out what is above a limit (`test_doubted_limits`,
`test_leaps`). Boards are A100s, whose bare idle is 55 W (seed device_types): 27.5 W is the bound. They draw 300 W for
two hours, 2,160,000 J, while their engines make 100 tokens a second.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.planted import ENERGY, INPUT, OUTPUT, WATTS, Samples, Series, board, moment, pod, rising, steady, vllm
from tests.shapes import Seen, Shape, shape

UTIL = "DCGM_FI_DEV_GPU_UTIL"
HOURS_2 = 7200
OUTRANKED = "GPU-0e04e04e-0000-0000-0000-000000000001"
WHOLE = 300 * HOURS_2


def frozen(first: float, last: float, *, catches_up: bool = False) -> Samples:
    """A counter of 300 W that keeps its value from one moment to another, and then goes on."""
    lost = 0 if catches_up else last - first
    return [
        (at, 1e9 + 300e3 * (min(s, first) if s <= last else s - lost))
        for at, s in ((moment(s), s) for s in range(0, HOURS_2 + 1, 60))
    ]


def coarse() -> Samples:
    """A counter that rises by 0.01 kWh every twelve minutes: 50 W."""
    return [(moment(s), 1e9 + s // 720 * 36e6) for s in range(0, HOURS_2 + 1, 60)]


def frozen_over_midnight() -> Samples:
    """As `frozen`, at each half minute, from half an hour before midnight to half an hour after it."""
    return [(moment(s + 30), 1e9 + 300e3 * (min(s, -1800) if s <= 1800 else s - 3600)) for s in range(-3000, 7201, 60)]


def zero_for_an_hour(watts: float = 0) -> Samples:
    return steady(watts, 0, 3540) + steady(300, 3600, HOURS_2)


def beside_a_host(name: str, wall: Samples) -> list[Series]:
    """A busy board of 300 W, and the meter of its node."""
    uuid = f"GPU-refuted-{name}"
    return [*held(uuid, (WATTS, steady(300, 0, HOURS_2))), ("wall_power_watts", {"node": f"node-refuted-{name}"}, wall)]


def held(uuid: str, *readings: tuple[str, Samples], util: float | None = 60, tokens: bool = True) -> list[Series]:
    """A board on a node of its own with its pod, and the tokens of the pod."""
    name = uuid.removeprefix("GPU-")
    labels = board(uuid, f"node-{name}", **pod(name))
    series: list[Series] = [(metric, labels, samples) for metric, samples in readings]
    if util is not None:
        series.append((UTIL, labels, steady(util, 0, HOURS_2)))
    if tokens:
        series += [(metric, vllm(name, f"m-{name}"), rising(100, 0, HOURS_2)) for metric in (INPUT, OUTPUT)]
    return series


def planted() -> list[Series]:
    second = {"uuid": OUTRANKED.removeprefix("GPU-"), "node": f"node-{OUTRANKED[4:]}"}
    amd = {"hostname": "node-refuted-parts", "card_series": "AMD Instinct MI300X OAM", "serial_number": ""}
    slices = [
        series
        for part, watts in ((0, 640), (1, 0))
        for labels in ({**amd, "gpu_id": str(part), "gpu_partition_id": str(part), **pod(f"refuted-slice-{part}")},)
        for series in (
            ("gpu_package_power", labels, steady(watts, 0, HOURS_2)),
            ("gpu_gfx_activity", labels, steady(60, 0, HOURS_2)),
        )
    ]
    unused = board("GPU-refuted-unused", "node-refuted-pair", **pod("refuted-pair"))
    used = board("GPU-refuted-used", "node-refuted-pair", **pod("refuted-pair"))
    mig = board("MIG-refuted-slice", "node-refuted-mig", **pod("refuted-mig"))
    return [
        *held("GPU-refuted-zero", (WATTS, zero_for_an_hour())),
        *held("GPU-refuted-low", (WATTS, zero_for_an_hour(20))),
        *held("GPU-refuted-half", (WATTS, zero_for_an_hour(30))),
        *held("GPU-refuted-tokens", (WATTS, zero_for_an_hour()), util=None),
        *held("GPU-refuted-asleep", (WATTS, zero_for_an_hour()), util=0, tokens=False),
        *held("GPU-refuted-off", (WATTS, zero_for_an_hour()), util=None, tokens=False),
        *held(OUTRANKED, (WATTS, steady(0, 0, HOURS_2))),
        ("nvidia_smi_power_draw_watts", second, steady(300, 0, HOURS_2)),
        *held("GPU-refuted-all", (WATTS, steady(0, 0, HOURS_2))),
        (WATTS, unused, steady(0, 0, HOURS_2)),
        (WATTS, used, steady(300, 0, HOURS_2)),
        *[(metric, vllm("refuted-pair", "m-refuted-pair"), rising(100, 0, HOURS_2)) for metric in (INPUT, OUTPUT)],
        (WATTS, mig, steady(0, 0, HOURS_2)),
        (UTIL, mig, steady(60, 0, HOURS_2)),
        *slices,
        *held("GPU-refuted-still", (ENERGY, frozen(1800, 3000))),
        *held("GPU-refuted-gauge", (ENERGY, frozen(0, HOURS_2)), (WATTS, steady(300, 0, HOURS_2)), util=None),
        *held("GPU-refuted-part", (ENERGY, frozen(1800, 3000)), (WATTS, steady(300, 0, HOURS_2))),
        *held("GPU-refuted-late", (ENERGY, frozen(1800, 3000, catches_up=True))),
        *held("GPU-refuted-idle", (ENERGY, frozen(1800, 3000)), util=0, tokens=False),
        *held("GPU-refuted-short", (ENERGY, frozen(1800, 2340))),
        *held("GPU-refuted-night", (ENERGY, frozen_over_midnight())),
        *held("GPU-refuted-coarse", (ENERGY, coarse())),
        *beside_a_host("wall", steady(500, 0, HOURS_2)),
        *beside_a_host("wall-zero", steady(0, 0, 3540) + steady(500, 3600, HOURS_2)),
        *beside_a_host("wall-half", steady(200, 0, HOURS_2)),
        *beside_a_host("wall-even", steady(296, 0, HOURS_2)),
        *beside_a_host("wall-short", steady(0, 0, 480) + steady(500, 540, HOURS_2)),
    ]


REFUTED = shape("refuted", planted)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(REFUTED)


@pytest.mark.parametrize(
    ("meter", "joules", "seconds", "refuted"),
    [
        # From the first of the true samples on; 0 W, or 20 W over the 3,540 s between the first and the last of them.
        ("GPU-refuted-zero", 300 * 3600, 3600, 0),
        ("GPU-refuted-low", 300 * 3600, 3600, 20 * 3540),
        ("GPU-refuted-tokens", 300 * 3600, 3600, 0),
        (OUTRANKED, WHOLE, HOURS_2, 0),
        ("GPU-refuted-all", None, None, 0),
        ("GPU-refuted-still", 300 * 6000, 6000, 0),
        ("GPU-refuted-gauge", WHOLE, HOURS_2, 0),
        ("GPU-refuted-part", WHOLE, HOURS_2, 0),
        # From 00:30:30 to 02:00:30; the minute over midnight is of the standstill too.
        ("GPU-refuted-night", 300 * 5400, 5400, 0),
        # Innocent: above the bound; a minute goes from 30 W to 300 W.
        ("GPU-refuted-half", 30 * 3540 + 165 * 60 + 300 * 3600, HOURS_2, None),
        # Nothing shows that the board is on: the minute from 0 W to 300 W has 150 W.
        ("GPU-refuted-asleep", 150 * 60 + 300 * 3600, HOURS_2, None),
        ("GPU-refuted-off", 150 * 60 + 300 * 3600, HOURS_2, None),
        # The tokens of its pod are made on the other board; the watts of a slice are its board's.
        ("GPU-refuted-unused", 0, HOURS_2, None),
        ("MIG-refuted-slice", 0, HOURS_2, None),
        ("node-refuted-parts/1", 0, HOURS_2, None),
        # The jump after the standstill has its joules.
        ("GPU-refuted-late", WHOLE, HOURS_2, None),
        ("GPU-refuted-idle", 300 * 6000, HOURS_2, None),
        # Nine minutes; three steps of 0.01 kWh take 33 minutes at 55 W.
        ("GPU-refuted-short", 300 * (HOURS_2 - 540), HOURS_2, None),
        ("GPU-refuted-coarse", 360_000, HOURS_2, None),
    ],
)
def test_what_cannot_be_is_passed_over_and_what_can_stays(
    book: Seen, meter: str, joules: float | None, seconds: float | None, refuted: float | None
) -> None:
    assert book.query(
        "select sum(energy_joules)::double, sum(covered_seconds)::double from marts.energy_ledger where meter = ?",
        [meter],
    ) == [(joules, seconds)]
    assert book.query(
        "select metered_joules::double, refuted_joules::double from marts.reconciliation_daily where meter = ?", [meter]
    ) == [(joules, refuted)]


def test_the_balance_holds(book: Seen) -> None:
    assert book.failed_tests("every_metered_joule_is_booked_once", "seconds_fit_into_the_interval") == set()


def test_a_counter_that_catches_up_has_its_joules_where_they_were_drawn(book: Seen) -> None:
    # 300 W x 300 s in each of the 24 intervals, though the counter rose in none of four of them.
    assert book.query(
        "select distinct energy_joules::double from marts.energy_ledger where meter = 'GPU-refuted-late'"
    ) == [(90_000,)]


@pytest.mark.parametrize(
    ("name", "joules", "per_token", "doubted"),
    [
        # 3 J a token of the hour with power; of the other hour, 300 W x 3,540 s are missing, as much as is booked.
        ("zero", 300 * 3600, 3.0, 3540 / 3600),
        ("still", 300 * 6000, 3.0, 1200 / 6000),
        ("all", None, None, 0.0),
    ],
)
def test_a_figure_that_cannot_be_is_null_and_its_row_says_why(
    book: Seen, name: str, joules: float | None, per_token: float | None, doubted: float
) -> None:
    rows = book.query(
        "select energy_joules::double, joules_per_output_token, doubted_energy_ratio, doubt_reasons"
        " from marts.model_daily where model = ? order by energy_joules nulls last",
        [f"m-refuted-{name}"],
    )
    assert rows[0] == (joules, pytest.approx(per_token), pytest.approx(doubted, rel=1e-3), "refuted_meter")
    # Tokens without a joule: nothing of their energy is known.
    assert all(row == (None, None, 0.0, "refuted_meter") for row in rows[1:])


@pytest.mark.parametrize("name", ["refuted-gauge", "refuted-part", "refuted-late", OUTRANKED[4:]])
def test_what_another_meter_books_is_in_no_doubt(book: Seen, name: str) -> None:
    assert book.query(
        "select energy_joules::double, joules_per_output_token, coverage_ratio, doubt_reasons from marts.model_daily"
        " where model = ?",
        [f"m-{name}"],
    ) == [(WHOLE, pytest.approx(3.0), 1.0, "")]


@pytest.mark.parametrize(
    ("name", "host_watts", "doubted", "reasons"),
    [
        ("wall", 200, 0.0, ""),
        # Zero for an hour, then 200 W above the board: the mean of that hour is the other one's too.
        ("wall-zero", 200, 0.5, "refuted_host"),
        # One of two power supplies: 0.2 × 400 W and 0.23 × 300 W are assumed.
        ("wall-half", 149, 1.0, "refuted_host"),
        # Innocent: 4 W below the board are within the errors of both, and no host draws nothing; nine minutes of zero.
        ("wall-even", 149, 0.0, ""),
        ("wall-short", 200, 0.0, ""),
    ],
)
def test_a_nodes_meter_below_its_boards_measures_no_host(
    book: Seen, name: str, host_watts: float, doubted: float, reasons: str
) -> None:
    assert book.query(
        "select host_overhead_joules::double, joules_per_output_token, doubted_energy_ratio, doubt_reasons"
        " from marts.model_daily where model = ?",
        [f"m-refuted-{name}"],
    ) == [(host_watts * HOURS_2, pytest.approx(3.0), pytest.approx(doubted), reasons)]


def test_a_host_that_is_not_measured_is_a_doubt_with_both_numbers(book: Seen) -> None:
    assert book.query("select entity, figure, evidence from marts.doubts where reason = 'refuted_host' order by 1") == [
        ("GPU-refuted-wall-half", "host", "7200 s, up to 100 W less"),
        ("GPU-refuted-wall-zero", "host", "3600 s, up to 300 W less"),
    ]


def test_each_unknown_second_is_a_doubt_with_its_meter(book: Seen) -> None:
    assert book.query("select entity, evidence from marts.doubts where reason = 'refuted_meter' order by 1") == [
        ("GPU-refuted-all", "7200 s unknown: its watts are below half of idle"),
        ("GPU-refuted-low", "3540 s unknown: its watts are below half of idle"),
        ("GPU-refuted-night", "1800 s unknown: its counter does not move"),
        ("GPU-refuted-still", "1200 s unknown: its counter does not move"),
        ("GPU-refuted-tokens", "3540 s unknown: its watts are below half of idle"),
        ("GPU-refuted-zero", "3540 s unknown: its watts are below half of idle"),
    ]
    severity, rows = book.data_test("meters_show_what_boards_draw", "meter")
    assert severity == "warn" and len(rows) == 9
