"""What the sources show of a fleet file before anything is booked: names that they do not have, a start before theirs.

Their series are put into a warehouse in memory and compared as landed ones are. Add here what only the sources can
show before the first run. Keep out what the file alone shows (`plausibility`) and which entries are compared
(`unmatched_entries`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, time, timedelta

import duckdb

from collectors.probes.unknown_server import UnknownServer
from collectors.samples import SourceError
from pipelines.discovery.doubts import canonical_types
from pipelines.discovery.survey import Survey, survey
from pipelines.fleet.catalog import SEEDS, known_metrics
from pipelines.fleet.fleet_keys import Fleet
from pipelines.fleet.plausibility import Finding
from pipelines.fleet.sources import PrometheusSource, SpoolSource
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from pipelines.warehouse.unmatched_entries import unmatched

# What a log of requests names as well, and a survey does not read.
_OF_REQUESTS = ("models[", "engines[", "teams[")


def before_first_booking(fleet: Fleet, now: datetime) -> list[Finding] | None:
    """Findings about names and the period's start; None where a source cannot be looked at as a whole: files, one
    behind a prefix, one that does not answer or has nothing now."""
    end = fleet.period.end
    at = now if end is None else min(now, datetime.combine(end, time(), UTC))
    try:
        surveys = [_survey(source, at) for source in fleet.sources]
    except SourceError:  # `check` asks each source as well, and names this one
        return None
    looked_at = [found for found in surveys if found is not None and found.intervals and not found.too_many]
    if not looked_at or len(looked_at) < len(surveys):
        return None
    with database.connect(":memory:") as connection:
        _write(connection, fleet, looked_at)
        found = unmatched(fleet, connection) or []
    if fleet.requests:
        found = [one for one in found if not one.key.startswith(_OF_REQUESTS)]
    return [*found, *_early_start(fleet, looked_at)]


def _survey(source: object, at: datetime) -> Survey | None:
    if isinstance(source, PrometheusSource) and source.metric_prefix is None:
        with closing(UnknownServer(source.url, at, source.matchers, **source.access)) as server:
            server.look_back(known_metrics())
            return survey(server)
    if isinstance(source, SpoolSource) and source.metric_prefix is None:
        from collectors.probes.unknown_spool import unknown_spool  # noqa: PLC0415 (it reads Parquet)

        return survey(unknown_spool(source.path, at))
    return None


def _write(connection: duckdb.DuckDBPyConnection, fleet: Fleet, surveys: Sequence[Survey]) -> None:
    """What a booking of this moment would know: series, and the names that it gives to what they report."""
    create_tables(connection)
    connection.execute("create schema marts; create schema reference")
    connection.execute("create table marts.token_ledger (date date, engine varchar)")
    connection.execute(
        "create table reference.metric_catalog (source_kind varchar, metric varchar, meter_scope varchar)"
    )
    connection.execute(
        "create table reference.label_catalog as from read_csv($1, all_varchar = true)",
        [str(SEEDS / "label_catalog.csv")],
    )
    series = [(found.looked_at, one) for found in surveys for one in found.series]
    metrics = {(one.metric.source_kind, one.metric.metric, one.metric.meter_scope) for _, one in series}
    connection.executemany("insert into reference.metric_catalog values (?, ?, ?)", [*metrics])
    rows = [
        (n, "", one.metric.source_kind, one.metric.metric, json.dumps(dict(one.labels)), at, at)
        for n, (at, one) in enumerate(series)
    ]
    connection.executemany("insert into raw.series values (?, ?, ?, ?, ?, ?, ?)", rows)
    on = max(found.looked_at for found in surveys).date()
    types = canonical_types({one.meant["device_type"] for _, one in series if "device_type" in one.meant})
    names = [("device_type", known) for known in types.values() if known] + [
        ("site", site.name) for site in fleet.sites
    ]
    connection.executemany(
        "insert into raw.booked_names values (?, ?, ?)", [(on, *name) for name in names or [("", "")]]
    )


def _early_start(fleet: Fleet, surveys: Sequence[Survey]) -> Iterator[Finding]:
    """A start long before the first samples of any source. A spool is emptied by each landing: its start is unknown."""
    oldest = [found.oldest_days for found in surveys]
    known = [days for days in oldest if days is not None]
    if len(known) < len(fleet.sources) or any(source.kind == "spool" for source in fleet.sources):
        return
    first = max(found.looked_at for found in surveys).date() - timedelta(days=max(known) + 1)
    days = (first - fleet.period.start).days
    if days > 1:
        yield Finding(
            "",
            f"period.start: got {fleet.period.start}, expected {first} or later: no source has samples of the {days:,}"
            " days before, which would be booked empty",
        )
