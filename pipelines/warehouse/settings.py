"""What each date was booked with: method, formulas, seeds, and the fleet file's and grid's values for that date.

A mart keeps its rows until its dates are booked again, so after a change of a tariff the ledger has dates of both.
raw.booked_with records which: one row per booked date and setting, written in the transaction that ends the booking.
A date's value contains only what affects the date: a tariff that begins in December, or a node that is not in the
date's book, does not change it. Two effects are left out, because no figure of consumption depends on them: a site or
model that is not in a date's book gets no rows of its own in site_carbon_hourly and model_list_prices.

Add here how settings are recorded and compared. Keep out which rows count on a date (`setting_queries`), and what to do
about a date that uses old ones (`pipelines.booking.stale_settings`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

import duckdb

import pipelines
from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import database, setting_queries
from pipelines.warehouse.contracts import Contracts

# Recorded for a date and never compared: newer code alone does not make a date's book old.
UNCOMPARED = frozenset({"code_version"})
# The marts that list the booked dates, in every version so far.
_DATED_MARTS = ("fleet_daily", "model_daily", "reconciliation_daily")


@dataclass(frozen=True)
class Constants:
    """Settings that are equal for all dates of a run: their values, the names of the seeds that count, and the older
    digests of formulas that make the same rows as today's."""

    values: Mapping[str, str]
    seeds: frozenset[str]
    same_formulas: frozenset[str] = frozenset()


def constants(fleet: Fleet, contracts: Contracts) -> Constants:
    """The constants of a run of this fleet by this code."""
    return Constants(
        {
            "code_version": code_version(),
            "columns": contracts.columns,
            "formulas": contracts.formulas,
            "grid_seconds": str(fleet.grid_seconds),
            "max_spread_days": f"{fleet.max_spread_days:g}",
            "limits.tokens_per_second": str(fleet.limits.tokens_per_second),
            "method_version": contracts.method_version,
        },
        contracts.seeds,
        contracts.same_formulas,
    )


def code_version() -> str:
    """The version of the code that books."""
    return pipelines.__version__


def booked_dates(connection: duckdb.DuckDBPyConnection) -> list[date]:
    """The dates that the warehouse has booked, in order; also those from before bookings were recorded."""
    marts = [f"marts.{mart}" for mart in _DATED_MARTS if mart in database.tables(connection, "marts")]
    queries = [f"select date from {table}" for table in ("raw.booked_with", *marts)]
    return [row[0] for row in connection.execute(f"{' union '.join(queries)} order by date").fetchall()]


def methods(connection: duckdb.DuckDBPyConnection) -> dict[date, str]:
    """Booked date -> the method_version of its rows; dates with an unknown version are left out."""
    found = connection.execute(
        "select count(*) from duckdb_columns() where database_name = current_database() and schema_name = 'marts'"
        " and table_name = 'fleet_daily' and column_name = 'method_version'"
    ).fetchall()
    stated = "select date, max(method_version) from marts.fleet_daily group by date" if found == [(1,)] else None
    recorded = "select date, value from raw.booked_with where setting = 'method_version'"
    return dict(row for query in (stated, recorded) if query for row in connection.execute(query).fetchall())


def record(
    connection: duckdb.DuckDBPyConnection,
    start: date,
    end: date,
    constants: Constants,
    *,
    without: Collection[date] = (),
) -> None:
    """Record that the dates [start, end), `without` these, were booked with the warehouse's present settings and these
    constants.

    Runs inside the caller's transaction.
    """
    for table in ("booked_names", "booked_with"):
        connection.execute(f"delete from raw.{table} where date >= ? and date < ?", [start, end]).fetchall()
    days = (start + timedelta(days=n) for n in range((end - start).days))
    _measured_dates(connection, [on for on in days if on not in without])
    names = " union ".join(_names(connection))
    connection.execute(
        f"insert into raw.booked_names select * from ({names}) where name is not null", [start, end]
    ).fetchall()
    _measure(connection, constants)
    connection.execute("insert into raw.booked_with select * from settings_today").fetchall()
    connection.execute(
        "update raw.warehouse_version set method_version = ?, code_version = ?",
        [constants.values["method_version"], constants.values["code_version"]],
    )


def published(connection: duckdb.DuckDBPyConnection, held_back: Collection[date]) -> None:
    """Record that the publication has every booked date with its settings, but those that are held back."""
    kept = [sorted(held_back)]
    connection.execute("delete from raw.published_with where not list_contains(?, date)", kept).fetchall()
    connection.execute(
        "insert into raw.published_with select * from raw.booked_with where not list_contains(?, date)", kept
    ).fetchall()


def stale(connection: duckdb.DuckDBPyConnection, constants: Constants) -> tuple[dict[str, list[date]], list[date]]:
    """Setting -> the dates that were booked with another value than today's; and the dates that were booked before
    settings were recorded."""
    recorded = [row[0] for row in connection.execute("select distinct date from raw.booked_with").fetchall()]
    _measured_dates(connection, recorded)
    _measure(connection, constants)
    found: dict[str, list[date]] = {}
    for setting, on in connection.execute(
        """
        select booked.setting, booked.date
        from raw.booked_with as booked join settings_today as today using (date, setting)
        where booked.value <> today.value and not list_contains(?, booked.setting)
            and not (booked.setting = 'formulas' and list_contains(?, booked.value))
        order by all
        """,
        [sorted(UNCOMPARED), sorted(constants.same_formulas)],
    ).fetchall():
        found.setdefault(setting, []).append(on)
    return found, [on for on in booked_dates(connection) if on not in recorded]


def _measured_dates(connection: duckdb.DuckDBPyConnection, dates: list[date]) -> None:
    """Create setting_dates: dates with their first and last microsecond, as integers compare faster than instants."""
    connection.execute(
        "create or replace temp table setting_dates as select date, epoch_us(cast(date as timestamp)) as start_us,"
        " start_us + 86400000000 as end_us from (select unnest(cast(? as date[])) as date)",
        [dates],
    ).fetchall()


def _measure(connection: duckdb.DuckDBPyConnection, constants: Constants) -> None:
    """settings_today (date, setting, value): what each of setting_dates would be booked with now."""
    held = database.tables(connection, "reference")
    queries = {
        **setting_queries.OF_FLEET,
        **{seed: query for seed, query in setting_queries.WITH_SEED.items() if seed in held},
    }
    rows = " union all ".join(f"({query})" for query in queries.values())
    connection.execute(
        f"""
        create or replace temp table settings_today as
        with rows_of_dates (date, setting, row_text) as ({rows}),
        dated as (
            select date, setting, string_agg(row_text, '; ' order by row_text) as value
            from rows_of_dates group by date, setting
        ),
        settings as (
            select unnest(?) as setting
        )
        select dates.date, settings.setting,
            case when length(dated.value) > 64 then md5(dated.value) else coalesce(dated.value, '') end as value
        from setting_dates as dates cross join settings
        left join dated on dated.date = dates.date and dated.setting = settings.setting
        """,
        [list(queries)],
    ).fetchall()
    seeds = sorted((held & constants.seeds) - setting_queries.DATED_SEEDS - setting_queries.UNDATED_SEEDS)
    whole = [*constants.values.items(), *((f"seed {seed}", _digest(connection, seed)) for seed in seeds)]
    for setting, value in whole:
        connection.execute(
            "insert into settings_today select date, ?, ? from setting_dates", [setting, value]
        ).fetchall()


def _digest(connection: duckdb.DuckDBPyConnection, seed: str) -> str:
    rows = f"select cast(stated as varchar) as row_text from reference.{seed} as stated"
    query = f"select md5(string_agg(row_text, chr(10) order by row_text)) from ({rows})"
    return connection.execute(query).fetchall()[0][0] or ""


def _names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Queries of (date, kind, name): the names in the book of each date in [$1, $2)."""
    marts = database.tables(connection, "marts")
    kinds = {
        "energy_ledger": ("site", "node", "meter", "device_uuid", "device_type", "engine", "namespace", "model"),
        "token_ledger": ("site", "node", "engine", "namespace", "model"),
        "goodput_hourly": ("model",),
    }
    queries = [
        f"select date, '{'device' if kind in ('meter', 'device_uuid') else kind}' as kind, {kind} as name"
        f" from marts.{mart} where date >= $1 and date < $2"
        for mart, named in kinds.items()
        if mart in marts
        for kind in named
    ]
    chunks = "raw.series_chunks where samples > 0 and chunk_start_at >= $1::date and chunk_start_at < $2::date"
    return [*queries, f"select cast(chunk_start_at as date) as date, 'source' as kind, source as name from {chunks}"]


def ranges(dates: list[date]) -> list[tuple[date, date]]:
    """Dates as stretches [first, last] without a hole, in order."""
    found: list[tuple[date, date]] = []
    for on in sorted(set(dates)):
        if found and on == found[-1][1] + timedelta(days=1):
            found[-1] = (found[-1][0], on)
        else:
            found.append((on, on))
    return found
