"""The newest date that is published, per model: what stays when the running day begins anew.

Add here a figure of it. Keep out how a date is booked, and how a figure is named for Prometheus (`metrics`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.named_figures import figures_in_doubt
from pipelines.named_figures.figures_in_doubt import InDoubt
from pipelines.warehouse import database, statements
from pipelines.warehouse.database import literal


class ModelDay(NamedTuple):
    """A model on the date, within one scope of meters. None where it cannot be known."""

    model: str
    meter_scope: str
    energy_joules: float | None
    mean_watts: float | None
    output_tokens: float | None
    total_tokens: float | None
    joules_per_output_token: float | None
    joules_per_total_token: float | None
    idle_energy_ratio: float | None
    location_gco2e: float | None
    compute_cost_usd: float | None
    compute_cost_usd_per_output_mtok: float | None
    doubt: InDoubt | None = None


@dataclass(frozen=True)
class PublishedDay:
    """The date and its models."""

    on: date
    models: list[ModelDay]


def read(fleet: Fleet) -> PublishedDay | None:
    """The newest published date; None where none is published."""
    publication = fleet.latest_publication
    if publication is None or not (publication / fleet.snapshot.name).exists():
        return None
    with database.connect(":memory:") as connection:
        file = literal(publication / fleet.snapshot.name)
        connection.execute(f"attach {file} as published_file (read_only)")
        try:
            newest = connection.execute("select max(date) from published_file.marts.model_daily").fetchall()[0][0]
            rows = connection.execute(statements.read(__file__, "last_day")).fetchall()
            of_date = "(from published_file.marts.model_daily where date = ?)"
            in_doubt = figures_in_doubt.of_models(connection, of_date, [newest])
        except (duckdb.CatalogException, duckdb.BinderException):
            return None  # published by a version of other tables
    models = [ModelDay(*row)._replace(doubt=in_doubt.get(row[0])) for row in rows]
    return None if newest is None else PublishedDay(newest, models)
