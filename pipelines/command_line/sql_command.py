"""The command `sql`: one query on the published snapshot, which no query can change.

Add here what a query may do, and the message where it may not. Keep out how rows are written
(`pipelines.command_line.query_results`). Nothing here imports Dagster: a query should answer at once.
"""

from __future__ import annotations

import difflib
import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing

import duckdb

from collectors.samples import printable
from pipelines.command_line import query_results, several_fleets
from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.places import DBT_PROJECT
from pipelines.receipts import receipt_files
from pipelines.warehouse import database
from pipelines.warehouse.contracts import former_columns
from pipelines.warehouse.refusals import QuestionError, nothing_published

_ROWS_AT_A_TIME = 1000


def sql(fleet: Fleet, options: Namespace) -> int:
    """Print the rows of one query; returns the exit status. QuestionError where the query cannot be answered."""
    return _printed(connected(fleet), options)


def connected(fleet: Fleet) -> duckdb.DuckDBPyConnection:
    """The fleet's publication and receipts, read-only. QuestionError where nothing is published."""
    if not fleet.snapshot.exists():
        raise nothing_published(fleet.fleet, fleet.path)
    if not receipt_files.dates_of(fleet):
        return database.connect(fleet.snapshot, read_only=True)
    connection = database.connect(":memory:")
    connection.execute(f"attach {database.literal(fleet.snapshot)} as publication (read_only)")
    receipt_files.attach(connection, fleet)
    connection.execute("use publication")
    connection.execute(f"set allowed_directories = [{database.literal(receipt_files.folder_of(fleet))}]")
    return connection


def sql_of_all(fleets: Sequence[Fleet], options: Namespace) -> int:
    """The same of several fleets: every table has a column `fleet`. The list of tables is that of one of them."""
    if options.tables:
        return sql(next((fleet for fleet in fleets if fleet.snapshot.exists()), fleets[0]), options)
    return _printed(several_fleets.opened(fleets), options)


def _printed(connection: duckdb.DuckDBPyConnection, options: Namespace) -> int:
    if options.tables == (options.query is not None):
        raise QuestionError('expected a query or --tables, such as sql "from marts.fleet_daily", or sql --tables')
    query = TABLES if options.tables else sys.stdin.read() if options.query == "-" else options.query
    with closing(connection):
        for line in _lines(options, *answer(connection, query)):
            print(line)
    return 0


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[list[str], Iterator[query_results.Row]]:
    """Names of the columns, and the rows, of one query, which reads the publication and the fleet's receipts, and no
    other file of this machine. QuestionError, also with a row, where it cannot be answered."""
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    _validate(connection, query)
    try:
        connection.execute(query)
    except duckdb.Error as refusal:
        raise QuestionError(_explained(connection, refusal)) from None
    return [column[0] for column in connection.description or ()], _rows(connection)


def _validate(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    try:
        statements = connection.extract_statements(query)
    except duckdb.Error as refusal:
        raise QuestionError(_explained(connection, refusal)) from None
    if len(statements) != 1:
        raise QuestionError(f"expected one statement, got {len(statements)}: such as select * from marts.fleet_daily")
    kind = statements[0].type
    if kind != duckdb.StatementType.SELECT:
        raise QuestionError(
            f"{kind.name} is refused: the publication is read-only, and the command `sql` only answers queries"
            " (select, with, from, describe, summarize, show). To change figures, run the pipeline; for own"
            " tables beside them, attach the snapshot in a DuckDB of your own (docs/connect.md)."
        )


def _rows(connection: duckdb.DuckDBPyConnection) -> Iterator[query_results.Row]:
    # An undrained result would raise at the next query, and some errors come with the rows.
    try:
        while rows := connection.fetchmany(_ROWS_AT_A_TIME):
            yield from rows
    except duckdb.Error as refusal:
        raise QuestionError(_explained(connection, refusal)) from None


def _lines(options: Namespace, names: list[str], rows: Iterator[query_results.Row]) -> Iterator[str]:
    if options.format == "csv":
        return query_results.as_csv(names, rows, is_raw=options.raw)
    if options.format == "json":
        return query_results.as_json(names, rows)
    return query_results.as_table(names, rows, 0 if options.tables else options.limit)


def _explained(connection: duckdb.DuckDBPyConnection, refusal: duckdb.Error) -> str:
    """DuckDB's message in one line; for a table that is not there, with the published names that are most like it."""
    message = str(refusal)
    missing = re.search(r"Table with name (\S+) does not exist", message)
    if missing is None:
        words = " ".join(message.split()).rstrip("^ ")  # without the underline of the wrong word
        return f"the query cannot be answered: {printable(words)}{_of_former_column(message)}"
    names = [
        f"{schema}.{name}"
        for schema, name in connection.execute(
            "select schema_name, table_name from duckdb_tables() where not internal"
            " union select if(database_name = $receipts, $receipts, schema_name), view_name from duckdb_views()"
            " where not internal order by all",
            {"receipts": receipt_files.SCHEMA},
        ).fetchall()
    ]
    asked = missing[1].rpartition(".")[2]
    bare = difflib.get_close_matches(asked, [name.partition(".")[2] for name in names], n=3, cutoff=0.5)
    near = [name for one in bare for name in names if name.endswith(f".{one}")]
    nearest = f" The nearest names: {', '.join(dict.fromkeys(near))}." if near else ""
    return f"no published table is named {printable(missing[1])}.{nearest} All of them: {_LISTING}"


def _of_former_column(message: str) -> str:
    """Where the figure of a column is that a public table had once; empty for any other name."""
    asked = re.search(r'Referenced column "(\w+)" not found|does not have a column named "(\w+)"', message)
    if asked is None:
        return ""
    name = asked[1] or asked[2]
    renamed, gone = former_columns(DBT_PROJECT)
    found: dict[str, list[str]] = {}
    for table, columns in renamed.items():
        if name in columns:
            found.setdefault(f"is called {columns[name]} now", []).append(table)
    for table, columns in gone.items():
        if name in columns:
            found.setdefault(f"is gone: see {columns[name]}", []).append(table)
    return "".join(f". {name} of {', '.join(tables)} {what} (docs/versions.md)" for what, tables in found.items())


_LISTING = "wattledger sql --tables (docs/tables.md)"
# A table's comment ends with its rank and topic, `[start here: usage]`, and begins with its grain.
TABLES = r"""
with commented as (
    select
        schema_name || '.' || table_name as table_name,
        regexp_extract(comment, '\[([a-z ]+): (\w+)\]\s*$', ['rank', 'topic']) as placed,
        regexp_extract(comment, '^(.*?\.)( |$)', 1) as one_row
    from duckdb_tables() where not internal and schema_name in ('finance', 'marts', 'published')
)
select
    coalesce(nullif(placed.rank, ''), 'evidence') as rank,
    coalesce(nullif(placed.topic, ''), 'publication') as topic,
    table_name,
    one_row
from commented
order by list_position(['start here', 'topic', 'evidence'], rank), topic, table_name
"""
