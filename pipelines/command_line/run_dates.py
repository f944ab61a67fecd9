"""Which dates `run` books: those that the options name, else every date that is not landed yet; in which order, and in
how many runs of Dagster's.

Add here what decides on dates before anything runs. Keep out which dates a landing made stale: these wait in
raw.due_dates, and booking adds them.
"""

from __future__ import annotations

import argparse
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import history
from pipelines.warehouse import database, due_dates, refusals, sealed_dates, settings
from pipelines.warehouse.raw_tables import create_tables

# A history of more dates than these is booked newest date first. Booking one date alone costs what it costs to start
# dbt and to publish, whatever the sources: of a server's week that is as long as all the rest, and files and generated
# telemetry land within a second a date.
LONGEST_WAIT_DATES = {"prometheus": 7}
LONGEST_WAIT_DATES_OF_OTHERS = 60

# More dates than these are landed and booked in stretches, each by a run of its own, and published by the last one. A
# run holds all its dates at once in its models, and Dagster notes each of its assets for each of its dates, one by one,
# before the first step.
LONGEST_RUN_DATES = 62
STRETCH_DATES = 31


def dates_of(fleet: Fleet, options: argparse.Namespace) -> tuple[date, date, bool]:
    """The dates [start, end) that a run books, and whether it books them from landed rows alone. QuestionError where
    there are none."""
    days = fleet.days(datetime.now(UTC).date())
    if not days:
        raise refusals.QuestionError(
            f"{fleet.path}: period.start {fleet.period.start}: no day of the period is over yet"
        )
    found = sealed(fleet)
    open_from = found[-1] + timedelta(days=1) if found else date.min
    days = [on for on in days if on >= open_from]
    if not days:
        raise refusals.QuestionError(
            f"fleet {fleet.fleet}: every date of the period is sealed; there is nothing to book"
        )
    lost = history.lost_warehouse(fleet)
    if lost and not (options.rebuild or options.adopt):
        raise refusals.QuestionError(lost)
    start, end = options.start, options.end
    is_rebuilt = options.rebuild and not lost  # what was lost with the warehouse has to be landed again
    if is_rebuilt:
        booked = _booked_dates(fleet, days)
        if not booked:
            raise refusals.QuestionError(f"fleet {fleet.fleet}: no date is booked yet; run without --rebuild")
        days = [on for on in days if booked[0] <= on <= booked[-1]]
    all_of_it = is_rebuilt or options.adopt or lost
    start = start or (days[0] if all_of_it else _first_open_day(fleet, days))
    end = end or days[-1] + timedelta(days=1)
    if end <= start:
        raise refusals.QuestionError(
            f"--start {start} --end {end}: expected an end after the start; the end itself is not booked"
        )
    if start < open_from:
        raise refusals.QuestionError(
            f"--start {start}: expected {open_from} or later: the dates before it are sealed, because samples that"
            " their booking reads were removed (`retention`)"
        )
    if not days[0] <= start < end <= days[-1] + timedelta(days=1):
        raise refusals.QuestionError(
            f"--start {start} --end {end}: expected a start from {days[0]} on, and an end up to"
            f" {days[-1] + timedelta(days=1)}, the date after the last one"
        )
    return start, end, is_rebuilt


def looks_first(fleet: Fleet, options: argparse.Namespace, start: date, end: date) -> date | None:
    """The newest of the dates [start, end) where it is to be booked and published before the others; None for a run
    that books them all at once. Only where no date has landed: between a date and the one that landed before it every
    date has a share of a counter's difference, and would be booked twice, too."""
    kinds = {source.kind for source in fleet.sources}
    dates = min((LONGEST_WAIT_DATES.get(kind, LONGEST_WAIT_DATES_OF_OTHERS) for kind in kinds), default=0)
    is_chosen = options.start or options.end or options.rebuild or options.adopt
    if is_chosen or (end - start).days <= dates or not kinds or fleet.latest_publication is not None:
        return None
    if fleet.warehouse.exists():
        with database.writing(fleet.warehouse, "run"), database.connect(fleet.warehouse) as connection:
            create_tables(connection)
            if due_dates.landed(connection) or due_dates.due(connection, due_dates.BOOKING):
                return None
    return end - timedelta(days=1)


def stretches(fleet: Fleet, options: argparse.Namespace, start: date, end: date) -> list[tuple[date, date]]:
    """The dates [start, end) as half-open stretches in order, each for a run of its own; one where they are few.

    A rebuild and an adoption replace all dates or none. Spark has its own memory, and a build's fixed minutes.
    """
    is_one = options.rebuild or options.adopt or fleet.landing.engine == "spark"
    if is_one or (end - start).days <= LONGEST_RUN_DATES:
        return [(start, end)]
    edges = [start + timedelta(days=days) for days in range(0, (end - start).days, STRETCH_DATES)]
    return [*pairwise([*edges, end])]


def mark_ahead(fleet: Fleet, on: date) -> None:
    """Note that a date is published before those before it: what they change of it is no restatement."""
    with database.writing(fleet.warehouse, "run"), database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        due_dates.mark(connection, due_dates.AHEAD, on, on + timedelta(days=1))


def sealed(fleet: Fleet) -> list[date]:
    """The fleet's sealed dates, in order."""
    if not fleet.warehouse.exists():
        return []
    with database.writing(fleet.warehouse, "run"), database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        return sealed_dates.of(connection)


def _first_open_day(fleet: Fleet, days: list[date]) -> date:
    """Where a run without --start begins: a closed period is booked whole, an open one from where landing stopped."""
    if fleet.period.end is not None or not fleet.warehouse.exists():
        return days[0]
    with database.writing(fleet.warehouse, "run"), database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        landed = connection.execute(
            "select cast(window_start_at as date), bool_or(outcome <> 'failed') from raw.landings"
            " where asset = 'raw/telemetry' and window_end_at - window_start_at = interval 1 day group by 1"
        ).fetchall()
        closed = {on for on, is_answered in landed if is_answered}
        # Landing asks again for what has failed before (`relanding`).
        closed |= {on for on, _ in landed if on < max(closed, default=on)}
        if not settings.booked_dates(connection):
            # What a killed run landed and did not book is due, unless its marks were lost with the marts.
            closed &= {*due_dates.due(connection, due_dates.BOOKING)}
    open_days = set(days) - closed
    return min(open_days, default=days[-1])


def _booked_dates(fleet: Fleet, days: list[date]) -> list[date]:
    """The dates of the period that the warehouse has booked, or was booking when a run was killed."""
    if not fleet.warehouse.exists():
        return []
    with database.writing(fleet.warehouse, "run"), database.connect(fleet.warehouse) as connection:
        create_tables(connection)
        found = {*settings.booked_dates(connection), *due_dates.due(connection, due_dates.BOOKING)}
        return sorted(on for on in found or due_dates.landed(connection) if days[0] <= on <= days[-1])
