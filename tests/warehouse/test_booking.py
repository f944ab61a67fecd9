"""Which dates a landing makes stale: back to the previous landed sample, on to the next, remembered until healed."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.samples import SourceError, Window
from pipelines.landing import telemetry_landing
from pipelines.landing.telemetry_landing import Landing
from pipelines.spark import spark_ledger
from pipelines.warehouse import database, due_dates
from pipelines.warehouse.raw_tables import create_tables
from tests.given import CATALOGUE, ENERGY, WATTS, Samples, at, day

GPU = {"UUID": "GPU-1", "pod": "a"}


def dates(*numbers: int) -> list[date]:
    return [date(2026, 10, 1) + timedelta(days=n) for n in numbers]


def land(connection: duckdb.DuckDBPyConnection, source: Samples, window: Window, **options: object) -> None:
    telemetry_landing.land(connection, source, window, CATALOGUE, run_id="run", **options)


def due(connection: duckdb.DuckDBPyConnection, stage: str = "booking") -> list[date]:
    found = connection.execute("select date from raw.due_dates where due = ? order by date", [stage]).fetchall()
    return [row[0] for row in found]


def heal(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("delete from raw.due_dates")


def counter(*hours: float, labels: dict[str, str] | None = None) -> Samples:
    return Samples().put(ENERGY, labels or GPU, [(at(hours=h), 1000.0 * h) for h in hours])


def test_a_first_landing_makes_its_own_day_due(held: duckdb.DuckDBPyConnection) -> None:
    land(held, counter(25, 30), day(1))
    assert due(held) == dates(1)


def test_a_date_is_ahead_of_its_history_until_that_is_published_with_it(held: duckdb.DuckDBPyConnection) -> None:
    due_dates.mark(held, due_dates.AHEAD, *dates(4, 5))
    due_dates.published(held, *dates(4, 5))  # alone
    assert due(held, "ahead") == dates(4)
    due_dates.published(held, *dates(4, 6))  # with the date after it, as a nightly run does
    assert due(held, "ahead") == dates(4)
    due_dates.published(held, *dates(0, 5))
    assert due(held, "ahead") == []


def test_an_unchanged_landing_makes_nothing_due(held: duckdb.DuckDBPyConnection) -> None:
    land(held, counter(25, 30), day(1))
    heal(held)
    land(held, counter(25, 30), day(1))
    assert due(held) == []


def test_a_new_day_reaches_back_to_the_previous_sample_over_a_gap_of_days(held: duckdb.DuckDBPyConnection) -> None:
    land(held, counter(25, 30), day(1))
    heal(held)
    land(held, counter(24 * 5 + 1), day(5))
    assert due(held) == dates(1, 5)


def test_a_date_between_is_due_if_it_was_asked_for_and_had_nothing(held: duckdb.DuckDBPyConnection) -> None:
    silent, everything = Samples(), counter(25, 24 * 5 + 1)
    land(held, everything, day(1))
    land(held, silent, day(2))  # empty
    telemetry_landing.audit(held, Landing.failed("agent", day(4), SourceError("", None, "down")), "run", at(6))
    heal(held)
    land(held, everything, day(5))
    assert due(held) == dates(1, 2, 4, 5)


def test_late_data_reaches_back_and_on_to_the_next_sample(held: duckdb.DuckDBPyConnection) -> None:
    everything = counter(25, 24 * 3 + 2, 24 * 6 + 1)
    land(held, everything, day(1))
    land(held, everything, day(6))
    heal(held)
    land(held, everything, day(3))
    assert due(held) == dates(1, 3, 6)


def test_a_new_last_sample_does_not_reach_back(held: duckdb.DuckDBPyConnection) -> None:
    for n in (0, 1, 2):
        land(held, counter(1, 25, 49), day(n))
    heal(held)
    land(held, counter(25, 40), day(1))
    assert due(held) == dates(1, 2)


def test_a_sample_in_the_middle_changes_no_neighbour(held: duckdb.DuckDBPyConnection) -> None:
    for n in (0, 1, 2):
        land(held, counter(1, 25, 40, 49), day(n))
    heal(held)
    land(held, counter(25, 30, 40), day(1))
    assert due(held) == dates(1)


def test_a_restated_first_value_reaches_back(held: duckdb.DuckDBPyConnection) -> None:
    for n in (0, 1):
        land(held, counter(1, 25, 40), day(n))
    heal(held)
    land(held, Samples().put(ENERGY, GPU, [(at(hours=25), 7.0), (at(hours=40), 40000.0)]), day(1))
    assert due(held) == dates(0, 1)


def test_a_forced_loss_of_a_day_makes_its_neighbours_due(held: duckdb.DuckDBPyConnection) -> None:
    for n in (0, 2, 4):
        land(held, counter(1, 50, 97), day(n))
    heal(held)
    land(held, Samples(), day(2), force=True)
    assert due(held) == dates(0, 2, 4)


def test_a_head_makes_the_days_before_it_due_and_not_its_own(held: duckdb.DuckDBPyConnection) -> None:
    everything = counter(1, 49)
    land(held, everything, day(0))
    heal(held)
    land(held, everything, Window(at(2), at(2, hours=1.5)), is_neighbour=True)
    assert due(held) == dates(0)


def test_a_normal_day_after_its_head_is_booked_once(held: duckdb.DuckDBPyConnection) -> None:
    everything = counter(*(h + 0.25 for h in range(72)))
    land(held, everything, day(0))
    land(held, everything, Window(at(1), at(1, hours=1)), is_neighbour=True)
    heal(held)
    land(held, everything, day(1))
    land(held, everything, Window(at(2), at(2, hours=1)), is_neighbour=True)
    assert due(held) == dates(1)


def test_a_device_whose_labels_changed_has_the_neighbour_of_its_old_series(held: duckdb.DuckDBPyConnection) -> None:
    land(held, counter(1, 5), day(0))
    heal(held)
    land(held, counter(24 * 3 + 1, labels={"UUID": "GPU-1", "pod": "b"}), day(3))
    assert due(held) == dates(0, 3)
    heal(held)
    land(held, counter(24 * 4 + 1, labels={"uuid": "GPU-2", "pod": "b"}), day(4))
    assert due(held) == dates(4)


def test_an_index_is_a_device_of_its_own_node(held: duckdb.DuckDBPyConnection) -> None:
    land(held, counter(1, 5, labels={"gpu": "0", "Hostname": "n1", "pod": "a"}), day(0))
    heal(held)
    # The same index on another node is another board; on the same node it is the same, whatever its other labels are.
    land(held, counter(24 * 2 + 1, labels={"gpu": "0", "Hostname": "n2", "pod": "b"}), day(2))
    assert due(held) == dates(2)
    heal(held)
    land(held, counter(24 * 3 + 1, labels={"UUID": "0", "Hostname": "n1", "pod": "b"}), day(3))
    assert due(held) == dates(0, 2, 3)


def test_a_label_change_within_the_day_changes_no_neighbour(held: duckdb.DuckDBPyConnection) -> None:
    land(held, counter(1), day(0))
    land(held, counter(25, 30, 40), day(1))
    heal(held)
    moved = counter(25, 40).put(ENERGY, {"UUID": "GPU-1", "pod": "b"}, [(at(hours=30), 30000.0)])
    land(held, moved, day(1))
    assert due(held) == []


def test_another_holder_at_the_end_of_a_day_reaches_on_to_the_next_sample(held: duckdb.DuckDBPyConnection) -> None:
    for n in (0, 1, 3):
        land(held, counter(1, 25, 30, 40, 24 * 3 + 1), day(n))
    heal(held)
    moved = counter(25, 30).put(ENERGY, {"UUID": "GPU-1", "pod": "b"}, [(at(hours=40), 40000.0)])
    land(held, moved, day(1))
    assert due(held) == dates(1, 3)


def test_a_gauge_that_lands_while_its_counter_is_silent_makes_all_of_the_silence_due(
    held: duckdb.DuckDBPyConnection,
) -> None:
    # The counter is silent from day 1 to day 4; its difference is the sum over all of it, shaped by the gauge.
    silent = counter(*range(24, 31), *range(24 * 4 + 12, 24 * 5))
    for n in range(1, 5):
        land(held, silent, day(n))
    heal(held)
    gauge = Samples("agent").put(WATTS, GPU, [(at(hours=24 * 2 + n), 200.0) for n in range(24)])
    land(held, gauge, day(2))
    assert due(held) == dates(1, 2, 3, 4)


def test_a_gauge_that_lands_beside_a_counter_makes_its_own_days_due(held: duckdb.DuckDBPyConnection) -> None:
    steady = counter(*range(24 * 6))
    for n in range(6):
        land(held, steady, day(n))
    other = Samples("other").put(ENERGY, {"UUID": "GPU-2"}, [(at(hours=1), 0.0), (at(hours=24 * 5), 9.0)])
    for n in (0, 5):
        land(held, other, day(n))
    heal(held)
    gauge = Samples("agent").put(WATTS, GPU, [(at(hours=24 * 2 + n), 200.0) for n in range(24)])
    land(held, gauge, day(2))
    assert due(held) == dates(2)


def test_rejected_samples_are_no_neighbours(held: duckdb.DuckDBPyConnection) -> None:
    land(held, counter(1), day(0))
    land(held, Samples().put(ENERGY, GPU, [(at(hours=30), float("nan"))]), day(1))
    heal(held)
    land(held, counter(50), day(2))
    assert due(held) == dates(0, 1, 2)


def test_a_failed_landing_makes_nothing_due(held: duckdb.DuckDBPyConnection) -> None:
    source = counter(25, 30)
    source.error, source.fails_after = OSError("torn"), 0
    land(held, source, day(1))
    assert due(held) == []


def test_dates_wait_until_they_are_booked_and_then_published(held: duckdb.DuckDBPyConnection) -> None:
    everything = counter(25, 24 * 5 + 1)
    land(held, everything, day(1))
    land(held, everything, day(5))
    assert due_dates.dates_to_book(held, *dates(5, 6)) == tuple(dates(1, 6))
    assert due_dates.dates_to_book(held, *dates(0, 2)) == tuple(dates(0, 6))
    assert due_dates.dates_to_publish(held, *dates(5, 6)) == tuple(dates(5, 6))
    due_dates.booked(held, *dates(1, 6))
    assert (due(held), due(held, "publication")) == ([], dates(1, 2, 3, 4, 5))
    assert due_dates.dates_to_book(held, *dates(5, 6)) == tuple(dates(5, 6))
    assert due_dates.dates_to_publish(held, *dates(5, 6)) == tuple(dates(1, 6))
    due_dates.published(held, *dates(1, 6))
    assert due(held, "publication") == []


@pytest.mark.rest
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.integers(0, 6), st.lists(st.integers(0, 23), min_size=1, max_size=3, unique=True), min_size=1),
    st.permutations(range(7)),
)
def test_in_any_order_every_date_is_booked_after_the_last_change_of_its_neighbours(
    hours: dict[int, list[int]], order: list[int]
) -> None:
    """Booking, reduced to its neighbours: a date's book is the pairs of samples that touch it. Landing the days in any
    order and booking what is due each time must end in the same book as landing all and booking all."""
    everything = counter(*(24 * n + h + 0.5 for n, some in hours.items() for h in sorted(some)))
    connection = database.connect(":memory:")
    create_tables(connection)
    book: dict[date, list[tuple]] = {}
    for n in order:
        land(connection, everything, day(n))
        start, end = due_dates.dates_to_book(connection, *dates(n, n + 1))
        for offset in range((end - start).days):
            book[start + timedelta(days=offset)] = _segments(connection, start + timedelta(days=offset))
        due_dates.booked(connection, start, end)
    assert book == {n: _segments(connection, n) for n in dates(*range(7))}
    connection.close()


def _segments(connection: duckdb.DuckDBPyConnection, on: date) -> list[tuple[datetime, datetime]]:
    return connection.execute(
        """
        select * from (
            select observed_at as start_at, lead(observed_at) over (order by observed_at) as end_at
            from raw.power_samples
        ) where start_at < cast(? as date) + 1 and end_at >= cast(? as date) order by 1
        """,
        [on, on],
    ).fetchall()


# --- two engines ------------------------------------------------------------------------------------------------------


def test_what_duckdb_booked_in_between_is_due_on_spark_alone(held: duckdb.DuckDBPyConnection) -> None:
    start, end = dates(4, 5)
    spark_ledger.missed(held, *dates(1, 3))
    assert due_dates.dates_to_book(held, start, end) == (start, end)
    assert due_dates.dates_to_book(held, start, end, spark_ledger.SPARK) == tuple(dates(1, 5))
    due_dates.booked(held, *dates(1, 5))
    assert due(held, "spark") == dates(1, 2)
    due_dates.booked(held, *dates(1, 5), also=spark_ledger.SPARK)
    assert due(held, "spark") == []
