"""First numbers of a source: its last two full hours, landed into a temporary warehouse and booked by the same models.

Add here what a newcomer should see before a fleet file is settled. Keep out formulas: every figure is a sum of columns
of the marts over a sum of others.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from collectors.samples import Window
from pipelines.booking import dbt_run, project
from pipelines.fleet import catalog
from pipelines.fleet.fleet_file import Fleet
from pipelines.landing import fleet_landing, telemetry_landing
from pipelines.warehouse import database, statements
from pipelines.warehouse.raw_tables import create_tables

HOURS = 2
# More than the longest interval that an exporter usually has.
EDGE = timedelta(minutes=10)
RUN = "first-numbers"
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
    on = window.start_at.date()
    landed = _with_neighbours(window, at)
    problems: list[str] = []
    with _temporary(fleet) as (aside, parsed):
        report(f"landing {window.start_at:%H:%M} to {window.end_at:%H:%M} UTC")
        with database.connect(aside.warehouse) as connection:
            create_tables(connection)
            fleet_landing.write_fleet(connection, aside)
            for source in aside.sources:
                landing = telemetry_landing.land(
                    connection,
                    source.collector(),
                    landed,
                    telemetry_landing.Catalogue(catalog.families(prefix=source.metric_prefix), catalog.device_labels()),
                    run_id=RUN,
                    replica_labels=source.replica_labels,
                    most_series=source.limits.series,
                    is_a_look=True,
                )
                if not landing.is_answered:
                    problems.append(f"{source.name}: {landing.detail}")
        report("booking")
        _build(aside, on, parsed, "build", "--exclude-resource-type", "unit_test", "--select", "resource_type:seed")
        _build(aside, on, parsed, "run", "--select", f"+{MART}")
        with database.connect(aside.warehouse, read_only=True) as connection:
            given = {"start_at": window.start_at, "end_at": window.end_at}
            rows = connection.execute(statements.read(__file__, "first_numbers"), given).fetchall()
    return FirstNumbers(window, [ModelNumbers(*row) for row in rows], problems)


def _with_neighbours(window: Window, at: datetime) -> Window:
    """The window with the samples before and after it, of its own date: without them its edges have no joules."""
    midnight = window.start_at.replace(hour=0)
    start, end = max(window.start_at - EDGE, midnight), min(window.end_at + EDGE, at, midnight + timedelta(days=1))
    return Window(start, max(end, window.end_at))


@contextmanager
def _temporary(fleet: Fleet) -> Iterator[tuple[Fleet, Path]]:
    """The fleet with a root of its own, and where dbt keeps its parsed project, which stays for the run to come."""
    fleet.root.parent.mkdir(parents=True, exist_ok=True)
    parsed = project.prepared_project(fleet.root.parent).target_path
    with tempfile.TemporaryDirectory(prefix="wattledger-") as folder:
        aside = fleet.model_copy(update={"root": Path(folder) / fleet.fleet})
        aside.root.mkdir()
        yield aside, parsed


def _build(fleet: Fleet, on: date, parsed: Path, *words: str) -> None:
    results = dbt_run.run_dbt(
        words,
        project.variables_of(fleet, on, on + timedelta(days=1)),
        project.environment_of(fleet),
        fleet.root / "dbt",
        parsed=parsed,
    )
    wrong = [one for one in results if str(one.status) in ("error", "fail", "runtime error")]
    if wrong:
        raise dbt_run.DbtError(f"{wrong[0].node.name}: {wrong[0].message}")
