"""What the pipeline reads of the dbt project before dbt runs: contracts, and a digest that only formulas change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from pipelines.booking.project import prepared_project
from pipelines.code_location import definitions_of
from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.places import DBT_PROJECT, DEFAULT_FLEET, PROJECT
from pipelines.warehouse.computed_tables import COMPUTED_MARTS
from pipelines.warehouse.contracts import FORMER_COLUMNS, SAME_FIGURES, Contracts, bare, contracts_of, former_columns

COLUMNS = {"date": {"name": "date", "data_type": "date"}, "joules": {"name": "joules", "data_type": "double"}}


def node(schema: str, name: str, sql: str, reads: tuple[str, ...] = (), macros: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "resource_type": "model",
        "schema": schema,
        "name": name,
        "raw_code": sql,
        "columns": COLUMNS,
        "config": {"replaces": "all"} if name == "curve" else {},
        "depends_on": {"nodes": list(reads), "macros": list(macros)},
    }


def project(folder: Path, declared: dict[str, object] | None = None, **changes: str) -> Contracts:
    """Contracts of two marts, with the model, seed and macro that one of them reads; SQL by name in `changes`, and what
    `same_figures.yml` declares."""
    sql = {
        "daily": "select * from b",
        "book": "select 1 as joules",
        "curve": "select 2",
        "exact": "round(x)",
        **changes,
    }
    folder.mkdir(parents=True)
    (folder / "dbt_project.yml").write_text('vars: {method_version: "7"}\n')
    (folder / SAME_FIGURES).write_text(json.dumps(declared or {"formulas": "", "same_as": []}))
    (folder / FORMER_COLUMNS).write_text("- {tables: [daily], renamed: {energy: joules}, gone: {watts: the ledger}}\n")
    nodes = {
        "model.w.daily": node("marts", "daily", sql["daily"], ("model.w.book", "seed.w.rates")),
        "model.w.book": node("intermediate", "book", sql["book"], macros=("macro.w.exact", "macro.dbt.run_query")),
        "model.w.curve": node("marts", "curve", sql["curve"], ("model.w.daily", "seed.w.models")),
        "seed.w.rates": {"resource_type": "seed", "schema": "reference", "name": "rates"},
    }
    macros = {
        "macro.w.exact": {"macro_sql": "{{ adapter.dispatch('exact') }}", "depends_on": {"macros": []}},
        "macro.w.duckdb__exact": {"macro_sql": sql["exact"], "depends_on": {"macros": []}},
        "macro.dbt.run_query": {"macro_sql": "theirs", "depends_on": {"macros": []}},
    }
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({"metadata": {"project_name": "w"}, "nodes": nodes, "macros": macros}))
    return contracts_of(manifest, folder)


def test_contracts_hold_columns_seeds_and_the_methods_version(tmp_path: Path) -> None:
    found = project(tmp_path / "one")
    assert found.marts["daily"].columns == (("date", "date"), ("joules", "double"))
    assert (found.marts["daily"].replaces, found.marts["curve"].replaces) == ("dates", "all")
    # The curve is made anew by every run: what it alone reads makes no date old.
    assert (found.seeds, found.method_version) == ({"rates"}, "7")


@pytest.mark.parametrize(
    ("changes", "is_other"),
    [
        ({"book": "select 3 as joules"}, True),
        ({"daily": "select * from c"}, True),
        ({"exact": "floor(x)"}, True),
        ({"book": "select  1\n as joules -- a comment's words"}, False),
        ({"curve": "select 4"}, False),
    ],
)
def test_the_digest_of_formulas_follows_what_lasting_rows_are_computed_from(
    tmp_path: Path, changes: dict[str, str], is_other: bool
) -> None:
    assert (project(tmp_path / "one").formulas != project(tmp_path / "two", **changes).formulas) is is_other


def test_older_formulas_count_as_the_same_only_beside_those_they_were_compared_with(tmp_path: Path) -> None:
    formulas = project(tmp_path / "one").formulas
    declared: dict[str, object] = {"formulas": formulas, "same_as": ["old"]}
    assert project(tmp_path / "two", declared).same_formulas == {"old"}
    assert project(tmp_path / "three", declared, book="select 3 as joules").same_formulas == set()


def test_the_project_declares_todays_formulas() -> None:
    """After a change of SQL: which older formulas make the same rows has to be decided anew."""
    today = contracts_of(prepared_project().manifest_path, DBT_PROJECT).formulas
    declared = yaml.safe_load((DBT_PROJECT / SAME_FIGURES).read_text(encoding="utf-8"))["formulas"]
    assert declared == today, f"{SAME_FIGURES}: formulas is now {today}; {declared} joins same_as if no figure changed"


def test_comments_and_white_space_are_no_formula() -> None:
    assert bare("select '--x' as a, -- it's\n  b /* c */ {# d 'e #} from  t") == "select '--x' as a, b from t"


def test_the_projects_own_contracts_are_read() -> None:
    today = contracts_of(prepared_project().manifest_path, DBT_PROJECT)
    assert today.marts["energy_ledger"].columns[:2] == (("date", "date"), ("interval_start_at", "timestamptz"))
    assert (today.marts["model_monthly"].replaces, today.marts["slo_capacity"].replaces) == ("months", "all")
    assert {"cost_rates", "metric_catalog"} <= today.seeds
    assert "models" in today.seeds  # a size of a model is what its tokens weigh on a board that it shares
    assert "scenarios" not in today.seeds  # of tables alone which every run makes anew


def test_every_table_of_schema_marts_is_known_to_somebody() -> None:
    """A table that neither dbt nor Python makes is dropped: one that Python makes has to be in COMPUTED_MARTS."""
    keys = definitions_of(load_fleet(DEFAULT_FLEET)).resolve_asset_graph().get_all_asset_keys()
    marts = {key.path[1] for key in keys if key.path[0] == "marts"}
    assert dg.AssetKey(["marts", "fleet_daily"]) in keys
    assert marts - contracts_of(prepared_project().manifest_path, DBT_PROJECT).marts.keys() == COMPUTED_MARTS


def test_former_columns_are_of_their_tables(tmp_path: Path) -> None:
    marts = project(tmp_path / "one").marts
    assert (marts["daily"].formerly, marts["daily"].gone) == ({"joules": "energy"}, {"watts"})
    assert (marts["curve"].formerly, marts["curve"].gone) == ({}, set())


def test_every_former_column_is_documented_and_its_table_has_the_new_one() -> None:
    documented = (PROJECT / "docs" / "versions.md").read_text(encoding="utf-8")
    marts = contracts_of(prepared_project().manifest_path, DBT_PROJECT).marts
    renamed, gone = former_columns(DBT_PROJECT)
    for table, columns in renamed.items():
        today = {name for name, _ in marts[table].columns}
        for former, now in columns.items():
            assert f"`{table}`" in documented and f"`{former}` | `{now}`" in documented
            assert now in today and former not in today
    for table, columns in gone.items():
        assert not columns.keys() & {name for name, _ in marts[table].columns}
        assert all(f"`{former}`" in documented for former in columns)
