"""Whether two publications, or two warehouses, have the same rows: `python -m tests.same_rows OLD.duckdb NEW.duckdb`.

For a change that should change no figure (CONTRIBUTING.md). Every table and view of both files is compared: of a
warehouse without the steps of the dbt project (`--steps` adds them), and without what names the run. What was renamed,
joined, added or removed on purpose is listed in a file, `--expected FILE` (`paired_tables`). Any other difference ends
in status 1, and so does an entry of that file that matches nothing.

What is the same: integers, decimals, texts, times, lists and JSON are equal; NULL equals NULL, and NaN equals NaN; rows
may be in any order. Doubles are equal, or differ by at most 1e-12 of the larger one, in rows that are otherwise equal:
threads add in another order each time. These rows are counted in a line of their own and are no difference. Zero
against a small double is one. Add here what counts as the same. Keep out which books to compare.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import yaml

from pipelines.fleet.places import DBT_PROJECT
from pipelines.publishing.published_tables import ROWS_HASHED, SCHEMAS
from pipelines.warehouse.database import literal
from tests.paired_tables import Column, Entry, ExpectedFileError, Pair, Pairing, Tables, read

# Two doubles are the same figure up to this share of the larger one.
TOLERANCE_RATIO = 1e-12
# Of two doubles; without isfinite an infinity would be close to every number.
CLOSE = (
    "({0} is not distinct from {1} or isfinite({0}) and isfinite({1})"
    f" and abs({{0}} - {{1}}) <= {TOLERANCE_RATIO} * greatest(abs({{0}}), abs({{1}})))"
)
PLACE = '"place among equal rows"'
# Tables that differ between two runs of the same code, or between two codes that make the same rows, and why.
TABLES_OF_THE_RUN = {
    "published.publication": "the publication itself: when, by which code, which files",
    "finance.ledger_cost": "seconds, memory and bytes that the newest run took",
    "raw.run_costs": "seconds and memory that each run took",
    "raw.disk_use": "bytes that each run left",
    "raw.seeds_loaded": "a digest of the seed files",
    "raw.views_made": "a digest of each standing view's SQL",
    "raw.made_from": "a digest of each mart's SQL",
    "raw.warehouse_version": "the versions of the code",
}
# Rows of the other tables that name the code: its version, and digests of its SQL and of its columns.
_OF_THE_CODE = "setting in ('code_version', 'formulas', 'columns')"
ROWS_OF_THE_RUN = {"raw.booked_with": _OF_THE_CODE, "raw.published_with": _OF_THE_CODE}
# Columns that name the run or publication that made a row, or when it did: of them only what is NULL is compared.
COLUMNS_OF_THE_RUN = frozenset({"run_id", "publication_id", "landing_id", "landed_at", "refused_at", "named_at",
    "erased_at", "sealed_at", "given_up_at", "given_at", "measured_at", "closed_at", "adjusted_at",
    "restated_at"})  # fmt: skip


@dataclass
class Comparison:
    """What two files have in common, and what not."""

    differences: list[str] = field(default_factory=list)
    # Of rows that are the same, doubles that differ past the 12th digit.
    rounded: list[str] = field(default_factory=list)
    tables: int = 0
    rows: int = 0


def compare(old: Path, new: Path, entries: Sequence[Entry] = (), *, has_steps: bool = False) -> Comparison:
    """Compare two files, but for what the entries expect of them."""
    left_out = frozenset() if has_steps else step_schemas()
    with tempfile.TemporaryDirectory() as folder, closing(duckdb.connect(f"{folder}/rows.duckdb")) as connection:
        connection.execute("set TimeZone = 'UTC'")
        for side, path in (("old", old), ("new", new)):
            connection.execute(f"attach {literal(path)} as {side} (read_only)")
        tables = {side: tables_of(connection, side, left_out) for side in ("old", "new")}

        def count(side: str, table: str, condition: str) -> int:
            try:
                return _value(connection, f"select count(*) from ({_query(f'{side}.{table}', {}, condition)})")
            except duckdb.Error as error:
                raise ExpectedFileError(f"rows of {table}: {error}. Expected a condition in SQL") from error

        pairing = Pairing(tables["old"], tables["new"], entries, count)
        pairs = pairing.pairs()
        comparison = Comparison([*_empty_schemas(tables), *pairing.differences])
        for pair in pairs:
            try:
                _compare_rows(connection, pair, comparison)
            except duckdb.Error as error:
                comparison.differences.append(f"{pair}: cannot be read: {str(error).splitlines()[0]}")
    return comparison


def step_schemas() -> frozenset[str]:
    """The schemas of models of the dbt project that no publication has: staging, steps, invariants."""
    project = yaml.safe_load((DBT_PROJECT / "dbt_project.yml").read_text(encoding="utf-8"))
    return frozenset(_stated_schemas(project["models"])) - set(SCHEMAS)


def _stated_schemas(models: object) -> Iterator[str]:
    if isinstance(models, dict):
        for key, value in models.items():
            if key == "+schema":
                yield value
            yield from _stated_schemas(value)


def tables_of(connection: duckdb.DuckDBPyConnection, side: str, left_out: frozenset[str]) -> Tables:
    """The tables and views of a side, without these schemas and the tables of the run."""
    tables: Tables = {}
    for schema, table, column, kind in connection.execute(
        "select schema_name, table_name, column_name, data_type from duckdb_columns()"
        " where database_name = ? and not internal order by schema_name, table_name, column_index",
        [side],
    ).fetchall():
        if schema not in left_out and f"{schema}.{table}" not in TABLES_OF_THE_RUN:
            tables.setdefault(f"{schema}.{table}", {})[column] = kind
    return tables


def _empty_schemas(tables: Mapping[str, Tables]) -> list[str]:
    """A line for each schema that every publication and warehouse has, and neither file: nothing is compared of it."""
    schemas = {table.partition(".")[0] for of_side in tables.values() for table in of_side}
    return [f"{schema}: neither file has a table of this schema" for schema in SCHEMAS if schema not in schemas]


def _compare_rows(connection: duckdb.DuckDBPyConnection, pair: Pair, comparison: Comparison) -> None:
    """Compare a table by a digest of its rows, and row by row where the digests differ."""
    rows = f"({ROWS_OF_THE_RUN.get(pair.old, 'false')}) is not true"
    # Each side with the old file's names.
    queries = {
        "old": _query(f"old.{pair.old}", {c.old: _compared(c.old, c) for c in pair.columns}, rows, pair.old_rows),
        "new": _query(f"new.{pair.new}", {c.old: _compared(c.new, c) for c in pair.columns}, rows, pair.new_rows),
    }
    (count, old_digest), (_, new_digest) = (
        connection.execute(f"select count(*), {ROWS_HASHED} from ({query}) as t").fetchall()[0]
        for query in queries.values()
    )
    comparison.tables += 1
    comparison.rows += count
    if old_digest == new_digest:
        return
    exact, doubles = (
        [_quoted(column.old) for column in pair.columns if column.is_double is are_doubles]
        for are_doubles in (False, True)
    )
    # Among rows that are otherwise equal, the order of their doubles decides which are compared.
    order = f"partition by {', '.join([*exact, 'true'])} order by {', '.join([*doubles, 'true'])}"
    for side, other in (("old", "new"), ("new", "old")):
        connection.execute(
            f"create or replace temp table only_{side} as select *, row_number() over ({order}) as {PLACE}"
            f" from ({queries[side]} except all {queries[other]})"
        ).fetchall()
    if rounded := _set_rounded_apart(connection, [*exact, PLACE], doubles):
        comparison.rounded.append(f"{pair}: {rounded}")
    gone, come = (_value(connection, f"select count(*) from only_{side}") for side in ("old", "new"))
    if gone or come:
        differing = [name for name in [*exact, *doubles] if gone and come and _differs(connection, name)]
        comparison.differences.append(
            f"{pair}: {gone:,} rows only in the old file, {come:,} only in the new one"
            + (f"; these columns differ: {', '.join(differing)}" if differing else "")
        )


def _set_rounded_apart(connection: duckdb.DuckDBPyConnection, exact: list[str], doubles: list[str]) -> str:
    """Remove the rows of both sides whose doubles alone differ, and only past the 12th digit; returns how many, and how
    often each of these doubles differs, or nothing."""
    is_equal = " and ".join(f"old.{name} is not distinct from new.{name}" for name in exact)
    is_close = " and ".join(CLOSE.format(f"old.{name}", f"new.{name}") for name in doubles) or "false"
    differs = ", ".join(f"old.{name} is distinct from new.{name}" for name in doubles)
    connection.execute(
        "create or replace temp table twins as"
        f" select old.rowid as old_row, new.rowid as new_row, [{differs}] as differ"
        f" from only_old as old join only_new as new on {is_equal} where {is_close}"
    ).fetchall()
    for side in ("old", "new"):
        connection.execute(f"delete from only_{side} where rowid in (select {side}_row from twins)").fetchall()
    counts = {
        name: _value(connection, f"select count(*) from twins where differ[{place}]")
        for place, name in enumerate(doubles, 1)
    }
    rows = _value(connection, "select count(*) from twins")
    listed = ", ".join(f"{name} {count:,} times" for name, count in counts.items() if count)
    return f"{rows:,} rows: {listed}" if rows else ""


def _differs(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    """Whether a column has values in the rows of the old file that it has not in those of the new one."""
    query = f"select count(*) from (select {name} from only_old except all select {name} from only_new)"
    return _value(connection, query) > 0


def _compared(name: str, column: Column) -> str:
    """What is compared of a column, which a side calls by this name."""
    if column.old in COLUMNS_OF_THE_RUN:
        return f"{_quoted(name)} is null"
    return f"cast({_quoted(name)} as {column.kind})"


def _query(table: str, columns: Mapping[str, str], *conditions: str) -> str:
    database, schema, name = table.split(".", 2)
    selected = ", ".join(f"{expression} as {_quoted(column)}" for column, expression in columns.items())
    return (
        f"select {selected or 'true'} from {database}.{_quoted(schema)}.{_quoted(name)}"
        f" where {' and '.join(conditions)}"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _value(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    return connection.execute(query).fetchall()[0][0]


def main(words: Sequence[str] | None = None) -> int:
    """Print how two files differ; returns 1 where they do, 2 where the file of expected differences is none."""
    parser = argparse.ArgumentParser(prog="python -m tests.same_rows", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--expected", type=Path, metavar="FILE", help="what was renamed, joined or removed on purpose")
    parser.add_argument("--steps", action="store_true", help="compare the steps of the dbt project too")
    given = parser.parse_args(words)
    try:
        entries = read(given.expected) if given.expected else []
        comparison = compare(given.old, given.new, entries, has_steps=given.steps)
    except ExpectedFileError as mistake:
        parser.error(str(mistake))
    for line in comparison.rounded:
        print(f"past the 12th digit: {line}")
    for line in comparison.differences:
        print(f"different: {line}")
    print(f"compared {comparison.tables:,} tables and views, {comparison.rows:,} rows of the old file")
    print(f"{len(comparison.differences):,} differences" if comparison.differences else "the same rows in every table")
    return int(bool(comparison.differences))


if __name__ == "__main__":
    sys.exit(main())
