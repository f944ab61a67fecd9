"""What a failed data test found, row by row.

Add here how dbt's tests are told to a person. Keep out what they test: that is `dbt_project/tests`.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import dagster as dg
import duckdb

from pipelines.booking.project import prepared_project
from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import database, findings


def with_rows(fleet: Fleet, failed: list[dg.AssetCheckResult]) -> Iterator[dg.AssetCheckResult]:
    """The results of data tests that failed, each with the rows that its own query finds."""
    if not failed:
        return
    nodes = json.loads(prepared_project().manifest_path.read_text(encoding="utf-8"))["nodes"].values()
    tests = {node["name"]: node for node in nodes if node["resource_type"] == "test"}
    with closing(database.connect(fleet.warehouse, read_only=True)) as connection:
        for result in failed:
            files = sorted((fleet.root / "dbt" / "compiled").rglob(f"{result.check_name}.sql"))
            told = _rows(connection, files[0].read_text(), tests[result.check_name]) if files else result.description
            yield dg.AssetCheckResult(
                passed=False,
                asset_key=result.asset_key,
                check_name=result.check_name,
                severity=result.severity,
                description=told,
                metadata=result.metadata,
            )


def _rows(connection: duckdb.DuckDBPyConnection, query: str, test: Mapping[str, Any]) -> str:
    """What a data test found, as `findings` tells it; `expected` and `remedy` are in the test's meta."""
    found = connection.execute(
        f"select *, count(*) over () as rows_in_all from ({query}) order by all limit {findings.SHOWN}"
    )
    names = [column[0] for column in found.description][:-1]
    rows = found.fetchall()
    meta = test["config"]["meta"]
    lines = [findings.row(names, row[:-1]) for row in rows]
    return findings.report(lines, rows[0][-1] if rows else 0, meta.get("expected", ""), meta.get("remedy", ""))
