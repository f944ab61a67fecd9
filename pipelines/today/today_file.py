"""The file today.duckdb: what a tick writes, and how it is read.

Add here a table of it. Keep out how a day is landed and booked (`ticks`), and how figures are shown.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import duckdb

import pipelines
from collectors.durable_files import opened, sync_folder
from collectors.samples import Window, printable
from pipelines.fleet.fleet_file import Fleet
from pipelines.named_figures import figures_in_doubt
from pipelines.named_figures.figures_in_doubt import InDoubt
from pipelines.warehouse import database, statements
from pipelines.warehouse.database import literal

NAME = "today.duckdb"
# DuckDB 2's own format cannot be read by drivers of 1.x, which most BI tools still carry.
STORAGE_VERSION = "v1.0.0"
# Of as many dates the last tick is compared with what was booked.
COMPARED_DAYS = 35
logger = logging.getLogger(__name__)
_LAST_TICKS = "date <> ? and date >= ?"


@dataclass(frozen=True)
class SourceState:
    """A source as a tick found it. `problem` is why it was not read whole; None where it was."""

    source: str
    newest_at: datetime | None
    closed_at: datetime | None
    samples: int
    is_silent: bool
    problem: str | None


@dataclass(frozen=True)
class Tick:
    """A tick of the date `on`: until when the sources were asked, and which intervals are closed."""

    fleet: Fleet
    on: date
    asked_until: datetime
    closed_until: datetime
    sources: list[SourceState]


class ModelToday(NamedTuple):
    """A model in the closed intervals of the day, within one scope of meters. None where it cannot be known."""

    model: str
    meter_scope: str
    energy_joules: float | None
    mean_watts: float | None
    newest_interval_watts: float | None
    output_tokens: float | None
    total_tokens: float | None
    joules_per_output_token: float | None
    joules_per_total_token: float | None
    estimated_idle_energy_ratio: float | None
    estimated_facility_energy_kwh: float | None
    estimated_location_gco2e: float | None
    estimated_compute_cost_usd: float | None
    estimated_compute_cost_usd_per_output_mtok: float | None
    doubt: InDoubt | None = None


class SourceToday(NamedTuple):
    """A source as the tick found it; `problem` is why it was not read whole."""

    source: str
    newest_at: datetime | None
    is_silent: bool
    problem: str | None


class Difference(NamedTuple):
    """How far the last tick of a date was from its booking at most, over the same hours: of which date and model."""

    figure: str
    dates: int
    greatest_ratio: float | None
    on: date
    model: str


@dataclass(frozen=True)
class Today:
    """A tick, as its file has it."""

    fleet: str
    is_synthetic: bool
    on: date
    asked_until_at: datetime
    closed_until_at: datetime
    seconds: float
    models: list[ModelToday]
    sources: list[SourceToday]
    differences: list[Difference]

    def name_of(self, one: ModelToday) -> str:
        """A model's name; with its scope of meters where the day has several, whose joules are never added."""
        scopes = {model.meter_scope for model in self.models if model.meter_scope != "none"}
        return f"{one.model} ({one.meter_scope})" if len(scopes) > 1 else one.model

    def in_doubt(self) -> dict[str, InDoubt]:
        """The models whose figures are in doubt."""
        return {one.model: one.doubt for one in self.models if one.doubt}

    def problems(self) -> Iterator[str]:
        """A line per source that was not read whole."""
        for one in self.sources:
            if one.problem is not None:
                yield f"{one.source}: {one.problem}"
            elif one.is_silent:
                newest = (
                    "no sample of this day" if one.newest_at is None else f"no sample since {one.newest_at:%H:%M} UTC"
                )
                yield f"{one.source}: {newest}; intervals are closed without it"


_DOUBLES = ", ".join(f"{name}::double" for name in ModelToday._fields[2:-1])
_TICK = "select fleet, is_synthetic, date, asked_until_at, closed_until_at, seconds from file.today.tick"
_MODELS = (
    f"select model, meter_scope, {_DOUBLES} from file.today.models order by starts_with(model, '__'), 3 desc, 1, 2"
)
_SOURCES = "select source, newest_at, is_silent, problem from file.today.sources order by source"
_DIFFERENCES = """
select figure, count(distinct date), max(abs(difference_ratio)), max_by(date, abs(difference_ratio)),
    max_by(model, abs(difference_ratio))
from file.today.differences where difference_ratio is not null group by figure order by 3 desc, figure
"""


def path_of(fleet: Fleet) -> Path:
    """Where the newest tick is."""
    return fleet.root / NAME


def write(tick: Tick, warehouse: Path, seconds: Callable[[], float]) -> Path:
    """Replace the file by what the tick's own warehouse has; `seconds` is how long the tick has taken. Returns its
    path."""
    latest = path_of(tick.fleet)
    fresh = warehouse.with_name(f"{os.getpid()}-{NAME}")
    for left in warehouse.parent.glob(f"*-{NAME}*"):
        left.unlink()
    with database.connect(warehouse) as connection:
        connection.execute(f"attach {literal(fresh)} as made (storage_version {literal(STORAGE_VERSION)})")
        connection.execute("create schema made.today")
        _write_tables(connection, tick)
        _compare(connection, tick, latest)
        connection.execute(
            "create table made.today.tick as select ? as fleet, ? as is_synthetic, ?::date as date,"
            " ?::timestamptz as asked_until_at, ?::timestamptz as closed_until_at, ?::double as seconds,"
            " ? as code_version",
            [
                tick.fleet.fleet,
                tick.fleet.synthetic,
                tick.on,
                tick.asked_until,
                tick.closed_until,
                seconds(),
                pipelines.__version__,
            ],
        )
        connection.execute("detach made")
    opened(fresh)
    fresh.replace(latest)
    sync_folder(latest.parent)
    return latest


def read(fleet: Fleet) -> Today | None:
    """The newest tick; None where none was made, or by a version of other tables."""
    path = path_of(fleet)
    if not path.exists():
        return None
    try:
        with database.connect(":memory:") as connection:
            connection.execute(f"attach {literal(path)} as file (read_only)")
            (tick,) = connection.execute(_TICK).fetchall()
            in_doubt = figures_in_doubt.of_models(connection, "file.today.model_hours")
            rows = connection.execute(_MODELS).fetchall()
            models = [ModelToday(*row)._replace(doubt=in_doubt.get(row[0])) for row in rows]
            sources = [SourceToday(*row) for row in connection.execute(_SOURCES).fetchall()]
            differences = [Difference(*row) for row in connection.execute(_DIFFERENCES).fetchall()]
    except (duckdb.CatalogException, duckdb.BinderException):
        return None
    name, is_synthetic, on, asked_until_at, closed_until_at, seconds = tick
    times = (on, asked_until_at, closed_until_at)
    return Today(name, is_synthetic, *times, seconds, models, sources, differences)


def last(fleet: Fleet) -> Today | None:
    """`read` for the next tick: a file that cannot be read goes, so that the tick can write another one."""
    try:
        return read(fleet)
    except duckdb.Error as error:
        logger.warning("%s cannot be read and is made anew: %s", path_of(fleet), printable(str(error)))
        path_of(fleet).unlink()
        return None


def _write_tables(connection: duckdb.DuckDBPyConnection, tick: Tick) -> None:
    start_at = Window.of_day(tick.on).start_at
    hours, models = statements.read(__file__, "model_hours").split(";\n", 1)
    connection.execute(hours, {"on": tick.on})
    given = {
        "newest_interval_at": tick.closed_until - timedelta(seconds=tick.fleet.grid_seconds),
        "day_seconds": (tick.closed_until - start_at).total_seconds() or None,
    }
    connection.execute(models, given)
    connection.execute(
        "create table made.today.sources (source varchar, newest_at timestamptz, samples bigint, is_silent boolean,"
        " problem varchar)"
    )
    for one in tick.sources:
        row = [one.source, one.newest_at, one.samples, one.is_silent, one.problem]
        connection.execute("insert into made.today.sources values (?, ?, ?, ?, ?)", row)


def _compare(connection: duckdb.DuckDBPyConnection, tick: Tick, latest: Path) -> None:
    """The last ticks of earlier dates, and what was booked of these since."""
    hours_until = tick.closed_until.replace(minute=0, second=0, microsecond=0)
    connection.execute(statements.read(__file__, "last_ticks"), {"hours_until": hours_until})
    if latest.exists():
        connection.execute(f"attach {literal(latest)} as before (read_only)")
        connection.execute(
            f"insert into made.today.last_ticks by name select * from before.today.last_ticks where {_LAST_TICKS}",
            [tick.on, tick.on - timedelta(days=COMPARED_DAYS)],
        )
        connection.execute("detach before")
    publication = tick.fleet.latest_publication
    has_hours = False
    if publication is not None and (publication / tick.fleet.snapshot.name).exists():
        connection.execute(f"attach {literal(publication / tick.fleet.snapshot.name)} as published_file (read_only)")
        has_hours = "model_hourly" in database.tables(connection, "marts", "published_file")
    if has_hours:
        connection.execute(statements.read(__file__, "differences"), {"on": tick.on})
    else:
        connection.execute(
            "create table made.today.differences (date date, model varchar, meter_scope varchar, figure varchar,"
            " ticked double, booked double, difference double, difference_ratio double)"
        )
