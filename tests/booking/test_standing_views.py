"""A view that holds nothing of a run is made again only if it is not what today's project makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import duckdb
import pytest

from pipelines.booking import standing_views
from pipelines.booking.dbt_run import run_dbt
from pipelines.booking.ledger import ledger_assets, on_duckdb
from pipelines.booking.project import prepared_project, variables_of
from pipelines.booking.standing_views import MadeFrom
from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.places import DEFAULT_FLEET
from pipelines.warehouse.raw_tables import create_tables
from tests.books import create_read
from tests.ledger.benchmarks.test_book_load_test import DAY, load_test_book

MADE_FROM = MadeFrom("project", {"start_date": "2026-10-01", "grid_seconds": 300})
VIEW = "create or replace view finance.budgets as select 1 as budget"


def made(schema: str, name: str, materialized: str, *tags: str, kind: str = "model") -> Any:
    """dbt's result of a node."""
    config = SimpleNamespace(materialized=materialized)
    return SimpleNamespace(
        node=SimpleNamespace(resource_type=kind, schema=schema, name=name, config=config, tags=list(tags))
    )


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        create_tables(connection)
        connection.execute("create schema finance; create schema intermediate; create schema marts")
        connection.execute(VIEW)
        connection.execute("create view intermediate.int_label_names as select 2 as label")
        results = [
            made("finance", "budgets", "view", "finance"),
            made("intermediate", "int_label_names", "view"),
            made("intermediate", "int_advised_intervals", "table", "advice"),
            made("marts", "budgets_are_known", "view", "finance", kind="test"),
        ]
        standing_views.remember(connection, MADE_FROM, results)
        yield connection


def test_views_of_the_tags_are_remembered_and_nothing_else(connection: duckdb.DuckDBPyConnection) -> None:
    assert connection.execute("select view_name from raw.views_made").fetchall() == [("finance.budgets",)]
    assert standing_views.are_todays(connection, MADE_FROM)


def test_other_dates_and_the_same_view_made_by_hand_change_nothing(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(VIEW)
    connection.execute("create or replace view intermediate.int_label_names as select 3 as label")
    later = {"start_date": "2026-10-02", "end_date": "2026-10-03", "keeps_unchanged": True, "grid_seconds": 300}
    assert standing_views.are_todays(connection, MadeFrom("project", later))


def test_duckdb_writes_what_a_view_excludes_in_any_order(tmp_path: Path) -> None:
    """Each time that it writes the catalog anew it turns them round."""
    texts = set()
    for number in range(4):
        with duckdb.connect(str(tmp_path / "warehouse.duckdb")) as connection:
            create_tables(connection)
            if number == 0:
                connection.execute("create schema finance; create table wide as select 1 as a, 2 as b, 3 as c, 4 as d")
                connection.execute("create view finance.budgets as select wide.* exclude (a, b, c) from wide")
                standing_views.remember(connection, MADE_FROM, [made("finance", "budgets", "view", "finance")])
            assert standing_views.are_todays(connection, MADE_FROM)
            texts |= set(connection.execute("select sql from duckdb_views() where view_name = 'budgets'").fetchall())
            connection.execute(f"create table another_{number} as select 1 as one")
    assert len(texts) > 1
    with duckdb.connect(str(tmp_path / "warehouse.duckdb")) as connection:
        connection.execute("create or replace view finance.budgets as select wide.* exclude (a, b, d) from wide")
        assert not standing_views.are_todays(connection, MADE_FROM)


@pytest.mark.parametrize(
    ("statement", "made_from"),
    [
        ("select 1", MadeFrom("changed", MADE_FROM.variables)),
        ("select 1", MadeFrom("project", {**MADE_FROM.variables, "grid_seconds": 60})),
        ("create or replace view finance.budgets as select 1 as budget, 2 as month", MADE_FROM),
        ("drop view finance.budgets", MADE_FROM),
        ("drop view finance.budgets; create table finance.budgets as select 1 as budget", MADE_FROM),
        ("delete from raw.views_made", MADE_FROM),
    ],
)
def test_what_else_changes_has_the_views_made_again(
    connection: duckdb.DuckDBPyConnection, statement: str, made_from: MadeFrom
) -> None:
    connection.execute(statement)
    assert not standing_views.are_todays(connection, made_from)


def test_no_standing_view_has_what_differs_from_run_to_run(tmp_path: Path) -> None:
    """Whatever dates are booked, and whatever was published before, they compile to the same SQL."""
    fleet = load_fleet(DEFAULT_FLEET)

    def compiled(publication: str, **of_run: object) -> dict[str, str]:
        words = ["compile", "--select", *standing_views.SELECTED]
        environment = {"WATTLEDGER_WAREHOUSE": ":memory:", "WATTLEDGER_LAST_PUBLICATION": publication}
        results = run_dbt(words, {**variables_of(fleet), **of_run}, environment, tmp_path)
        return {one.node.name: one.node.compiled_code for one in results}

    one = compiled("")
    of_run = {
        "start_date": "2026-10-01",
        "end_date": "2026-10-03",
        "closed_until_us": 7,
        "keeps_unchanged": True,
        "unasked_dates": "date '2026-10-02'",
    }
    assert set(of_run) == set(standing_views.OF_A_RUN)
    assert {"budgets", "bridge", "int_due_adjustments", "int_advised_boards", "int_advised_loads"} <= one.keys()
    assert compiled("/data/wattledger.duckdb", **of_run) == one


def test_no_check_and_no_table_is_left_out_with_the_views() -> None:
    """dbt leaves out the tests of what is left out."""
    nodes = json.loads(prepared_project().manifest_path.read_text(encoding="utf-8"))["nodes"]
    standing = {
        name
        for name, node in nodes.items()
        if node["config"].get("materialized") == "view" and not set(standing_views.TAGS).isdisjoint(node["tags"])
    }
    assert len(standing) > 25
    tests = [node for node in nodes.values() if node["resource_type"] == "test"]
    tested = {name for test in tests for name in test["depends_on"]["nodes"]}
    assert standing.isdisjoint(tested)


@pytest.mark.long
def test_a_run_makes_them_only_if_they_changed(tmp_path: Path) -> None:
    book = load_test_book(tmp_path)

    def book_day(**config: bool) -> None:
        assets = ledger_assets(book.fleet, prepared_project(), on_duckdb, lambda _, held: create_read(held))
        (ledger,) = [one for one in assets if one.node_def.name == "ledger"]
        run_config = {"ops": {"ledger": {"config": config}}}
        assert dg.materialize([ledger], partition_key=DAY.isoformat(), run_config=run_config).success

    def change(statement: str) -> None:
        with book.connection() as connection:
            connection.execute(statement)

    def comment() -> list[tuple[Any, ...]]:
        return book.query("select comment = 'by hand' from duckdb_views() where view_name = 'budgets'")

    book_day()
    views = "select schema_name, view_name, sql from duckdb_views() where not internal order by all"
    first = book.query(views)
    assert len(book.query("from raw.views_made")) > 25
    change("comment on view finance.budgets is 'by hand'")
    book_day()
    assert comment() == [(True,)]
    book_day(anew=True)
    assert comment() == [(False,)]
    change("create or replace view finance.budgets as select 1 as budget")
    book_day()
    assert book.query(views) == first
