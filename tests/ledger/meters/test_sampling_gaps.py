"""How long a gauge may be silent before its energy is unknown: in book, balance, series and windows.

Three of the larger of the measured and the stated interval, at least 15 s. One shape; every meter is constant, so that
its joules are watts × the seconds that are covered.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.planted import DAY, WATTS, Series, board, pod, steady, without
from tests.shapes import Seen, Shape, shape

BALANCES = ("every_metered_joule_is_booked_once", "tokens_are_booked_once", "seconds_fit_into_the_interval")
COVERED = "series_cover_their_days"
LOG = "gpu_log"


def stalled(watts: float) -> list[tuple[float, float]]:
    """A logger that writes every 0.2 s for a minute, and pauses for a second every six."""
    samples = steady(watts, 0, 60.1, step=0.2)
    for n in range(10):
        samples = without(samples, 6 * n + 2, 6 * n + 3)
    return samples


def meters() -> dict[str, list[Series]]:
    """A log with stalls, gauges of 60, 5 and 300 s with a silence just short of their cap and one just beyond, and a
    gauge that is silent for most of the day."""
    minute = [
        # A scrape is dropped (120 s), two are (180 s), three are (240 s).
        (WATTS, board("GPU-minute", "gap-1", **pod("gap-minute")),
         without(without(without(steady(100, 0, 3600), 600, 720), 1200, 1380), 1800, 2040)),
        # Faster than its source states: 180 s are filled, 185 s are not.
        (WATTS, board("GPU-fast", "gap-1", **pod("gap-fast")),
         without(without(steady(100, 0, 3600, step=5), 600, 780), 1200, 1385)),
        # Slower than its source states: 900 s are filled, 1,200 s are not.
        (WATTS, board("GPU-slow", "gap-1", **pod("gap-slow")),
         without(without(steady(100, 0, 14_400, step=300), 600, 1500), 2100, 3300)),
        # Covered for an hour at each end of the day.
        (WATTS, board("GPU-lost", "gap-1", **pod("gap-lost")), without(steady(100), 3600, 82_800)),
    ]  # fmt: skip
    second = [
        (WATTS, board("GPU-log", "gap-2"), stalled(200)),
        # 15 s are filled and 16 s are not, however fast the meter is.
        (WATTS, board("GPU-bench", "gap-3"), without(steady(100, 0, 600, step=1), 30, 570)),
        (WATTS, board("GPU-second", "gap-2"), without(without(steady(100, 0, 300, step=1), 60, 75), 120, 136)),
    ]  # fmt: skip
    return {"gaps": minute, LOG: second}


GAPS = shape(
    "gaps",
    meters,
    intervals={LOG: 0.2},
    run_windows={
        "inline": [
            {"window_id": "log", "node": "gap-2", "start_at": f"{DAY}T00:00:00Z", "end_at": f"{DAY}T00:01:00Z"},
        ]
    },
)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(GAPS)


@pytest.mark.parametrize(
    ("uuid", "joules", "seconds"),
    [
        ("GPU-minute", 100 * (3600 - 240), 3600 - 240),
        ("GPU-fast", 100 * (3600 - 185), 3600 - 185),
        ("GPU-slow", 100 * (14_400 - 1200), 14_400 - 1200),
        ("GPU-log", 200 * 60, 60),
        ("GPU-second", 100 * (300 - 16), 300 - 16),
    ],
)
def test_a_silence_of_three_intervals_is_filled_and_a_longer_one_is_not(
    book: Seen, uuid: str, joules: float, seconds: float
) -> None:
    assert book.query(
        "select sum(energy_joules)::double, sum(covered_seconds)::double from marts.energy_ledger"
        " where device_uuid = ?",
        [uuid],
    ) == [(joules, seconds)]
    assert book.query("select sum(metered_joules)::double from marts.reconciliation_daily where meter = ?", [uuid]) == [
        (joules,)
    ]
    assert book.query(
        "select own_joules::double, covered_seconds::double from marts.series_daily where meter = ?", [uuid]
    ) == [(joules, seconds)]


def test_a_claim_goes_on_over_a_pause_of_the_logger(book: Seen) -> None:
    # 185 s of silence are no seconds of the board at all, so none of its joules is of an unknown claimant.
    assert book.query(
        "select distinct held_by from marts.energy_ledger where device_uuid = 'GPU-fast' and energy_joules > 0"
    ) == [("llm/gap-fast",)]


def test_a_window_has_the_energy_of_the_ledger(book: Seen) -> None:
    ((joules, reason),) = book.query(
        "select energy_joules::double, reason_code from marts.run_windows where window_id = 'log'"
    )
    # Of both boards of the node: 200 W and 100 W for a minute; no tokens are stated.
    assert (joules, reason) == (300 * 60, "no_tokens")


def test_the_balance_holds(book: Seen) -> None:
    assert book.failed_tests(*BALANCES) == set()


def test_a_series_that_is_silent_for_most_of_its_day_warns_unless_its_source_has_run_windows(book: Seen) -> None:
    severity, rows = book.data_test(COVERED, "entity, evidence, doubted_joules::double")
    # 7,140 s of the 86,340 to the last sample, and the last minute. GPU-bench is a tenth covered too, but its source
    # has the window.
    assert (severity, rows) == ("warn", [("GPU-lost", "8.3 % of its time", 720_000)])
    assert (
        book.query(
            "select model, doubted_energy_ratio, doubt_reasons from marts.model_daily where deployment like 'gap-%'"
            " and model <> '__unallocated__' order by 1"
        )
        == []
    )
