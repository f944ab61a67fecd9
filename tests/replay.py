"""The statements with which dbt makes the models, written down once and executed again without dbt.

Of booking a small fleet a half is dbt's own work: it renders the same statements for the same variables but for the
dates and two numbers. A test that books a fleet executes what dbt executed, with its own; that this is what dbt would
do is `tests/test_replay.py`. A model that dbt makes by what its queries find (what is held back) is left to dbt as soon
as a query finds something else than in a warehouse without rows.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from pipelines.booking.dbt_run import run_dbt
from tests.kept import kept

# What the run that is written down was given: no other text of the project has it. The SQL has numbers as they are, or
# in microseconds.
FIRST, END = date(2201, 3, 7), date(2201, 3, 10)
UNASKED = "date '2201-03-08'"
NUMBERS = {"max_spread_seconds": 76_543_217, "most_tokens_per_second": 912_345_678}


@dataclass(frozen=True)
class Model:
    """A model's statements in one transaction; of each query among them, what it finds in a warehouse without rows."""

    name: str
    statements: tuple[str, ...]
    found: tuple[Any, ...]


def replay(
    connection: duckdb.DuckDBPyConnection,
    variables: Mapping[str, Any],
    names: Collection[str],
    empty: Path,
) -> list[str]:
    """Make the models of these names, or all without names; returns the names of those that dbt has to make. `empty` is
    a warehouse of all tables without rows."""
    meant = {FIRST.isoformat(): variables["start_date"], END.isoformat(): variables["end_date"]}
    meant |= {str(written): str(variables[name]) for name, written in NUMBERS.items()}
    if unasked := variables.get("unasked_dates"):
        meant = {UNASKED: unasked, **meant}
        variables = {**variables, "unasked_dates": UNASKED}
    others = {name: value for name, value in variables.items() if name not in ("start_date", "end_date", *NUMBERS)}
    # More than any book of a test needs: a join that runs wild is refused here, by its model's name.
    connection.execute("set memory_limit = '2GB'; set temp_directory = ''")
    left = []
    for model in _written_down(json.dumps(others, sort_keys=True), empty):
        if names and model.name not in names:
            continue
        statements = [_as_meant(statement, meant) for statement in model.statements]
        try:
            found = _executed(connection, statements)
        except duckdb.Error as refusal:
            raise AssertionError(f"dbt run failed: {model.name}: {refusal}") from refusal
        if found != [_as_meant(answer, meant) for answer in model.found]:
            left.append(model.name)
    return left


def _as_meant(statement: str, meant: Mapping[str, str]) -> str:
    for written, of_now in meant.items():
        statement = statement.replace(written, of_now)
    return statement


def _executed(connection: duckdb.DuckDBPyConnection, statements: list[str]) -> list[str]:
    """What the queries found."""
    connection.execute("begin")
    try:
        found = []
        for statement in statements:
            rows = connection.execute(statement).fetchall()
            if _is_query(statement):
                found.append(repr(rows))
    except duckdb.Error:
        connection.execute("rollback")
        raise
    connection.execute("commit")
    return found


def _is_query(statement: str) -> bool:
    return statement.rpartition("*/")[2].lstrip().startswith("select")


@cache
def _written_down(variables: str, empty: Path) -> list[Model]:
    def write_down(folder: Path) -> None:
        path = folder / "warehouse.duckdb"
        shutil.copyfile(empty, path)
        given = {**json.loads(variables), **NUMBERS, "start_date": FIRST.isoformat(), "end_date": END.isoformat()}
        statements: dict[str, list[str]] = {}
        started = set[str]()

        def note(event: Any) -> None:
            name = event.data.node_info.node_name if event.info.name == "SQLQuery" else ""
            if name and event.data.sql == "BEGIN":
                started.add(name)
            elif name in started and event.data.sql != "COMMIT":
                statements.setdefault(name, []).append(event.data.sql)

        done = run_dbt(["run"], given, {"WATTLEDGER_WAREHOUSE": str(path)}, folder, on_event=note)
        wrong = [f"{one.node.name}: {one.message}" for one in done if one.status != "success"]
        if wrong:
            raise AssertionError(f"dbt run failed on empty tables: {'; '.join(wrong)}")
        shutil.copyfile(empty, path)
        with duckdb.connect(str(path)) as connection:
            models = [Model(name, tuple(of), tuple(_executed(connection, of))) for name, of in statements.items()]
        for file in folder.iterdir():
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        (folder / "models.json").write_text(json.dumps([asdict(model) for model in models]), encoding="utf-8")

    digest = hashlib.blake2b(variables.encode(), digest_size=8).hexdigest()
    text = (kept(f"statements-{digest}", write_down) / "models.json").read_text(encoding="utf-8")
    return [Model(one["name"], tuple(one["statements"]), tuple(one["found"])) for one in json.loads(text)]
