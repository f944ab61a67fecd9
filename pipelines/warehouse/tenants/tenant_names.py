"""Whose the keys of tenants are: raw.tenant_names, the one table of the warehouse that has their names.

A tenant's key is random and drawn when its name lands first. Requests, marts, closings and receipts hold the key; the
name is joined where people read. Add here what draws and finds keys. Keep out what a name may be
(`collectors.records.askers`) and how a name is erased (`pipelines.publishing.tenant_erasure`).
"""

from __future__ import annotations

import json
import re
import secrets
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa

from collectors.personal_labels import NO_NAME
from pipelines.warehouse import database

KEY = "tenant-"
_MODEL = "string_split(marts_key, ' | ')[-1]"
_KEY_BYTES = 8
# Names that older versions wrote into the book: they stay the keys of these tenants until one is erased.
_OLDER_NAMES = (
    ("raw", "requests"),
    ("marts", "tenant_usage_daily"),
    ("published", "closed_chargebacks"),
    ("published", "chargeback_adjustments"),
)
_PLAIN_WORDS = ("Free accelerators", "Unused commitment", "Unmetered accelerators", "No request log",
    "Not in the request log", "Unknown tenant")  # fmt: skip


class TenantKeys:
    """The keys of the warehouse's tenants; a name that has none gets one."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._keys: dict[str, str] = dict(
            connection.execute("select tenant, tenant_key from raw.tenant_names where tenant is not null").fetchall()
        )

    def key(self, name: str | None) -> str | None:
        """The key of a tenant; None of none."""
        if name is None:
            return None
        if name not in self._keys:
            self._keys[name] = new_key()
            self._connection.execute(
                "insert into raw.tenant_names (tenant_key, tenant, named_at) values (?, ?, now())",
                [self._keys[name], name],
            ).fetchall()
        return self._keys[name]

    def keyed(self, requests: pa.RecordBatch) -> pa.RecordBatch:
        """The requests with keys for their tenants' names."""
        names = requests.column("tenant").dictionary_encode()
        keys = pa.array([self.key(name) for name in names.dictionary.to_pylist()], pa.string())
        column = pa.DictionaryArray.from_arrays(names.indices, keys).cast(pa.string())
        return requests.set_column(requests.schema.get_field_index("tenant"), "tenant", column)


def new_key() -> str:
    """A key that nothing is known from."""
    return KEY + secrets.token_hex(_KEY_BYTES)


def keep_older_names(connection: duckdb.DuckDBPyConnection) -> None:
    """Let the names that an older version wrote into the book be the keys of their tenants: no figure moves, and no
    closed month is written anew."""
    there = set(
        connection.execute(
            "select schema_name, table_name from duckdb_columns()"
            " where database_name = current_database() and column_name = 'tenant'"
        ).fetchall()
    )
    tables = [f"select tenant from {schema}.{table}" for schema, table in _OLDER_NAMES if (schema, table) in there]
    if tables:
        connection.execute(
            "insert into raw.tenant_names (tenant_key, tenant, named_at) select tenant, tenant, now() from"
            f" ({' union '.join(tables)}) where tenant is not null and not starts_with(tenant, '__')"
            f" and tenant not in ({_listed(_PLAIN_WORDS)})",
            list(_PLAIN_WORDS),
        ).fetchall()


def key_labels(connection: duckdb.DuckDBPyConnection) -> None:
    """Put keys in the place of the tenants' names in the labels of gateways' counters (fleet.tenant_labels). The
    identity of a series stays: it is a number of the labels as they came."""
    stated: dict[str, list[str]] = {}
    for source, label in connection.execute(
        "select source, label from fleet.tenant_labels where names = 'tenant' order by entry"
    ).fetchall():
        stated.setdefault(source, []).append(label)
    keys = TenantKeys(connection)
    changed = []
    for source, labels in stated.items():
        for number, kind, text in connection.execute(
            "select series_id, source_kind, labels from raw.series where source = ?", [source]
        ).fetchall():
            held = json.loads(text)
            named = {
                label: held[label]
                for label in labels
                if held.get(label) and not _is_keyed(held[label]) and held[label] != NO_NAME.get(kind)
            }
            if named:
                held |= {label: keys.key(name) for label, name in named.items()}
                changed.append((json.dumps(held, ensure_ascii=False, separators=(",", ":")), number))
    if changed:
        connection.executemany("update raw.series set labels = ? where series_id = ?", changed)


def _is_keyed(name: str) -> bool:
    return re.fullmatch(rf"{KEY}[0-9a-f]{{{2 * _KEY_BYTES}}}", name) is not None


def take_back(connection: duckdb.DuckDBPyConnection, publication: Path) -> None:
    """Take the names of tenants from the current publication where the warehouse has none, because it was lost: its
    closings come from there, too, and have these keys."""
    if not publication.exists() or connection.execute("select count(*) from raw.tenant_names").fetchall() != [(0,)]:
        return
    connection.execute(f"attach {database.literal(publication)} as publication (read_only)")
    try:
        if connection.execute(
            "select count(*) from duckdb_columns() where database_name = 'publication' and schema_name = 'finance'"
            " and table_name = 'chargeback' and column_name = 'tenant_key'"
        ).fetchall() == [(1,)]:
            connection.execute(
                "insert into raw.tenant_names (tenant_key, tenant, named_at) select distinct tenant_key,"
                " if(tenant = tenant_key and starts_with(tenant, ?), null, tenant), now()"
                f" from publication.finance.chargeback where tenant_key not in ({_listed(_PLAIN_WORDS)})",
                [KEY, *_PLAIN_WORDS],
            ).fetchall()
    finally:
        connection.execute("detach publication")


def rekey(connection: duckdb.DuckDBPyConnection, of: str, former: str, key: str) -> None:
    """Put another key in the place of a tenant's former one, in every table of an attached database (by default the
    connection's own): in the column `tenant`, and before the model at the end of `marts_key`; a team or site may have
    the same name."""
    tables = connection.execute(
        "select schema_name, table_name, bool_or(column_name = 'marts_key') from duckdb_columns()"
        " semi join duckdb_tables() using (database_name, schema_name, table_name)"
        " where database_name = coalesce(nullif($1, ''), current_database())"
        " and column_name in ('tenant', 'marts_key') and table_name <> 'tenant_names' and schema_name <> 'finance'"
        " group by all having bool_or(column_name = 'tenant') order by all",
        [of],
    ).fetchall()
    for schema, table, has_marts_key in tables:
        place = f'{of + "." if of else ""}{schema}."{table}"'
        if has_marts_key:
            connection.execute(
                f"update {place} set marts_key = left(marts_key, length(marts_key) - length(format('{{}} | {{}}', $1,"
                f" {_MODEL}))) || format('{{}} | {{}}', $2, {_MODEL})"
                f" where tenant = $1 and ends_with(marts_key, format(' | {{}} | {{}}', $1, {_MODEL}))",
                [former, key],
            ).fetchall()
        connection.execute(f"update {place} set tenant = $2 where tenant = $1", [former, key]).fetchall()


def rekey_copy(connection: duckdb.DuckDBPyConnection, of: str) -> None:
    """Put the keys of erasures that are not over into an attached copy of what the attached `warehouse` booked."""
    if not _has_names(connection):
        return
    for former, key in connection.execute(
        "select former_key, tenant_key from warehouse.raw.tenant_names where former_key is not null"
    ).fetchall():
        rekey(connection, of, former, key)


def is_erasing(connection: duckdb.DuckDBPyConnection) -> str | None:
    """The key of a tenant whose erasure is not over."""
    rows = connection.execute("select tenant_key from raw.tenant_names where former_key is not null").fetchall()
    return rows[0][0] if rows else None


def _has_names(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the attached `warehouse` has landed anything; one of marts alone has no names to keep."""
    return connection.execute(
        "select 1 from duckdb_tables() where database_name = 'warehouse' and schema_name = 'raw'"
        " and table_name = 'tenant_names'"
    ).fetchall() == [(1,)]


def erased_at(connection: duckdb.DuckDBPyConnection) -> datetime | None:
    """When a name of the attached `warehouse` was erased last."""
    if not _has_names(connection):
        return None
    at: datetime | None = connection.execute("select max(erased_at) from warehouse.raw.tenant_names").fetchall()[0][0]
    return at


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join("?" for _ in words)
