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
from pipelines.today import aside
from pipelines.warehouse import database, statements

HOURS = 2
# What the figures are read from; dbt makes what this reads, and no more.
MART = "model_hourly"


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


@dataclass(frozen=True)
class FirstNumbers:
    """The window, a row per model, and what could not be landed."""

    window: Window
    models: list[ModelNumbers]
    problems: list[str]


def last_full_hours(at: datetime) -> Window:
    """The last full hours before `at`, of one UTC date: at the beginning of a day those of the day before."""
    end = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if end.hour and end.hour < HOURS:
        end = end.replace(hour=0)
    return Window(end - timedelta(hours=HOURS), end)


def first_numbers(fleet: Fleet, at: datetime, report: Callable[[str], None] = lambda _: None) -> FirstNumbers:
    """Book the last full hours before `at` of a fleet, into a folder that is gone afterwards."""
    window = last_full_hours(at)
    problems: list[str] = []
    parsed = aside.parsed_project(fleet)
    with tempfile.TemporaryDirectory(prefix="wattledger-") as folder:
        apart = aside.placed(fleet, Path(folder) / fleet.fleet)
        report(f"landing {window.start_at:%H:%M} to {window.end_at:%H:%M} UTC")
        with database.connect(apart.warehouse) as connection:
            aside.prepare(connection, apart)
            for source in apart.sources:
                landing = aside.land(connection, source, window)
                if not landing.is_answered:
                    problems.append(f"{source.name}: {landing.detail}")
        report("booking")
        aside.seed(apart, parsed)
        aside.book(apart, window.start_at.date(), parsed, MART)
        with database.connect(apart.warehouse, read_only=True) as connection:
            given = {"start_at": window.start_at, "end_at": window.end_at}
            rows = connection.execute(statements.read(__file__, "first_numbers"), given).fetchall()
    return FirstNumbers(window, [ModelNumbers(*row) for row in rows], problems)
