"""The fleet file's own facts as tables: schema `fleet` and run windows, replaced whole each run.

Add a table here when the fleet file gains a part that SQL has to read. Keep out telemetry and grid
intensity, which sources send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb

from collectors.rows import Rejects
from collectors.samples import SourceError
from collectors.text_files import paths_of
from pipelines.fleet.fleet_keys import Fleet, Model
from pipelines.fleet.grid_zones import UNKNOWN_ZONE
from pipelines.fleet.request_sources import LoadTest
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import FLEET_TABLES, columns_of
from pipelines.warehouse.tenants.tenant_names import TenantKeys


def write_fleet(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> tuple[Mapping[str, int], list[str]]:
    """Replace the tables of schema `fleet` in one transaction; rows per table, and a line per list of GPU prices or
    FOCUS export with rejects. SourceError names a list that does not give exactly one price, and an export that cannot
    be read."""
    rows = fleet_rows(fleet)
    rates, rejected = _listed_rates(fleet)
    rows["cost_rates"] += rates
    for export in fleet.focus_exports:
        figures = export.figures()
        rows["cost_rates"] += figures.rates()
        rows["commitments"] += figures.commitments()
        rejected += [figures.rejected] if figures.rejected else []
    tenants = TenantKeys(connection)
    for price in rows["contract_prices"]:
        price["tenant"] = tenants.key(price["tenant"])
    with database.transaction(connection):
        for table in FLEET_TABLES:
            _replace(connection, f"fleet.{table}", columns_of("fleet", table), rows[table])
    return {table: len(rows[table]) for table in FLEET_TABLES}, rejected


def _listed_rates(fleet: Fleet) -> tuple[list[dict[str, Any]], list[str]]:
    """The rates of the fleet's lists of GPU prices, and a line per list with rejects."""
    rates, rejected = [], []
    for file in fleet.cost_rate_files:
        rejects = Rejects(file.limits.bad_rows_ratio)
        rates += list(file.rates(rejects))
        rejected += [f"{file.source}: {rejects}"] if rejects.rows else []
    return rates, rejected


def fleet_rows(fleet: Fleet) -> dict[str, list[dict[str, Any]]]:
    """Table of schema `fleet` -> its rows, as far as the fleet file itself states them."""
    return {
        "sources": [
            {
                "source": source.name,
                "kind": source.kind,
                "interval_seconds": source.interval_seconds,
                "tokens_complete": source.tokens_complete,
                "temporality": source.temporality,
                "site": source.site,
                "metric_prefix": source.metric_prefix,
            }
            for source in fleet.sources
        ],
        "tenant_labels": [
            {"source": source.name, "entry": entry, "names": names, "label": label}
            for source in fleet.sources
            for names, labels in (("tenant", source.tenant_labels), ("team", source.team_labels))
            for entry, label in enumerate(labels)
        ],
        "sites": [
            {
                "site": site.name,
                **site.model_dump(
                    include={"time_zone", "pue", "wue_litres_per_kwh", "cooling_share_of_overhead", "rented_by"}
                ),
                "zone": None if site.zone == UNKNOWN_ZONE else site.zone,
            }
            for site in fleet.sites
        ],
        "tariffs": [
            {
                "site": site.name,
                "valid_from": tariff.valid_from,
                "valid_to": tariff.valid_to,
                "local_hour_from": tariff.local_hours[0],
                "local_hour_to": tariff.local_hours[1],
                "usd_per_kwh": tariff.usd_per_kwh,
            }
            for site in fleet.sites
            for tariff in site.tariff
        ],
        "site_charges": [
            {"site": site.name, **charge.row()}
            for site in fleet.sites
            for charges in site.charges.values()
            for charge in charges
        ],
        "nodes": [{"node": node.name, **node.model_dump(exclude={"name", "aliases", "gpus"})} for node in fleet.nodes],
        "node_gpus": [
            {
                "node": node.name,
                "site": node.site or fleet.sites[0].name,  # without a site of its own: the only one
                "gpus": gpus.count,
                **gpus.model_dump(include={"device_type", "valid_from", "valid_to"}),
            }
            for node in fleet.nodes
            for gpus in node.gpus
        ],
        "node_aliases": [{"alias": alias, "node": node.name} for node in fleet.nodes for alias in node.aliases],
        "devices": [device.model_dump() for device in fleet.devices],
        "device_types": [
            {"device_type": kind.name, **kind.model_dump(exclude={"name", "aliases"})} for kind in fleet.device_types
        ],
        "device_type_aliases": [
            {"alias": alias, "device_type": kind.name}
            for kind in fleet.device_types
            for alias in dict.fromkeys((kind.name, *kind.aliases))
        ],
        "model_aliases": [
            {"alias": alias, "model": model.name}
            for model in fleet.models
            for alias in dict.fromkeys((model.name, *model.aliases))
        ],
        "models": [
            {
                "model": model.name,
                **model.model_dump(exclude={"name", "aliases", "slo", "list_price", "contract_prices"}),
                **_slo(model),
                "list_price_source": model.list_price and model.list_price.source,
                "list_price_name": model.list_price and model.list_price.name,
            }
            for model in fleet.models
        ],
        "contract_prices": [
            {"model": model.name, **price.model_dump()} for model in fleet.models for price in model.contract_prices
        ],
        "engines": [
            {**engine.model_dump(exclude={"pods", "targets"}), "entry": entry, **_pattern("engine", engine.engine)}
            for entry, engine in enumerate(fleet.engines)
        ],
        "engine_pods": [
            {**engine.model_dump(exclude={"pods", "targets"}), "entry": entry, **_pattern("pod", pod)}
            for entry, engine in enumerate(fleet.engines)
            for pod in engine.pods
        ],
        "engine_targets": [
            {"target": target, "engine": engine.engine} for engine in fleet.engines for target in engine.targets
        ],
        "teams": [{"namespace": namespace, "team": team} for namespace, team in fleet.teams.items()],
        "assignments": [assignment.model_dump() for assignment in fleet.assignments],
        "energy_contracts": [
            {**contract.row(), "entry": entry} for entry, contract in enumerate(fleet.energy_contracts)
        ],
        "residual_mixes": [
            {"site": site.name, **mix.model_dump()} for site in fleet.sites for mix in site.residual_mixes
        ],
        "budgets": [budget.row() for budget in fleet.budgets],
        "currency_rates": list(fleet.reporting_currency.rows()) if fleet.reporting_currency else [],
        "commitments": [commitment.model_dump() for commitment in fleet.commitments],
        "commitment_offers": [offer.model_dump() for offer in fleet.commitment_offers],
        "spot_rates": [rate.model_dump() for rate in fleet.spot_rates],
        "cost_rates": [rate.row() for rate in fleet.cost_rates],
    }


def _slo(model: Model) -> dict[str, Any]:
    if model.slo is None:
        return {}
    return {
        "ttft_slo_seconds": model.slo.ttft_seconds,
        "tpot_slo_seconds": model.slo.tpot_seconds,
        "slo_attainment_ratio": model.slo.attainment_ratio,
    }


def _pattern(column: str, name: str) -> dict[str, Any]:
    return {column: name.removesuffix("*"), "is_prefix": name.endswith("*")}


def write_run_windows(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> tuple[int, str | None]:
    """Replace raw.run_windows by the fleet's inline windows, files and load tests; returns rows, and which rows of the
    files were refused. SourceError names a file that cannot be read; the table is then as it was."""
    rows = [{**window.model_dump(), "source": "fleet file"} for window in fleet.run_windows.inline]
    named = {window.window_id for window in fleet.run_windows.inline}
    rejected = []
    for file in fleet.run_windows.files:
        rejects = Rejects(file.limits.bad_rows_ratio)
        for path in paths_of(file.path):
            source = path.rpartition("/")[2]
            rows += [{**window.model_dump(), "source": source} for window in file.windows(path, named, rejects)]
        rejects.check(file.path)
        rejected += [str(rejects)] if rejects.rows else []
    rows += _load_tests(connection, fleet)
    repeated = [name for name, times in Counter(row["window_id"] for row in rows).items() if times > 1]
    if repeated:
        reason = f"{sorted(repeated)[0]!r} is there more than once, expected unique names"
        raise SourceError("run_windows", None, reason)
    with database.transaction(connection):
        _replace(connection, "raw.run_windows", columns_of("raw", "run_windows"), rows)
    return len(rows), "; ".join(rejected) or None


def _load_tests(connection: duckdb.DuckDBPyConnection, fleet: Fleet) -> list[dict[str, Any]]:
    """A window per phase of a landed load test: from its first request's start to its last one's end, with its tokens
    unless those of an answered request are unknown."""
    tests = {source.name: source for source in fleet.requests if isinstance(source, LoadTest)}
    names = {alias: model.name for model in fleet.models for alias in model.aliases}
    found = connection.execute(
        """
        select window_id, source, min(engine) as engine, min(model) as model, min(started_at) as start_at,
            max(coalesce(ended_at, started_at)) as end_at,
            case when bool_and(is_ok is false or output_tokens is not null)
                then sum(output_tokens) end as output_tokens,
            case when bool_and(is_ok is false or input_tokens + output_tokens is not null)
                then sum(input_tokens + output_tokens) end as total_tokens
        from raw.requests where window_id is not null and list_contains(?, source)
        group by window_id, source having end_at > start_at order by start_at, window_id
        """,
        [list(tests)],
    )
    columns = [column[0] for column in found.description]
    windows = [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
    return [
        {
            **window,
            "node": tests[window["source"]].node,
            "engine": _name_of_source(window["engine"]),
            "model": names.get(window["model"], _name_of_source(window["model"])),
        }
        for window in windows
    ]


def _name_of_source(name: str | None) -> str | None:
    """As the macro name_of_source() has it: names that begin with two underscores are the book's own."""
    return f'"{name}"' if name is not None and name.startswith("__") else name


def _replace(
    connection: duckdb.DuckDBPyConnection, table: str, columns: list[str], rows: Iterable[Mapping[str, Any]]
) -> None:
    connection.execute(f"delete from {table}").fetchall()
    _insert(connection, table, columns, rows)


def _insert(
    connection: duckdb.DuckDBPyConnection, table: str, columns: list[str], rows: Iterable[Mapping[str, Any]]
) -> None:
    values = [[row.get(column) for column in columns] for row in rows]
    if values:
        connection.executemany(f"insert into {table} values ({', '.join('?' for _ in columns)})", values)


def quoted(column: str) -> str:
    """A column's name as SQL."""
    escaped = column.replace('"', '""')
    return f'"{escaped}"'
