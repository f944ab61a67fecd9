"""The connection to a PostgreSQL server that a publication goes to: one publisher at a time, every failure in one line.

Add here what holds for any statement: settings, locks, words for refusals. Keep out which tables there are
(`tables`) and what is loaded when (`loading`).
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from collectors.protocols import postgresql_driver, postgresql_uris
from collectors.samples import printable
from pipelines.fleet.targets.publication_targets import PostgresqlTarget
from pipelines.warehouse import database
from pipelines.warehouse.database import literal

# A statement that needs a table for itself waits this long at a time: readers that come meanwhile queue behind it.
SHORT_LOCK_SECONDS = 1
SHORT_LOCK_PATIENCE_SECONDS = 60.0
# Any other lock: a person's `create index` or `vacuum full` on one of the tables.
LOCK_SECONDS = 120
OLDEST_VERSION = 130000
NULLS_NOT_DISTINCT_VERSION = 150000

_OPENING = re.compile(r"^[A-Z_]+: (\[libpq\] )?(Failed to [^:]*: )?")
_CLOSING = re.compile(r"(Query was:.*)?SQLSTATE: \w+\.?$")
_WORDS = {
    # With "No space left" in it, the message would be taken for this machine's disk.
    "53100": "the server's disk is full. Free some space there",
    "53200": "the server is out of memory",
    "55P03": "a table stayed locked by another session for longer than {seconds} s. End that session",
    "57014": "the statement was cancelled on the server",
}

logger = logging.getLogger(__name__)


class PostgresqlError(Exception):
    """PostgreSQL refused, or is away. The message is one line: place, reason, what to do; no password."""


def quoted(*names: str) -> str:
    """A name of one or more parts as SQL has it: quoted, whatever is in it."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


class Server:
    """An open connection in which every statement belongs to a transaction, until `commit` or `rollback`."""

    def __init__(self, connection: Any, place: str) -> None:
        self._connection = connection
        self.place = place
        self.version = 0

    def execute(self, *statements: str) -> None:
        """Run statements that return nothing."""
        for statement in statements:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found

    @contextmanager
    def stream(self, query: str) -> Iterator[pa.RecordBatchReader]:
        """The rows of a query as Arrow batches, which are read before the connection does anything else."""
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            with cursor.fetch_record_batch() as batches:
                yield batches

    def copy(self, schema: str, table: str, batches: pa.RecordBatchReader) -> int:
        """Append Arrow batches to a table, as one COPY; returns how many rows there were."""
        with self._connection.cursor() as cursor:
            rows: int = cursor.adbc_ingest(table, batches, mode="append", db_schema_name=schema)
            return rows

    def commit(self) -> None:
        """End the transaction: what it did is visible to others from now on."""
        self._connection.commit()

    def rollback(self) -> None:
        """End the transaction: it did nothing."""
        self._connection.rollback()

    def outside_transactions(self, *statements: str) -> None:
        """Run statements that no transaction may have around them, such as a vacuum."""
        self._connection.adbc_connection.set_autocommit(True)
        self.execute(*statements)
        self._connection.adbc_connection.set_autocommit(False)

    def together(self, statements: Sequence[str]) -> None:
        """Run many small statements in one round trip."""
        if statements:
            body = ";\n".join(statements)
            tag = "wattledger"
            while f"${tag}$" in body:
                tag += "_"
            self.execute(f"do ${tag}$ begin\n{body};\nend ${tag}$")

    def briefly(self, relation: str, *statements: str) -> None:
        """Run, as a transaction of its own, statements that need a table for themselves for a moment.

        They wait for one second at a time and let readers pass in between. PostgresqlError names who kept the table.
        """
        deadline = time.monotonic() + SHORT_LOCK_PATIENCE_SECONDS
        while True:
            try:
                self.execute(f"set local lock_timeout = '{SHORT_LOCK_SECONDS}s'", *statements)
                self.commit()
            except Exception as refusal:
                self.rollback()
                if getattr(refusal, "sqlstate", None) != "55P03":
                    raise
                if time.monotonic() > deadline:
                    raise PostgresqlError(self._kept_by(relation)) from None
                time.sleep(SHORT_LOCK_SECONDS)
            else:
                return

    def _kept_by(self, relation: str) -> str:
        holders = self.rows(
            "select distinct pid, usename, application_name, xact_start::text from pg_locks join pg_stat_activity"
            f" using (pid) where relation = {literal(relation)}::regclass and granted and pid <> pg_backend_pid()"
        )
        named = "; ".join(f"pid {pid}, user {user}, {app or 'unnamed'}, since {at}" for pid, user, app, at in holders)
        return (
            f"{self.place}: {relation} gets other columns, and other sessions kept it open for"
            f" {SHORT_LOCK_PATIENCE_SECONDS:g} s ({named or 'ended by now'}). End them, or run again later"
        )


@contextmanager
def connected(target: PostgresqlTarget) -> Iterator[Server]:
    """The target's server, with no other publisher in the same schemas; PostgresqlError for whatever fails inside.

    Waits for another publisher as long as a run waits for the warehouse (WATTLEDGER_LOCK_SECONDS).
    """
    try:
        dbapi, refusals = postgresql_driver.driver()
    except postgresql_driver.DriverMissing as missing:
        raise PostgresqlError(f"{missing}, or remove publication.postgresql from the fleet file") from None
    uri = os.environ.get(target.dsn_env, "")
    place = place_of(target)
    try:
        connection = dbapi.connect(postgresql_uris.with_parameters(uri), autocommit=False)
    except refusals as refusal:
        raise PostgresqlError(f"{place}: {_reason(refusal, uri)}. Check the server and the URI") from None
    try:
        server = Server(connection, place)
        _prepare(server, target)
        _wait_for_turn(server, target, database.lock_timeout_seconds())
        yield server
    except refusals as refusal:
        raise PostgresqlError(f"{place}: {_reason(refusal, uri)}") from None
    finally:
        with suppress(refusals):
            connection.close()


def place_of(target: PostgresqlTarget) -> str:
    """Where the database is, as it may be logged."""
    return postgresql_uris.shown(os.environ.get(target.dsn_env, ""), target.dsn_env)


def _prepare(server: Server, target: PostgresqlTarget) -> None:
    server.execute(
        "set timezone to 'UTC'",
        "set standard_conforming_strings to on",
        "set client_min_messages to warning",
        # The server ends a statement that its client, killed at the step's deadline, left behind.
        f"set statement_timeout to '{min(max(1, int(target.limits.step_seconds * 1000)), 2**31 - 1)}ms'",
        "set idle_in_transaction_session_timeout to 0",
        f"set lock_timeout to '{LOCK_SECONDS}s'",
        "set application_name to 'wattledger'",
        "set search_path to pg_catalog",
    )
    ((version, encoding),) = server.rows(
        "select current_setting('server_version_num')::integer, current_setting('server_encoding')"
    )
    server.commit()
    server.version = version
    if version < OLDEST_VERSION:
        raise PostgresqlError(f"{server.place}: version {version // 10000}, expected 13 or later")
    if encoding != "UTF8":
        raise PostgresqlError(
            f"{server.place}: the database's encoding is {encoding}, expected UTF8: a model's name may have any letter."
            " Make another: create database … encoding 'UTF8' template template0"
        )


def _wait_for_turn(server: Server, target: PostgresqlTarget, patience_seconds: float) -> None:
    """Take the lock of this target's schemas; the server releases it when the connection ends, however it does."""
    key = f"hashtextextended({literal(f'wattledger {target.schema_prefix}')}, 0)"
    deadline = time.monotonic() + patience_seconds
    is_logged = False
    while True:
        ((is_ours,),) = server.rows(f"select pg_try_advisory_lock({key})")
        server.commit()
        if is_ours:
            return
        if time.monotonic() >= deadline:
            holders = server.rows(
                "select pid, coalesce(host(client_addr), 'this host'), backend_start::text from pg_stat_activity join"
                " pg_locks using (pid) where locktype = 'advisory' and granted"
                f" and (classid::bigint << 32) | objid::bigint = {key}"
            )
            named = "; ".join(f"pid {pid} from {host}, since {at}" for pid, host, at in holders) or "ended by now"
            raise PostgresqlError(
                f"{server.place}: another publisher writes schemas {target.schema_prefix}marts and"
                f" {target.schema_prefix}published ({named}); waited {patience_seconds:g} s. Run again when it is done"
            )
        if not is_logged:
            logger.info("waiting up to %g s for another publisher at %s", patience_seconds, server.place)
            is_logged = True
        time.sleep(min(1.0, max(0.05, patience_seconds / 20)))


def _reason(refusal: Exception, uri: str) -> str:
    """The server's own words, or ours, in one line without passwords."""
    state = getattr(refusal, "sqlstate", None)
    if state in _WORDS:
        return _WORDS[state].format(seconds=LOCK_SECONDS)
    text = _CLOSING.sub("", _OPENING.sub("", " ".join(str(refusal).split()))).strip(" .?")
    return printable(postgresql_uris.secrets_of(uri).masked(text)[:600])
