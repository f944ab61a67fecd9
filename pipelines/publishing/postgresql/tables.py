"""The tables of a publication as PostgreSQL has them: types, keys, comments, columns that came or went.

Add here what a table looks like on the server, and how an older one becomes today's. Keep out rows and transactions:
these are in `postgresql`.

Readers are never blocked for long, so the only statements here that lock out a reader are those of `missing_columns`,
`unkey`, `retype` and `drop_deprecated`: each changes no row, and where it waits it waits for a second at a time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import duckdb

from pipelines.publishing import published_tables
from pipelines.publishing.postgresql.server import NULLS_NOT_DISTINCT_VERSION, PostgresqlError, Server, quoted
from pipelines.publishing.published_tables import Table
from pipelines.warehouse.contracts import Mart
from pipelines.warehouse.database import literal

# PostgreSQL's text cannot hold a NUL character; readers see this sign for it.
NUL_SIGN = "␀"
NAME_BYTES = 63
# An entry of an index may have 2,704 bytes; of these our key's text may take so many.
KEY_BYTES = 2000
# Sorts and compares as the snapshot does, whatever the server's locale is now or after an upgrade.
TEXT = 'text collate "C"'
_TYPES = {
    "BIGINT": "bigint",
    "BLOB": "bytea",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "DOUBLE": "double precision",
    "FLOAT": "real",
    "INTEGER": "integer",
    "JSON": "json",
    "SMALLINT": "smallint",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "VARCHAR": TEXT,
}
# Tables of intervals have no key: of a big fleet it would take longer to load than their rows
# (docs/postgresql.md). That no row is there twice is an invariant of the ledger.
INTERVAL = "interval_start_at"
# Tables that a publication makes, and those that Python computes; the marts have their grain in the project.
_OWN_GRAINS = {
    ("finance", "advice_score"): ("recommendation_id", "change_id"),
    ("finance", "bridge"): ("month", "site", "model", "part"),
    ("finance", "budgets"): ("month", "budget"),
    ("finance", "carbon"): ("month", "team", "marts_key"),
    ("finance", "chargeback"): ("month", "marts_key"),
    ("finance", "commitments"): ("month", "site", "device_type"),
    ("finance", "cost"): ("month", "marts_key", "part"),
    ("finance", "focus_corrections"): (
        "x_PublicationId",
        "month",
        "BillingAccountId",
        "x_Team",
        "x_Deployment",
        "x_Model",
        "x_Part",
    ),
    ("finance", "invoices"): ("month", "site", "kind"),
    ("finance", "ledger_cost"): ("run_id",),
    ("finance", "months"): ("month", "site"),
    ("finance", "restatements"): ("publication_id", "date", "site", "model", "figure", "part"),
    ("finance", "savings"): ("recommendation_id",),
    ("finance", "unit_cost"): ("month", "marts_key", "token_kind"),
    ("marts", "budget_monthly"): ("billing_month", "budget"),
    ("marts", "cost_forecast"): ("billing_month", "scope", "scope_name", "basis"),
    ("marts", "efficiency_fit"): ("site", "deployment", "model", "device_type", "meter_scope", "role"),
    ("published", "advice_given"): ("recommendation_id", "given_at"),
    ("published", "adjustments"): ("publication_id", "month", "booked_month", "marts_key", "part"),
    ("published", "chargeback_adjustments"): ("publication_id", "month", "booked_month", "marts_key"),
    ("published", "closed_chargebacks"): ("event", "marts_key"),
    ("published", "closed_costs"): ("event", "marts_key", "part"),
    ("published", "closed_focus"): ("event", "line_number"),
    ("published", "closed_months"): ("event", "site"),
    ("published", "closings"): ("event",),
    ("published", "consolidation"): ("recommendation_id",),
    ("published", "measured_changes"): ("change_id", "measured_at"),
    ("published", "publication"): ("publication_id",),
    ("published", "restated_figures"): ("publication_id", "date", "site", "model", "figure", "part"),
    ("published", "right_sizing"): ("recommendation_id",),
    ("published", "sleep_after"): (
        "site",
        "deployment",
        "model",
        "device_type",
        "meter_scope",
        "role",
        "sleep_after_seconds",
    ),
}


@dataclass(frozen=True)
class Key:
    """The columns that identify a row; `is_primary` where none of them is ever NULL."""

    columns: tuple[str, ...] = ()
    is_primary: bool = False

    def __str__(self) -> str:
        return json.dumps([self.is_primary, *self.columns])


@dataclass(frozen=True)
class Wanted:
    """A table of the snapshot, and what PostgreSQL should have of it, in `schema`."""

    table: Table
    schema: str
    key: Key
    comments: Mapping[str, str] = field(hash=False)

    @property
    def name(self) -> str:
        """The table's name on the server, quoted."""
        return quoted(self.schema, self.table.name)

    @property
    def types(self) -> dict[str, str]:
        """Each column's type on the server."""
        return {name: postgresql_type(kind) for name, kind in self.table.columns}

    @property
    def date_column(self) -> bool:
        """Whether its rows are replaced date by date."""
        return ("date", "DATE") in self.table.columns

    def selected(self) -> str:
        """The columns as a query of the snapshot gives them to a COPY."""
        return ", ".join(_selected(name, kind) for name, kind in self.table.columns)

    def chosen(self, dates: Collection[date | None]) -> str:
        """The rows of these dates, in SQL of both sides; all rows of a table without dates."""
        if not self.date_column:
            return "true"
        listed = ", ".join(f"date '{on.isoformat()}'" for on in dates if on is not None)
        parts = [f"date in ({listed})"] if listed else []
        return " or ".join([*parts, *(["date is null"] if None in dates else [])]) or "false"


def postgresql_type(kind: str) -> str:
    """PostgreSQL's type for one of DuckDB's."""
    if kind.startswith("DECIMAL("):
        return kind.replace("DECIMAL", "numeric")
    if kind.endswith("]") or kind.startswith(("STRUCT", "MAP")):
        return "json"
    if kind in ("TINYINT", "UTINYINT"):
        return "smallint"
    if kind in ("USMALLINT", "UINTEGER"):
        return "bigint"
    return "numeric(38,0)" if kind in ("HUGEINT", "UBIGINT") else _TYPES.get(kind, TEXT)


def _selected(name: str, kind: str) -> str:
    column, type_ = quoted(name), postgresql_type(kind)
    if type_ in (TEXT, "json"):
        text = f"to_json({column})" if type_ == "json" and kind != "JSON" else column
        # In JSON a NUL is written as \u0000, which the type json keeps.
        text = f"cast({text} as varchar)"
        return f"{text} as {column}" if type_ == "json" else f"replace({text}, chr(0), '{NUL_SIGN}') as {column}"
    if kind == "BLOB" or kind.startswith("DECIMAL(") or kind in _TYPES:
        return column
    return f"cast({column} as {'decimal(38,0)' if type_.startswith('numeric') else type_}) as {column}"


def wanted_tables(
    snapshot: duckdb.DuckDBPyConnection, tables: Collection[Table], prefix: str, marts: Mapping[str, Mart]
) -> list[Wanted]:
    """What PostgreSQL should have of each table; PostgresqlError for a name that it would cut."""
    ((own,),) = snapshot.execute("select current_database()").fetchall()
    comments = published_tables.comments(snapshot, own)
    found = []
    for table in tables:
        for name in (f"{prefix}{table.schema}", table.name, *(name for name, _ in table.columns)):
            if len(name.encode()) > NAME_BYTES or "\0" in name:
                raise PostgresqlError(
                    f"{table.schema}.{table.name}: the name {name!r} cannot be one of PostgreSQL, expected at most"
                    f" {NAME_BYTES} bytes without NUL. Rename it in the project, or shorten schema_prefix"
                )
        described = {
            column: comment.replace("\0", NUL_SIGN)
            for column, comment in comments.get((table.schema, table.name), {}).items()
        }
        found.append(Wanted(table, f"{prefix}{table.schema}", _key(table, marts), described))
    return found


def _key(table: Table, marts: Mapping[str, Mart]) -> Key:
    names = {name for name, _ in table.columns}
    if INTERVAL in names:
        return Key()
    mart = marts.get(table.name) if table.schema == "marts" else None
    if mart is not None and mart.grain:
        # A table by date has its rows of each date apart, whatever its grain is.
        grain = mart.grain if mart.replaces != "dates" or "date" in mart.grain else ("date", *mart.grain)
        return Key(grain, {"date", *mart.never_null} >= set(grain)) if names >= set(grain) else Key()
    grain = _OWN_GRAINS.get((table.schema, table.name), ())
    return Key(grain, bool(grain)) if names >= set(grain) else Key()


def keeps_its_key(snapshot: duckdb.DuckDBPyConnection, wanted: Wanted, chosen: str) -> bool:
    """Whether the chosen rows can have the key: each has its own, none is NULL where it is primary, and their names fit
    into an entry of an index. A row that breaks its key should be in the table, as it is in the snapshot."""
    types, columns = wanted.types, wanted.key.columns
    texts = [f"coalesce(strlen({quoted(name)}), 0)" for name in columns if types[name] == TEXT]
    missing = [f"{quoted(name)} is null" for name in columns] if wanted.key.is_primary else []
    row = f"row({', '.join(map(quoted, columns))})"
    ((longest, unknown, double),) = snapshot.execute(
        f"select max({' + '.join(texts) or '0'}), count(*) filter ({' or '.join(missing) or 'false'}),"
        f" count(*) - count(distinct {row}) from {wanted.table} where {chosen}"
    ).fetchall()
    return (longest or 0) <= KEY_BYTES and unknown == 0 and double == 0


def create(server: Server, wanted: Wanted) -> None:
    """Create the table without rows, key or index: these come after its rows."""
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in wanted.types.items())
    server.execute(f"create table {wanted.name} ({columns})")


def finish(server: Server, wanted: Wanted, *, is_new: bool, has_key: bool) -> None:
    """Add the index on date and the key to a table with rows.

    An older table whose key changed gets a unique index instead of a primary key: that keeps no reader out.
    """
    if is_new and wanted.date_column:
        server.execute(f"create index on {wanted.name} (date)")
    if not has_key or not wanted.key.columns:
        return
    columns = ", ".join(map(quoted, wanted.key.columns))
    name = quoted(key_name(wanted.table.name))
    if is_new and wanted.key.is_primary:
        server.execute(f"alter table {wanted.name} add constraint {name} primary key ({columns})")
    elif wanted.key.is_primary:
        server.execute(f"create unique index {name} on {wanted.name} ({columns})")
    elif server.version >= NULLS_NOT_DISTINCT_VERSION:
        server.execute(f"create unique index {name} on {wanted.name} ({columns}) nulls not distinct")
    else:
        server.execute(f"create index {name} on {wanted.name} ({columns})")


def key_name(table: str) -> str:
    """The name of a table's key on the server."""
    name = f"{table}_wattledger_key"
    if len(name.encode()) <= NAME_BYTES:
        return name
    return f"key_{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"


def unkey(server: Server, schema: str, table: str) -> None:
    """Drop a table's key, in a short transaction: its columns changed, or a name is too long for it."""
    name = key_name(table)
    ((constraints,),) = server.rows(
        "select count(*) from pg_constraint where conrelid ="
        f" {literal(quoted(schema, table))}::regclass and conname = {literal(name)}"
    )
    relation = quoted(schema, table)
    if not constraints:
        server.briefly(relation, f"drop index if exists {quoted(schema, name)}")
        return
    held = server.rows(
        "select attname from pg_attribute join pg_constraint on attrelid = conrelid and attnum = any (conkey)"
        f" where conrelid = {literal(relation)}::regclass and conname = {literal(name)}"
    )
    free = ", ".join(f"alter column {quoted(column)} drop not null" for (column,) in held)
    server.briefly(relation, f"alter table {relation} drop constraint {quoted(name)}", f"alter table {relation} {free}")


def columns_of(server: Server, schema: str, table: str) -> dict[str, str]:
    """The columns that a table has on the server, with their types."""
    rows = server.rows(
        "select attname, format_type(atttypid, atttypmod) from pg_attribute"
        f" where attrelid = {literal(quoted(schema, table))}::regclass and attnum > 0 and not attisdropped"
    )
    return dict(rows)


def as_formatted(kind: str) -> str:
    """A type of ours as the server writes it."""
    plain = kind.replace(f"{TEXT}", "text")
    return {"timestamptz": "timestamp with time zone", "timestamp": "timestamp without time zone"}.get(plain, plain)


def missing_columns(server: Server, wanted: Wanted, held: Collection[str]) -> None:
    """Add the columns that the table lacks, in a short transaction: they are NULL until the publication is loaded."""
    added = [f"add column {quoted(name)} {kind}" for name, kind in wanted.types.items() if name not in held]
    if added:
        server.briefly(wanted.name, f"alter table {wanted.name} {', '.join(added)}")


def retyped_columns(wanted: Wanted, held: Mapping[str, str]) -> list[str]:
    """The columns that have another type by now."""
    return [name for name, kind in wanted.types.items() if name in held and held[name] != as_formatted(kind)]


def retype(server: Server, wanted: Wanted, columns: Collection[str]) -> None:
    """Make columns anew with today's types, empty: all rows of the table follow in the same transaction.

    Readers of this table wait until it ends. A session that began to read before sees NULL in these columns.
    """
    changes = ", ".join(
        change
        for name in columns
        for change in (f"drop column {quoted(name)}", f"add column {quoted(name)} {wanted.types[name]}")
    )
    server.execute(f"alter table {wanted.name} {changes}")


def comment_statements(server: Server, wanted: Wanted) -> list[str]:
    """The comments of a table and its columns that are not on the server yet."""
    relation = f"{literal(wanted.name)}::regclass"
    held: dict[str, Any] = dict(
        server.rows(
            f"select '', obj_description({relation}, 'pg_class') union all select attname, col_description(attrelid,"
            f" attnum) from pg_attribute where attrelid = {relation} and attnum > 0 and not attisdropped"
        )
    )
    statements = []
    for column in ("", *wanted.types):
        comment = wanted.comments.get(column)
        if held.get(column) != comment:
            of = f"column {wanted.name}.{quoted(column)}" if column else f"table {wanted.name}"
            statements.append(f"comment on {of} is {'null' if comment is None else literal(comment)}")
    return statements


def deprecated_comment(table: str, version: str) -> str:
    """What readers find at a column that the publication has no more."""
    return (
        f"Deprecated: {table} has no such column since version {version}. NULL in rows that were published since;"
        " the first minor version after that drops it (docs/versions.md)."
    )
