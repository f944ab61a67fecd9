"""What is done once instead of for each model gives what dbt gives; dbt's own functions are beside ours."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dbt import compilation
from dbt.clients.jinja import MacroStack
from dbt.context.macros import MacroNamespace, MacroNamespaceBuilder
from dbt.contracts.graph.manifest import Manifest

from pipelines.booking import dbt_run, dbt_shortcuts
from pipelines.booking.dbt_run import DBT_PROJECT, run_dbt
from tests.books import empty_warehouse

CTES = [
    compilation.InjectedCTE(id="a", sql=" __dbt__cte__a as (\nselect 1 as n\n)"),
    compilation.InjectedCTE(id="b", sql=" __dbt__cte__b as (\nselect 2 as n\n)"),
]


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    dbt_shortcuts.take_shortcuts()
    return dbt_run.parse(DBT_PROJECT, "--no-write-json")


def as_is(namespace: MacroNamespace) -> dict[str, object]:
    """Each name with the macro that it calls, or, of a package, with those of all its names."""
    return {
        name: {inner: macro.macro.unique_id for inner, macro in found.items()}
        if isinstance(found, dict)
        else (found.macro.unique_id, found.node, found.context)
        for name, found in namespace.items()
    }


@pytest.mark.parametrize("package", ["wattledger", "dbt", "dbt_duckdb"])
def test_a_model_finds_the_macros_that_it_would_find(manifest: Manifest, package: str) -> None:
    ours = MacroNamespaceBuilder.build_namespace
    found = {}
    for name, build in (("ours", ours), ("dbt's", ours.__wrapped__)):
        builder = MacroNamespaceBuilder("wattledger", package, MacroStack(), ["dbt", "dbt_duckdb"], "the node")
        namespace = build(builder, manifest.get_macros_by_package(), {"a": "context"})
        found[name] = as_is(namespace)
        assert namespace.get_from_package("dbt", "statement").macro.package_name == "dbt"
        assert namespace.get_from_package("wattledger", "no_such_macro") is None
    assert len(found["ours"]) > 600
    assert found["ours"] == found["dbt's"]
    # The project's own materialization is before the adapter's of the same name.
    assert found["ours"]["materialization_table_duckdb"][0].startswith("macro.wattledger.")


@pytest.mark.parametrize(
    "sql",
    [
        "with a as (select 1) select * from a",
        "-- with a comment\n/* and\nwith another */\n  WITH a as (select 1) select * from a",
        "with recursive a as (select 1) select * from a",
        "select * from withheld",
        "select 1 as n -- with\n",
        "/* with */ select 'with' as word",
    ],
)
def test_ctes_of_ephemeral_models_come_where_dbt_puts_them(sql: str) -> None:
    dbt_shortcuts.take_shortcuts()
    ours, theirs = compilation.inject_ctes_into_sql, compilation.inject_ctes_into_sql.__wrapped__
    assert ours(sql, CTES).split() == theirs(sql, CTES).split()
    assert ours(sql, []) == sql


def test_a_debug_log_has_dbts_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "warehouse.duckdb"
    shutil.copyfile(empty_warehouse(), path)
    words, environment = ["run", "--select", "stg_series"], {"WATTLEDGER_WAREHOUSE": str(path)}
    run_dbt(words, {}, environment, tmp_path)
    assert not (tmp_path / "dbt.log").exists()
    monkeypatch.setenv("DBT_LOG_LEVEL_FILE", "debug")
    run_dbt(words, {}, environment, tmp_path)
    log = (tmp_path / "dbt.log").read_text(encoding="utf-8")
    assert "Began running node model.wattledger.stg_series" in log
    assert 'create or replace table "warehouse"."staging"."stg_series" as (' in log
