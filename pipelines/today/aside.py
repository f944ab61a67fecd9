"""A stretch of one UTC date, booked beside a fleet's warehouse: landed into a file of its own, by the same models.

The warehouse, its publications and what sources keep until it is landed (a spool's files) stay as they are. Add here
what every such book needs. Keep out which stretch it is, and what is read from it: that is `ticks`, and
`pipelines.discovery.first_numbers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from pathlib import Path

import duckdb

from collectors.samples import Window
from pipelines.booking import dbt_run, project
from pipelines.fleet import catalog
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.sources import AnySource, reader
from pipelines.landing import fleet_landing, telemetry_landing
from pipelines.landing.telemetry_landing import Landing
from pipelines.warehouse.raw_tables import create_tables

RUN = "aside"
# Histograms of latency: nine tenths of an engine's samples, and none of its joules and tokens.
UNREAD_QUANTITIES = ("ttft_bucket", "itl_bucket", "tpot_bucket")
SEEDS = "resource_type:seed"


def placed(fleet: Fleet, root: Path) -> Fleet:
    """The fleet with its data in another folder, which is made."""
    root.mkdir(parents=True, exist_ok=True)
    return fleet.model_copy(update={"root": root})


def parsed_project(fleet: Fleet) -> Path:
    """Where dbt keeps its parsed project: beside the fleet's own data, for the run to come."""
    fleet.root.parent.mkdir(parents=True, exist_ok=True)
    return project.prepared_project(fleet.root.parent).target_path


def prepare(connection: duckdb.DuckDBPyConnection, aside: Fleet) -> None:
    """The tables that the models read, and in them what the fleet file states."""
    create_tables(connection)
    fleet_landing.write_fleet(connection, aside)


def land(
    connection: duckdb.DuckDBPyConnection, source: AnySource, window: Window, *, is_neighbour: bool = False
) -> Landing:
    """Land a source's window, without the families that no figure of energy, tokens, CO2e or cost is made of. What the
    source keeps until it is landed, it keeps."""
    unread = {metric for quantity in UNREAD_QUANTITIES for metric in catalog.metrics(quantity=quantity)}
    unread |= {f"{source.metric_prefix}{metric}" for metric in unread if source.metric_prefix}
    families = catalog.families(prefix=source.metric_prefix)
    read = {metric: family for metric, family in families.items() if metric not in unread}
    return telemetry_landing.land(
        connection,
        reader(source),
        window,
        telemetry_landing.Catalogue(read, catalog.device_labels()),
        run_id=RUN,
        replica_labels=source.replica_labels,
        tenant_labels=source.named_labels,
        most_series=source.limits.series,
        is_neighbour=is_neighbour,
        is_a_look=True,
    )


def seed(aside: Fleet, parsed: Path) -> None:
    """Load the seeds."""
    _build(aside, date.min, parsed, ("build", "--exclude-resource-type", "unit_test", "--select", SEEDS))


def book(aside: Fleet, on: date, parsed: Path, marts: Sequence[str], closed_until: datetime | None = None) -> None:
    """Make marts of the date, and what they read; with `closed_until` of the intervals before it alone. DbtError names
    the model that cannot be made."""
    _build(aside, on, parsed, ("run", "--select", *(f"+{mart}" for mart in marts)), closed_until)


def _build(aside: Fleet, on: date, parsed: Path, words: Sequence[str], closed_until: datetime | None = None) -> None:
    variables = project.variables_of(aside, on, on + timedelta(days=1), closed_until)
    results = dbt_run.run_dbt(words, variables, project.environment_of(aside), aside.root / "dbt", parsed=parsed)
    wrong = [one for one in results if str(one.status) in ("error", "fail", "runtime error")]
    if wrong:
        raise dbt_run.DbtError(f"{wrong[0].node.name}: {wrong[0].message}")
