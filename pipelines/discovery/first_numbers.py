"""First numbers of a source: its last two full hours, landed into a temporary warehouse and booked by the same models.

Add here what a newcomer should see before a fleet file is settled. Keep out formulas: every figure is a sum of columns
of the marts over a sum of others.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from collectors.samples import Window
from pipelines.fleet.fleet_file import Fleet
from pipelines.named_figures import figures_in_doubt, unplaced_hosts
from pipelines.named_figures.figures_in_doubt import InDoubt
from pipelines.named_figures.unplaced_hosts import UnplacedMeter
from pipelines.today import aside
from pipelines.warehouse import database, statements

HOURS = 2
# More than the longest interval that an exporter usually has.
EDGE = timedelta(minutes=10)
# What the figures are read from; dbt makes what these read, and no more.
MARTS = ("model_hourly", "unplaced_meters")


class ModelNumbers(NamedTuple):
    """A model in the two hours: its boards, what these drew, and what a token took. None where it cannot be known."""

    model: str
    meter_scope: str
    gpus: float | None
    mean_watts: float | None
    joules_per_total_token: float | None
    joules_per_output_token: float | None
    idle_energy_ratio: float | None
    output_tokens: float | None
    doubt: InDoubt | None = None


@dataclass(frozen=True)
class FirstNumbers:
    """The window, a row per model, what could not be landed, and wall meters that no host is known for: what these
    measure is in no row, because the boards' rows have it as well."""

    window: Window
    models: list[ModelNumbers]
    problems: list[str]
    unplaced: list[UnplacedMeter]


def last_full_hours(at: datetime) -> Window:
    """The last full hours before `at`, of one UTC date: at the beginning of a day those of the day before."""
    end = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if end.hour and end.hour < HOURS:
        end = end.replace(hour=0)
    return Window(end - timedelta(hours=HOURS), end)


def running_hour(at: datetime, grid_seconds: int) -> Window | None:
    """The whole intervals of the hour that runs; None where there is none yet."""
    start = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    seconds = (at - start).total_seconds() // grid_seconds * grid_seconds
    return Window(start, start + timedelta(seconds=seconds)) if seconds else None


def first_numbers(fleet: Fleet, at: datetime, report: Callable[[str], None] = lambda _: None) -> FirstNumbers:
    """Book the last full hours before `at` of a fleet, into a folder that is gone afterwards. Of a source that began
    later, the hour that runs."""
    made = _of(fleet, last_full_hours(at), at, report)
    running = running_hour(at, fleet.grid_seconds)
    return made if made.models or made.problems or running is None else _of(fleet, running, at, report)


def _of(fleet: Fleet, window: Window, at: datetime, report: Callable[[str], None]) -> FirstNumbers:
    landed = _with_neighbours(window, at)
    problems: list[str] = []
    parsed = aside.parsed_project(fleet)
    with tempfile.TemporaryDirectory(prefix="wattledger-") as folder:
        apart = aside.placed(fleet, Path(folder) / fleet.fleet)
        report(f"landing {window.start_at:%H:%M} to {window.end_at:%H:%M} UTC")
        with database.connect(apart.warehouse) as connection:
            aside.prepare(connection, apart)
            for source in apart.sources:
                landing = aside.land(connection, source, landed)
                if not landing.is_answered:
                    problems.append(f"{source.name}: {landing.detail}")
        report("booking")
        aside.seed(apart, parsed)
        aside.book(apart, window.start_at.date(), parsed, MARTS)
        with database.connect(apart.warehouse, read_only=True) as connection:
            given = {"start_at": window.start_at, "end_at": window.end_at}
            rows = connection.execute(statements.read(__file__, "first_numbers"), given).fetchall()
            unplaced = unplaced_hosts.meters(connection)
            hours = "from marts.model_hourly where hour_start_at >= ? and hour_start_at < ?"
            if unplaced:
                hours += " and (meter_scope <> 'node' or model <> '__unknown__')"
            in_doubt = figures_in_doubt.of_models(connection, f"({hours})", [*given.values()])
    models = [ModelNumbers(*row)._replace(doubt=in_doubt.get(row[0])) for row in rows]
    return FirstNumbers(window, models, problems, unplaced)


def _with_neighbours(window: Window, at: datetime) -> Window:
    """The window with the samples before and after it, of its own date: without them its edges have no joules."""
    midnight = window.start_at.replace(hour=0)
    start, end = max(window.start_at - EDGE, midnight), min(window.end_at + EDGE, at, midnight + timedelta(days=1))
    return Window(start, max(end, window.end_at))
