"""Upgrades of a warehouse that older code has booked: what to do with its marts before dbt runs.

A mart keeps the rows of dates that a run does not book. A new column is added, and is NULL in these rows; one with
another name is renamed and one that is gone is dropped (`former_columns.yml` of the project). A new mart, another type
or another method needs a run of all booked dates. A run of only some of them is refused, because it would publish
half-empty marts. Add here what a change of the dbt project requires of a warehouse. Keep out schemas `raw` and `fleet`
(`raw_tables`) and the project's definitions of its marts (`contracts`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import duckdb

from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import database, due_dates, sealed_dates, settings
from pipelines.warehouse.computed_tables import COMPUTED_MARTS
from pipelines.warehouse.contracts import Contracts, Mart

Columns = Sequence[tuple[str, str]]

# The dated marts that state which method made a row.
OF_A_METHOD = frozenset({"model_hourly", "model_daily", "fleet_daily"})
# Words of a column that are other words now; rows that nothing books again have them too.
FORMER_WORDS = {"basis": {"marginal": "variable"}}

logger = logging.getLogger(__name__)


class NeedsRebuild(Exception):
    """A run of these dates cannot bring the marts up to date; the message gives the reason and the command."""


@dataclass(frozen=True)
class Change:
    """How one mart changed. `why` is the reason to book all dates again; None where there is none."""

    mart: str
    why: str | None
    added: tuple[tuple[str, str], ...] = ()


def prepare(
    connection: duckdb.DuckDBPyConnection, fleet: Fleet, contracts: Contracts, start: date, end: date, *, is_whole: bool
) -> None:
    """Make the marts ready for dbt to book the dates [start, end). Raises NeedsRebuild if these dates are not enough.

    If they cover all booked dates that are open and all models run (`is_whole`), drop the changed marts, so that dbt
    creates them again, and mark the dates as due. Otherwise add the new columns. Rows of sealed dates are carried over.
    """
    _rename(connection, contracts)
    held = marts_of(connection)
    found = changes(connection, contracts, held)
    open_from = sealed_dates.open_from(connection)
    booked = [on for on in settings.booked_dates(connection) if on >= open_from]
    covers = all(start <= on < end for on in booked)
    if not covers:
        why = [change.why for change in found if change.why]
        refuse(fleet, [*other_methods(connection, contracts, start, end), *why], booked)
    is_recreated = covers and is_whole
    dropped = [
        change.mart
        for change in found
        if change.mart in held and (is_recreated or _keeps_no_row(contracts.marts[change.mart], change))
    ]
    leftover = sorted(held.keys() - contracts.marts.keys())
    with database.transaction(connection):
        if dropped and is_recreated:
            due_dates.mark_due(connection, start, end)
        carried = []
        if open_from > date.min:
            carried = [
                one.mart for one in found if one.mart in dropped and not _keeps_no_row(contracts.marts[one.mart], one)
            ]
            _carry_sealed(connection, contracts, found, carried)
            dropped = [mart for mart in dropped if mart not in carried]
        for mart in (*dropped, *leftover):
            connection.execute(f'drop table marts."{mart}"')
        for change in found:
            if change.mart not in (*dropped, *carried):
                for column, kind in change.added:
                    connection.execute(f'alter table marts."{change.mart}" add column "{column}" {kind}')
                    logger.info(
                        "marts.%s: new column %s, empty on dates that are not booked again", change.mart, column
                    )
        _describe(connection, contracts)
    for mart in leftover:
        logger.info("marts.%s: removed, nothing makes it any more", mart)


def _keeps_no_row(mart: Mart, change: Change) -> bool:
    """Whether no row of the older table can stay: every run makes it whole, or its rows had no billing month yet, by
    which a run replaces them."""
    return mart.replaces == "all" or (mart.replaces == "billing_months" and "billing_month" in dict(change.added))


def _carry_sealed(
    connection: duckdb.DuckDBPyConnection, contracts: Contracts, found: Sequence[Change], carried: Sequence[str]
) -> None:
    """Make the marts `carried` anew with the rows that no run of open dates makes, and note what is new since.

    Dates that another method booked count in their months as an opening balance does: nothing books them again.
    """
    open_from = sealed_dates.open_from(connection)
    held = marts_of(connection)
    for change in found:
        mart = contracts.marts[change.mart]
        if mart.replaces == "all":
            continue
        if change.mart not in held:
            sealed_dates.note_new(connection, change.mart, ())
            continue
        if change.added:
            sealed_dates.note_new(connection, change.mart, [column for column, _ in change.added])
        if change.mart in carried:
            _make_with_kept_rows(connection, change.mart, mart, open_from)
    for name in sorted(OF_A_METHOD & held.keys()):
        if {"is_opening_balance", "method_version"} <= {column for column, _ in held[name]}:
            connection.execute(
                f"update marts.{name} set is_opening_balance = true where date < ? and method_version <> ?",
                [open_from, contracts.method_version],
            ).fetchall()


def _make_with_kept_rows(connection: duckdb.DuckDBPyConnection, name: str, mart: Mart, open_from: date) -> None:
    """Replace a mart's table by one of today's columns that has its kept rows: a column that has another type is cast,
    one that is new is NULL."""
    known = {column for column, _ in marts_of(connection)[name]}
    listed = ", ".join(f'"{column}" {kind}' for column, kind in mart.columns)
    common = ", ".join(f'"{column}"' for column, _ in mart.columns if column in known)
    where = sealed_dates.kept_rows(mart, open_from)
    connection.execute(f'create or replace temp table rows_kept as select {common} from marts."{name}" where {where}')
    connection.execute(f'create or replace table marts."{name}" ({listed})')
    connection.execute(f'insert into marts."{name}" ({common}) select {common} from rows_kept').fetchall()
    connection.execute("drop table rows_kept")


def _rename(connection: duckdb.DuckDBPyConnection, contracts: Contracts) -> None:
    """Give columns the names that they have now, and drop those that are gone."""
    held = {mart: {name for name, _ in columns} for mart, columns in marts_of(connection).items()}
    for mart, contract in contracts.marts.items():
        for name, former in contract.formerly.items():
            if mart in held and former in held[mart] and name not in held[mart]:
                connection.execute(f'alter table marts."{mart}" rename column "{former}" to "{name}"')
                logger.info("marts.%s: column %s is now called %s", mart, former, name)
        for name in sorted(contract.gone & held.get(mart, set())):
            connection.execute(f'alter table marts."{mart}" drop column "{name}"')
            logger.info("marts.%s: column %s is gone (docs/versions.md)", mart, name)
        for column in FORMER_WORDS.keys() & held.get(mart, set()):
            for former, word in FORMER_WORDS[column].items():
                connection.execute(f'update marts."{mart}" set "{column}" = ? where "{column}" = ?', [word, former])


def _describe(connection: duckdb.DuckDBPyConnection, contracts: Contracts) -> None:
    """Write the comments of existing marts that differ; dbt comments a table only when it creates it."""
    held = connection.execute(
        "select table_name, '', comment from duckdb_tables() where schema_name = 'marts'"
        " and database_name = current_database() union all"
        " select table_name, column_name, comment from duckdb_columns() where schema_name = 'marts'"
        " and database_name = current_database()"
    )
    for mart, column, comment in held.fetchall():
        wanted = contracts.marts[mart].descriptions.get(column) if mart in contracts.marts else None
        if wanted and wanted != comment:
            what = f'column marts."{mart}"."{column}"' if column else f'table marts."{mart}"'
            connection.execute(f"comment on {what} is {database.literal(wanted)}")


def other_methods(connection: duckdb.DuckDBPyConnection, contracts: Contracts, start: date, end: date) -> Iterator[str]:
    """The reason to refuse, where dates outside [start, end) were booked by another method."""
    stated = settings.methods(connection)
    others = sorted({method for on, method in stated.items() if not start <= on < end} - {contracts.method_version})
    if others:
        yield f"method_version was {', '.join(others)} and is {contracts.method_version}"


def refuse(fleet: Fleet, why: Sequence[str], booked: Sequence[date]) -> None:
    """NeedsRebuild for these reasons, if there is one."""
    if why:
        more = f" and {len(why) - 5} more changes" if len(why) > 5 else ""
        raise NeedsRebuild(
            f"the dates {booked[0]} to {booked[-1]} were booked by another version: {'; '.join(why[:5])}{more}."
            " What this run landed is kept; nothing was booked or published. Re-book all dates from raw with:"
            f" {command(fleet)}"
        )


def command(fleet: Fleet, start: date | None = None, last: date | None = None) -> str:
    """What a user types to re-book the dates from `start` to `last`; without them, all that is booked."""
    here = Path.cwd()
    path = fleet.path.relative_to(here) if fleet.path.is_relative_to(here) else fleet.path
    dates = f" --start {start} --end {last + timedelta(days=1)}" if start and last else ""
    return f"wattledger run --fleet {os.fspath(path)} --rebuild{dates}"


def marts_of(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Table of schema marts -> its columns (name, type), in order; without those that Python computes."""
    return {
        name: [(column["name"], column["type"]) for column in columns]
        for name, columns in connection.execute(
            """
            select table_name, list({name: column_name, type: data_type} order by column_index)
            from duckdb_columns() join duckdb_tables() using (database_name, schema_name, table_name)
            where database_name = current_database() and schema_name = 'marts' group by table_name order by table_name
            """
        ).fetchall()
        if name not in COMPUTED_MARTS
    }


def changes(connection: duckdb.DuckDBPyConnection, contracts: Contracts, held: Mapping[str, Columns]) -> list[Change]:
    """The marts whose tables differ from their contracts; none where the warehouse has no marts."""
    if not held:
        return []
    kinds = sorted({kind for mart in contracts.marts.values() for _, kind in mart.columns})
    # A contract's type -> DuckDB's name for it.
    called = dict(zip(kinds, connection.execute(
        f"select {', '.join(f'typeof(cast(null as {kind}))' for kind in kinds)}"
    ).fetchall()[0], strict=True))  # fmt: skip
    return list(differing(contracts, held, called))


def differing(contracts: Contracts, held: Mapping[str, Columns], called: Mapping[str, str]) -> Iterator[Change]:
    """The marts whose columns in `held` differ from their contracts. `called`: a contract's type -> its name there."""
    for name, mart in sorted(contracts.marts.items()):
        wanted = [(column, called.get(kind, kind)) for column, kind in mart.columns]
        if name not in held:
            if mart.replaces != "all":
                yield Change(name, f"mart {name} is new")
        elif list(held[name]) != wanted:
            known = dict(held[name])
            added = tuple((column, kind) for column, kind in mart.columns if column not in known)
            yield Change(name, _why(name, mart, known, dict(wanted)), added)


def _why(name: str, mart: Mart, held: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """Why rows of other dates cannot be kept; None where only columns were added or their order changed."""
    if mart.replaces == "all":
        return None  # every run computes it whole
    lost = sorted(held.keys() - wanted.keys())
    if lost:
        return f"mart {name} has no column {', '.join(lost)} any more"
    other = [column for column, kind in held.items() if kind != wanted[column]]
    if other:
        return f"column {other[0]} of mart {name} was {held[other[0]].lower()} and is {wanted[other[0]].lower()}"
    return None
