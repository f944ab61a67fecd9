"""Energy counters that leap without falling: one flagged step between two samples, never a held-back date.

Add here a leap, with its innocent twin. Keep out counters that fall (`test_book_failures`). Boards are A100s that draw
250 W: up to 600 W are accepted, so a minute may hold 36 kJ and five minutes 180 kJ.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.books import LEDGER, Book
from tests.planted import (
    DAY,
    DAY_SECONDS,
    ENERGY,
    WATTS,
    Samples,
    Series,
    board,
    moment,
    plant,
    rising,
    steady,
    without,
)

EARLY, END = -600, 2 * DAY_SECONDS + 600  # two days, and ten minutes around them
LEAP_AT = 10 * 3_600 + 180  # the first sample behind the leap is of 10:03, the last before it of 10:02
NEXT_DAY = DAY + timedelta(days=1)
DAY_JOULES = 250 * DAY_SECONDS


def counted() -> Samples:
    """A counter of 250 W in dcgm-exporter's millijoules."""
    return rising(250_000, EARLY, END)


def leaping(samples: Samples, at: float, joules: float) -> Samples:
    """The samples, higher by so many joules from a moment on."""
    return [(when, value + (joules * 1e3 if when >= moment(at) else 0)) for when, value in samples]


def gauge() -> Samples:
    """Watts from minute to minute: 225 at the full five minutes, then 250, 275, 300, 200: 250 on average."""
    return [(when, 200 + (when // 60 + 1) % 5 * 25) for when, _ in steady(0, EARLY, END)]


def dipping(samples: Samples, *at: float) -> Samples:
    """The counter reads zero at each of these moments."""
    return [(when, 0 if when in map(moment, at) else value) for when, value in samples]


def held(watts: float, of: float, every: float) -> Samples:
    """A counter that is read every `every` seconds, and that its exporter reads anew every `of` seconds."""
    return [
        (when, 1e6 + watts * 1e3 * ((when - moment(EARLY)) // of * of)) for when, _ in steady(0, EARLY, END, step=every)
    ]


def restarted(samples: Samples, at: float) -> Samples:
    """The counter begins at zero one sample before a moment."""
    before = next(value for when, value in samples if when == moment(at - 60))
    return [(when, value - (before if when >= moment(at) else 0)) for when, value in samples]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    book = plant(tmp_path_factory.mktemp("leaps"), planted_series(), days=2, marts=LEDGER)
    book.run()
    return book


def planted_series() -> list[Series]:
    unknown_type = {"UUID": "GPU-type", "Hostname": "n0", "modelName": "Prototype X"}
    half_past = [(when + 30, value) for when, value in counted()]
    gauged = {
        "GPU-step": leaping(counted(), LEAP_AT, 20e6),
        # 75 kJ in the minute, but 135 kJ in the five minutes around it.
        "GPU-small": leaping(counted(), LEAP_AT, 60e3),
        # From 23:59 to midnight, from midnight to 00:01, and from 23:59:30 to 00:00:30.
        "GPU-before": leaping(counted(), DAY_SECONDS, 20e6),
        "GPU-after": leaping(counted(), DAY_SECONDS + 60, 20e6),
        "GPU-across": leaping(half_past, DAY_SECONDS, 20e6),
        # Of two leaps in one day each is a step of its own.
        "GPU-twice": leaping(leaping(counted(), LEAP_AT, 20e6), LEAP_AT + 3_600, 60e3),
        # Back from zero is a leap, too, but a bad scrape and no energy: the last sample before midnight, the first
        # after it, and the first with another at noon.
        "GPU-last": dipping(half_past, DAY_SECONDS - 30),
        "GPU-first": dipping(half_past, DAY_SECONDS + 30),
        "GPU-noon": dipping(half_past, DAY_SECONDS + 30, 1.5 * DAY_SECONDS + 30),
    }
    alone = {
        "GPU-alone": leaping(counted(), LEAP_AT, 20e6),
        # dcgm-exporter reads its boards every 30 s. Scraped every 15 s, a board of 350 W rises by nothing and then by
        # 10.5 kJ, which would be 700 W.
        "GPU-held": held(350, 30, 15),
        "GPU-held-minutes": held(350, 180, 60),
        "GPU-held-leap": leaping(held(350, 30, 15), LEAP_AT, 20e6),
        # The innocent twins: ten silent minutes that held what they could, a counter that began again, and a minute
        # of 583 W.
        "GPU-silent": without(counted(), LEAP_AT - 240, LEAP_AT + 360),
        "GPU-fell": restarted(counted(), LEAP_AT),
        "GPU-busy": leaping(counted(), LEAP_AT, 20e3),
    }
    return [
        *((ENERGY, board(uuid, "n0"), samples) for uuid, samples in {**gauged, **alone}.items()),
        *((WATTS, board(uuid, "n0"), gauge()) for uuid in gauged),
        # Of this type no limit is known: 333 kW are more than any board draws.
        (ENERGY, unknown_type, leaping(counted(), LEAP_AT, 20e6)),
        (WATTS, unknown_type, gauge()),
    ]


def test_a_leap_holds_nothing_back(book: Book) -> None:
    assert book.broken() == {}


def test_a_leap_is_no_joule_that_the_book_lost(book: Book) -> None:
    unaccounted = "select meter, own_joules::double from marts.series_daily where unaccounted_joules > 0"
    assert book.query(unaccounted) == []
    own = "select own_joules::double from marts.series_daily where metric = ? and meter = 'GPU-step' and date = ?"
    # From midnight to 23:59, without the minute of the leap.
    assert book.query(own, [ENERGY, DAY]) == [(DAY_JOULES - 2 * 15_000,)]


def test_only_the_step_of_a_leap_is_the_gauges(book: Book) -> None:
    """Its minute is 287.5 W for 60 s by the gauge where the counter would have had 15 kJ: 2,250 J more."""
    rows = "select device_uuid, date, sum(energy_joules)::double, sum(covered_seconds)::double from marts.energy_ledger"
    found = {(uuid, on): sums for uuid, on, *sums in book.query(f"{rows} group by 1, 2")}
    changed = {
        ("GPU-step", DAY): 2_250,
        ("GPU-small", DAY): 2_250,
        ("GPU-type", DAY): 2_250,
        ("GPU-twice", DAY): 4_500,
        # 212.5 W by the gauge before midnight, 237.5 after it; over it the sample at midnight alone, 225 W.
        ("GPU-before", DAY): -2_250,
        ("GPU-after", NEXT_DAY): -750,
        ("GPU-across", DAY): -750,
        ("GPU-across", NEXT_DAY): -750,
        # What it drew in this minute is unknown.
        ("GPU-alone", DAY): -15_000,
        ("GPU-busy", DAY): 20_000,
        # Its 15 s are unknown, with the 30 s that they show.
        ("GPU-held-leap", DAY): -10_500,
    }
    unknown_seconds = {("GPU-alone", DAY): 60, ("GPU-held-leap", DAY): 15}
    boards = {uuid for uuid, _ in found}
    assert len(boards) == 17
    assert found == {
        (uuid, on): [
            (350 if "held" in uuid else 250) * DAY_SECONDS + changed.get((uuid, on), 0),
            DAY_SECONDS - unknown_seconds.get((uuid, on), 0),
        ]
        for uuid in boards
        for on in (DAY, NEXT_DAY)
    }


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(moment(seconds), UTC)


def test_only_the_interval_of_a_leap_is_flagged(book: Book) -> None:
    flagged = book.query(
        "select device_uuid, interval_start_at, energy_source from marts.energy_ledger where has_glitch"
    )
    ten, eleven, midnight = at(10 * 3_600), at(11 * 3_600), at(DAY_SECONDS)
    mixed = "counter_and_gauge"
    assert sorted(flagged) == [
        ("GPU-across", midnight - timedelta(minutes=5), mixed),
        ("GPU-across", midnight, mixed),
        ("GPU-after", midnight, mixed),
        ("GPU-alone", ten, "partly_unknown"),
        ("GPU-before", midnight - timedelta(minutes=5), mixed),
        ("GPU-held-leap", ten, "partly_unknown"),
        ("GPU-small", ten, mixed),
        ("GPU-step", ten, mixed),
        ("GPU-twice", ten, mixed),
        ("GPU-twice", eleven, mixed),
        ("GPU-type", ten, mixed),
    ]
    assert book.query("select distinct device_uuid from marts.energy_ledger where has_reset") == [("GPU-fell",)]


def test_the_balance_finds_the_same_joules(book: Book) -> None:
    assert book.query("select count(*), max(abs(difference_joules)) from marts.reconciliation_daily") == [(34, 0)]


def test_booking_the_days_one_by_one_gives_the_same_book(book: Book, tmp_path_factory: pytest.TempPathFactory) -> None:
    again = book.copy(tmp_path_factory.mktemp("backwards"))
    for on in (NEXT_DAY, DAY):
        again.write(on, on + timedelta(days=1))
    assert again.hashes() == book.hashes()
