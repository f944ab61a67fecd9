"""Each second of a meter is booked by the best reading that covers it, each node's from its finest scope that reports.

One fleet has all boards side by side, each on a node of its own, for two days; samples are a minute apart, so a gap is
longer than three minutes. Joules are watts × seconds; `max_spread` is six hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.books import LEDGER, Book, broken_project
from tests.planted import (
    A100,
    DAY,
    DAY_SECONDS,
    ENERGY,
    HOURS,
    OUTPUT,
    WATTS,
    Samples,
    Series,
    board,
    plant,
    pod,
    rising,
    steady,
    vllm,
    without,
)

TWO_DAYS = 2 * DAY_SECONDS
NVML_ENERGY = "nvml_total_energy_millijoules"
WALL = "wall_power_watts"
HOUR_JOULES = 200 * HOURS  # of a board that draws 200 W


def counter(watts: float, first: float = 0, last: float = TWO_DAYS, *, start: float = 1e13) -> Samples:
    """A board's counter in millijoules; it has long been counting."""
    return rising(1000 * watts, first, last, start=start)


def resumed(gap_start: float, gap_end: float, joules: float, *, watts: float = 200) -> Samples:
    """A counter that is silent between two moments and has risen by `joules` over them."""
    before = counter(watts, 0, gap_start)
    return before + counter(watts, gap_end, TWO_DAYS, start=before[-1][1] + 1000 * joules)


def silent(samples: Samples, *gaps: tuple[float, float]) -> Samples:
    for first, last in gaps:
        samples = without(samples, first * HOURS, last * HOURS)
    return samples


def of(uuid: str, counts: Samples | None, watts: Samples | None, **labels: str) -> Iterator[Series]:
    """A board alone on its node."""
    named = board(uuid, f"node-of-{uuid}", **labels)
    if counts:
        yield ENERGY, named, counts
    if watts:
        yield WATTS, named, watts


def nvml(uuid: str) -> dict[str, str]:
    """What this project's own agent reports of the same board."""
    return {"uuid": uuid, "node": f"node-of-{uuid}", "device_type": A100}


def boards() -> Iterator[Series]:
    gauge = steady(200, last=TWO_DAYS)
    noon = 12 * HOURS
    # Dead at 55 % of the first day, for good.
    yield from of("GPU-dead", counter(200, 0, 0.55 * DAY_SECONDS), gauge)
    # Silent 10:00 to 14:00; the gauge is silent 12:00 to 13:00 of that: it knows 2.16 MJ of three hours.
    partly = silent(gauge, (12, 13))
    yield from of("GPU-bridge", resumed(10 * HOURS, 14 * HOURS, 2_160_000 + 1_260_000), partly)
    yield from of("GPU-less", resumed(10 * HOURS, 14 * HOURS, 0.8 * 2_160_000), partly)
    yield from of("GPU-more", resumed(10 * HOURS, 14 * HOURS, 1.1 * 2_160_000 + 600 * HOURS), partly)
    # The same silence of a counter alone, and of one whose gauge knows all of it.
    yield from of("GPU-alone", resumed(10 * HOURS, 14 * HOURS, 4 * 250 * HOURS), None)
    yield from of("GPU-scaled", resumed(10 * HOURS, 14 * HOURS, 4 * 250 * HOURS), gauge)
    # Silent 22:00 to 02:00 of the next day; the gauge 23:00 to 01:00.
    over_midnight = resumed(22 * HOURS, 26 * HOURS, 2 * HOUR_JOULES + 2 * 300 * HOURS)
    yield from of("GPU-resume", over_midnight, silent(gauge, (23, 25)))
    # The same, with a gauge that dies at 23:00: on the second day the counter is alone.
    over_midnight = resumed(22 * HOURS, 26 * HOURS, HOUR_JOULES + 3 * 300 * HOURS)
    yield from of("GPU-part", over_midnight, steady(200, 0, 23 * HOURS))
    # Restarted at noon, seen again at 14:00, with a gauge and without.
    restarted = counter(200, 0, 10 * HOURS) + counter(200, 14 * HOURS, start=1000 * 2 * HOUR_JOULES)
    yield from of("GPU-fall", restarted, partly)
    yield from of("GPU-fall-alone", restarted, None)
    # Eight hours of silence are beyond `max_spread`; the gauge knows four of them, 2.88 MJ.
    for uuid, joules in {"GPU-far": 8 * 250 * HOURS, "GPU-far-less": 2_000_000}.items():
        engine = uuid.lower()
        yield from of(uuid, resumed(8 * HOURS, 16 * HOURS, joules), silent(gauge, (10, 14)), **pod(engine))
        yield OUTPUT, vllm(engine, engine), rising(1, last=TWO_DAYS)
    # Two exporters: the better one dies at 08:00, the other one is silent 10:00 to 12:00 and has no gauge.
    twice = board("GPU-twice", "node-of-GPU-twice")
    yield ENERGY, twice, counter(200, 0, 8 * HOURS)
    yield NVML_ENERGY, nvml("GPU-twice"), silent(counter(210), (10, 12))

    # --- twins: none of them is handed over
    jitter = [(at + n % 5, value + n % 5 * 200_000) for n, (at, value) in enumerate(counter(200))]
    missing = [sample for n, sample in enumerate(jitter) if n % 60 not in (7, 20, 21)]
    yield from of("GPU-jitter", missing, steady(205, last=TWO_DAYS))
    yield from of("GPU-gauge", None, silent(gauge, (10, 11)))
    both = board("GPU-both", "node-of-GPU-both")
    yield ENERGY, both, counter(200)
    yield NVML_ENERGY, nvml("GPU-both"), counter(205)
    yield from of("GPU-late", counter(200, 30), steady(205, last=TWO_DAYS))
    # The scraper was away for an hour; next to it, as long a silence of both, at different hours.
    yield from of("GPU-outage-of-both", silent(counter(200), (10, 11)), silent(steady(205, last=TWO_DAYS), (10, 11)))
    yield from of("GPU-by-turns", silent(counter(200), (10, 11)), silent(steady(200, last=TWO_DAYS), (14, 15)))

    # --- nodes with a wall meter
    yield WALL, {"node": "wall-noon"}, steady(500, last=TWO_DAYS)
    yield ENERGY, board("GPU-noon", "wall-noon"), counter(300, 0, noon)
    yield WATTS, board("GPU-noon", "wall-noon"), steady(300, 0, noon)
    yield WALL, {"node": "wall-half"}, steady(600, last=TWO_DAYS)
    yield ENERGY, board("GPU-half-a", "wall-half"), counter(300)
    yield ENERGY, board("GPU-half-b", "wall-half"), counter(100, 0, noon)
    # The board comes back at 18:00: its difference is all of the six hours, none are the node's.
    yield WALL, {"node": "wall-back"}, steady(500, last=TWO_DAYS)
    yield ENERGY, board("GPU-back", "wall-back"), silent(counter(300), (12, 18))
    # A gauge comes back as well, and knows nothing of the six hours.
    yield WALL, {"node": "wall-gauge"}, steady(500, last=TWO_DAYS)
    yield WATTS, board("GPU-wall-gauge", "wall-gauge"), silent(steady(300, last=TWO_DAYS), (12, 18))
    # 200 W of host before the outage of two hours, 222 W in the 20 hours after it: 220 W on average.
    outage = steady(500, 0, 2 * HOURS) + steady(522, 4 * HOURS, TWO_DAYS)
    yield WALL, {"node": "wall-outage"}, outage
    yield ENERGY, board("GPU-outage", "wall-outage"), counter(300)


def planted(folder: Path) -> Book:
    return plant(folder, boards(), days=2, max_spread_days=0.25)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    book = planted(tmp_path_factory.mktemp("handovers"))
    book.run()
    return book


def hours(book: Book, meter: str, column: str = "energy_joules", *, day: int = 0) -> dict[int, float]:
    """Hour of the day -> its sum; hours without a row are absent."""
    rows = book.query(
        f"select extract(hour from interval_start_at), sum({column})::double from marts.energy_ledger"
        " where meter = ? and date = ? group by 1 order by 1",
        [meter, DAY + timedelta(days=day)],
    )
    return {int(hour): joules for hour, joules in rows}


def words(book: Book, meter: str, first: int, last: int, column: str = "energy_source") -> set[object]:
    """The values of `column` in the intervals of the hours [first, last) of the first day."""
    rows = book.query(
        f"select distinct {column} from marts.energy_ledger where meter = ? and date = ?"
        " and extract(hour from interval_start_at) >= ? and extract(hour from interval_start_at) < ?",
        [meter, DAY, first, last],
    )
    return {word for (word,) in rows}


def day_joules(book: Book, meter: str, scope: str = "board", day: int = 0) -> float | None:
    ((joules,),) = book.query(
        "select sum(energy_joules)::double from marts.energy_ledger where meter = ? and meter_scope = ? and date = ?",
        [meter, scope, DAY + timedelta(days=day)],
    )
    return joules


def near(joules: float) -> object:
    return pytest.approx(joules, abs=0.01)


# --- within a meter ---------------------------------------------------------------------------------------------------


@pytest.mark.rest
def test_a_gauge_takes_over_from_a_counter_that_died(book: Book) -> None:
    assert day_joules(book, "GPU-dead") == near(200 * DAY_SECONDS)  # 4.8 kWh; 2.64 were reported
    assert words(book, "GPU-dead", 0, 13) == {"counter"}
    assert words(book, "GPU-dead", 14, 24) == {"gauge"}
    assert words(book, "GPU-dead", 0, 24, "has_gap") == {False}


def test_over_a_gap_the_sum_is_the_counters_and_the_gauge_keeps_its_seconds(book: Book) -> None:
    found = hours(book, "GPU-bridge")
    assert [found[hour] for hour in (9, 10, 11, 12, 13, 14)] == [
        near(joules) for joules in (HOUR_JOULES, HOUR_JOULES, HOUR_JOULES, 1_260_000, HOUR_JOULES, HOUR_JOULES)
    ]
    assert words(book, "GPU-bridge", 10, 12) == {"gauge"}
    assert words(book, "GPU-bridge", 12, 13) == {"counter"}
    assert words(book, "GPU-bridge", 12, 13, "has_gap") == {True}
    assert words(book, "GPU-bridge", 10, 12, "has_gap") == {False}


def test_where_the_gauge_has_more_than_the_counter_it_is_scaled_down(book: Book) -> None:
    found = hours(book, "GPU-less")
    assert [found[hour] for hour in (10, 11, 12, 13, 14)] == [
        near(joules) for joules in (576_000, 576_000, 0, 576_000, HOUR_JOULES)
    ]
    assert words(book, "GPU-less", 10, 12) == {"counter_and_gauge"}


def test_the_uncovered_seconds_get_no_more_than_the_board_can_draw(book: Book) -> None:
    found = hours(book, "GPU-more")
    assert [found[hour] for hour in (10, 11, 12, 13, 14)] == [
        near(joules) for joules in (792_000, 792_000, 2_160_000, 792_000, HOUR_JOULES)
    ]


def test_a_gap_without_a_gauge_is_spread_by_time_and_one_with_a_gauge_is_scaled(book: Book) -> None:
    for meter, source in {"GPU-alone": "counter", "GPU-scaled": "counter_and_gauge"}.items():
        found = hours(book, meter)
        assert [found[hour] for hour in range(10, 14)] == [near(250 * HOURS)] * 4
        assert words(book, meter, 10, 14) == {source}
    assert words(book, "GPU-alone", 10, 14, "has_gap") == {True}


def test_a_gap_over_midnight_belongs_to_both_days(book: Book) -> None:
    first, second = hours(book, "GPU-resume"), hours(book, "GPU-resume", day=1)
    assert (first[21], first[22], first[23]) == (near(HOUR_JOULES), near(HOUR_JOULES), near(300 * HOURS))
    assert (second[0], second[1], second[2]) == (near(300 * HOURS), near(HOUR_JOULES), near(HOUR_JOULES))
    first, second = hours(book, "GPU-part"), hours(book, "GPU-part", day=1)
    assert (first[21], first[22], first[23]) == (near(HOUR_JOULES), near(HOUR_JOULES), near(300 * HOURS))
    assert (second[0], second[1], second[2]) == (near(300 * HOURS), near(300 * HOURS), near(HOUR_JOULES))


def test_after_a_fall_in_the_gap_the_gauge_is_booked(book: Book) -> None:
    found = hours(book, "GPU-fall")
    assert [found.get(hour, 0) for hour in (9, 10, 11, 12, 13, 14)] == [
        near(joules) for joules in (HOUR_JOULES, HOUR_JOULES, HOUR_JOULES, 0, HOUR_JOULES, HOUR_JOULES)
    ]
    assert words(book, "GPU-fall", 10, 12) == {"gauge"}
    # Its twin has no gauge: what it shows after the fall was drawn since the last sample (docs/method.md).
    assert [hours(book, "GPU-fall-alone")[hour] for hour in range(10, 14)] == [near(2 * HOUR_JOULES / 4)] * 4


def test_beyond_max_spread_the_gauge_is_booked_and_the_rest_is_unknown(book: Book) -> None:
    found, unknown = hours(book, "GPU-far"), hours(book, "GPU-far", "unknown_joules")
    assert [found[hour] for hour in range(7, 17)] == [
        near(j) for j in [HOUR_JOULES] * 3 + [1_080_000] * 4 + [HOUR_JOULES] * 3
    ]
    assert [unknown[hour] for hour in range(7, 17)] == [0] * 3 + [near(1_080_000)] * 4 + [0] * 3
    assert words(book, "GPU-far", 8, 10, "model") == {"gpu-far"}
    assert words(book, "GPU-far", 10, 14, "model") == {"__unknown__"}
    less = hours(book, "GPU-far-less")
    assert [less.get(hour, 0) for hour in range(8, 16)] == [
        near(j) for j in [HOUR_JOULES] * 2 + [0] * 4 + [HOUR_JOULES] * 2
    ]


def test_a_second_exporter_takes_over_with_its_own_gaps(book: Book) -> None:
    found = hours(book, "GPU-twice")
    assert [found[hour] for hour in range(6, 14)] == [near(HOUR_JOULES)] * 2 + [near(210 * HOURS)] * 6
    assert words(book, "GPU-twice", 0, 24) == {"counter"}


@pytest.mark.parametrize("meter", ["GPU-jitter", "GPU-both", "GPU-late", "GPU-outage-of-both"])
def test_a_counter_without_gaps_of_its_own_books_all_day(book: Book, meter: str) -> None:
    late = 30 if meter == "GPU-late" else 0
    assert day_joules(book, meter) == near(200 * (DAY_SECONDS - late))
    assert words(book, meter, 0, 24) == {"counter"}
    (rows,) = book.query("select count(*) from intermediate.int_meter_choices where meter = ? and is_handover", [meter])
    assert rows == (0,)


def test_silences_of_the_same_length_at_other_hours_are_handed_over(book: Book) -> None:
    assert day_joules(book, "GPU-by-turns") == near(200 * DAY_SECONDS)
    assert words(book, "GPU-by-turns", 10, 11) == {"gauge"}
    assert words(book, "GPU-by-turns", 14, 15) == {"counter"}


def test_a_gauge_alone_does_not_fill_its_gap(book: Book) -> None:
    assert day_joules(book, "GPU-gauge") == near(200 * (DAY_SECONDS - HOURS))
    assert 10 not in hours(book, "GPU-gauge")


# --- within a node ----------------------------------------------------------------------------------------------------


def facility(book: Book, node: str, day: int = 0) -> float:
    ((joules,),) = book.query(
        "select sum(energy_joules + host_overhead_joules)::double from marts.energy_ledger where node = ? and date = ?",
        [node, DAY + timedelta(days=day)],
    )
    return joules


def test_the_wall_meter_books_the_node_while_no_board_reports(book: Book) -> None:
    assert day_joules(book, "GPU-noon") == near(300 * 12 * HOURS)
    assert day_joules(book, "wall-noon", "node") == near(500 * 12 * HOURS)
    assert day_joules(book, "wall-noon", "node", day=1) == pytest.approx(500 * DAY_SECONDS, abs=500 * 60)
    assert hours(book, "GPU-noon", "host_overhead_joules") == {hour: near(200 * HOURS) for hour in range(12)}
    assert set(hours(book, "wall-noon")) == set(range(12, 24))
    assert facility(book, "wall-noon") == near(500 * DAY_SECONDS)
    # The node's row claims no accelerator: its board is claimed all day, and was unmetered for half of it.
    rows = book.query(
        "select meter_scope, coverage_ratio from marts.model_daily where date = ? and energy_joules is not null"
        " and meter_scope = 'node' order by 1",
        [DAY],
    )
    assert set(rows) == {("node", None)}


def test_a_silent_board_stays_in_the_measured_host_while_another_reports(book: Book) -> None:
    assert day_joules(book, "wall-half", "node") is None
    host = hours(book, "GPU-half-a", "host_overhead_joules")
    assert [host[hour] for hour in (13, 14, 23)] == [near(300 * HOURS)] * 3
    assert facility(book, "wall-half") == near(600 * DAY_SECONDS)


def test_a_board_that_comes_back_with_a_counter_covers_its_gap_and_with_a_gauge_does_not(book: Book) -> None:
    assert day_joules(book, "wall-back", "node") is None
    assert day_joules(book, "GPU-back") == near(300 * DAY_SECONDS)
    assert facility(book, "wall-back") == near(500 * DAY_SECONDS)
    assert day_joules(book, "wall-gauge", "node") == near(500 * 6 * HOURS)
    assert day_joules(book, "GPU-wall-gauge") == near(300 * 18 * HOURS)
    assert facility(book, "wall-gauge") == near(500 * DAY_SECONDS)


def test_an_outage_of_the_node_meter_is_filled_with_the_nodes_own_mean(book: Book) -> None:
    host = hours(book, "GPU-outage", "host_overhead_joules")
    assert [host[hour] for hour in (1, 2, 3, 4)] == [
        pytest.approx(watts * HOURS, rel=1e-4) for watts in (200, 220, 220, 222)
    ]
    assert words(book, "GPU-outage", 2, 4, "host_basis") == {"measured_mean"}
    assert words(book, "GPU-outage", 0, 2, "host_basis") == {"measured"}


# --- the balance and the order ----------------------------------------------------------------------------------------


def test_the_balance_holds(book: Book) -> None:
    assert book.broken() == {}
    rows = book.query(
        "select date, meter, metered_joules::double, booked_joules::double from marts.reconciliation_daily"
        " where abs(difference_joules) > 0.01 or metered_joules is null or booked_joules is null"
    )
    assert rows == []


@pytest.mark.rest
def test_a_sum_of_a_gap_that_is_lost_turns_the_balance_red(book: Book, tmp_path: Path) -> None:
    wrong = book.copy(tmp_path / "data", broken_project(tmp_path, mutant="meters-sum-of-a-gap-is-lost"))
    wrong.write(DAY, DAY + timedelta(days=2))
    rows = wrong.query(
        "select meter, difference_joules::double from marts.reconciliation_daily"
        " where abs(difference_joules) > 1 order by 1"
    )
    assert rows == [
        ("GPU-less", near(0.2 * 2_160_000)),
        ("GPU-more", near(-0.1 * 2_160_000)),
        ("GPU-scaled", near(-4 * 50 * HOURS)),
    ]


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> Book:
    book = apart(tmp_path_factory.mktemp("at-once"))
    book.run()
    return book


def apart(folder: Path) -> Book:
    """Counters and gauges from two sources, and a node's wall meter above a board that comes back."""
    counters, gauges = [], []
    for metric, labels, samples in boards():
        if labels.get("UUID", "GPU-resume") in ("GPU-resume", "GPU-part", "GPU-dead", "GPU-wall-gauge", "GPU-noon"):
            (counters if metric == ENERGY else gauges).append((metric, labels, samples))
    return plant(folder, {"counters": counters, "gauges": gauges}, days=2, marts=LEDGER, max_spread_days=0.25)


@pytest.mark.rest
def test_day_by_day_gives_the_same_book(at_once: Book, tmp_path: Path) -> None:
    book = apart(tmp_path)
    book.run(DAY, DAY + timedelta(days=1))
    assert hours(book, "GPU-resume")[22] == near(HOUR_JOULES)
    # The gauge is silent; the counter comes back on the next day, on which the first run has read on.
    assert hours(book, "GPU-resume")[23] == hours(at_once, "GPU-resume")[23]
    book.run(DAY + timedelta(days=1), DAY + timedelta(days=2))
    assert book.hashes() == at_once.hashes()


@pytest.mark.rest
def test_a_gauge_that_lands_last_gives_the_same_book(at_once: Book, tmp_path: Path) -> None:
    book = apart(tmp_path)
    recorded, away = tmp_path / "recorded" / "gauges", tmp_path / "away"
    recorded.rename(away)
    book.run(DAY + timedelta(days=1), DAY + timedelta(days=2))
    book.run(DAY, DAY + timedelta(days=1))
    away.rename(recorded)
    # The gauge of the second day changes what the first day has of the counter's gap.
    assert book.run(DAY + timedelta(days=1), DAY + timedelta(days=2)) == (DAY, DAY + timedelta(days=2))
    book.run(DAY, DAY + timedelta(days=1))
    assert book.hashes() == at_once.hashes()
