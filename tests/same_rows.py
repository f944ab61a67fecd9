"""Whether two publications or warehouses have the same rows: `python -m tests.same_rows OLD.duckdb NEW.duckdb`.

For a change of SQL that should change no figure (CONTRIBUTING.md). Add here what counts as the same. Keep out which
books to compare.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import duckdb

# The tables that readers have; steps may change.
SCHEMAS = ("marts", "published")
# Columns that name when or by which code a row was made.
OF_THE_RUN = frozenset({"code_version", "run_id", "refused_at", "landed_at", "booked_at", "published_at"})


def differences(old: Path, new: Path) -> list[str]:
    """One line for each table that one file lacks, or whose columns or rows differ; in whatever order the rows are."""
    with closing(duckdb.connect()) as connection:
        for name, path in (("old", old), ("new", new)):
            connection.execute(f"attach '{path}' as {name} (read_only)")
        tables = {name: _tables(connection, name) for name in ("old", "new")}
        lines = [f"{table}: only in {old}" for table in sorted(tables["old"].keys() - tables["new"].keys())]
        lines += [f"{table}: only in {new}" for table in sorted(tables["new"].keys() - tables["old"].keys())]
        for table in sorted(tables["old"].keys() & tables["new"].keys()):
            if tables["old"][table] != tables["new"][table]:
                lines.append(f"{table}: columns differ")
                continue
            compared = ", ".join(f'"{name}"' for name, _ in tables["old"][table] if name not in OF_THE_RUN)
            one, other = (f"select {compared} from {name}.{table}" for name in ("old", "new"))
            ((gone, come),) = connection.execute(
                f"select (select count(*) from ({one} except all {other})),"
                f" (select count(*) from ({other} except all {one}))"
            ).fetchall()
            if gone or come:
                lines.append(f"{table}: {gone} rows only in {old}, {come} only in {new}")
    return lines


def _tables(connection: duckdb.DuckDBPyConnection, name: str) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for schema, table, column, kind in connection.execute(
        "select schema_name, table_name, column_name, data_type from duckdb_columns()"
        " where database_name = ? and list_contains(?, schema_name) order by 1, 2, column_index",
        [name, list(SCHEMAS)],
    ).fetchall():
        found.setdefault(f"{schema}.{table}", []).append((column, kind))
    return found


if __name__ == "__main__":
    lines = differences(*map(Path, sys.argv[1:3]))
    print("\n".join(lines) or "the same rows in every table")
    sys.exit(bool(lines))
