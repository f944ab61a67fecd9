"""What Dagster sees: the exact keys, the policies, and that a fresh checkout loads."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import dagster as dg
import pytest
import yaml

from pipelines.booking import invariants, project
from pipelines.booking.dbt_results import UNIQUE_ID
from pipelines.code_location import JOB, definitions_of
from pipelines.command_line.instance import CONFIGURATION
from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.places import DEFAULT_FLEET, PROJECT
from pipelines.spark import committed_marts
from pipelines.warehouse.partitions import POOL

RAW = {
    "raw/benchmark_results",
    "raw/bills",
    "raw/disk_use",
    "raw/grid_intensity",
    "raw/landings",
    "raw/model_prices",
    "raw/power_samples",
    "raw/requests",
    "raw/run_windows",
    "raw/series",
    "raw/series_chunks",
    "raw/token_samples",
    "raw/unfilled_dates",
    "raw/unknown_devices",
    "raw/unknown_families",
}
FLEET = {
    "fleet/assignments",
    "fleet/budgets",
    "fleet/commitment_offers",
    "fleet/commitments",
    "fleet/contract_prices",
    "fleet/cost_rates",
    "fleet/device_type_aliases",
    "fleet/device_types",
    "fleet/currency_rates",
    "fleet/devices",
    "fleet/energy_contracts",
    "fleet/engine_pods",
    "fleet/engine_targets",
    "fleet/tenant_labels",
    "fleet/engines",
    "fleet/node_aliases",
    "fleet/node_gpus",
    "fleet/model_aliases",
    "fleet/models",
    "fleet/nodes",
    "fleet/residual_mixes",
    "fleet/site_charges",
    "fleet/sites",
    "fleet/sources",
    "fleet/spot_rates",
    "fleet/tariffs",
    "fleet/teams",
}
OWN_TABLES = {
    "marts/budget_monthly",
    "marts/cost_forecast",
    "marts/efficiency_fit",
    "published/advice_given",
    "published/consolidation",
    "published/fleet_report",
    "published/measured_changes",
    "published/publication",
    "published/right_sizing",
    "published/sleep_after",
}
OWN_CHECKS = {
    "raw/landings:source_synthetic_answers",
    "raw/disk_use:retention_is_kept",
    "raw/bills:bills_are_sound",
    "raw/model_prices:price_lists_are_sound",
    "raw/run_windows:run_windows_are_sound",
    "fleet/cost_rates:gpu_price_lists_are_sound",
    "raw/series_chunks:series_are_healthy",
    "marts/fleet_daily:dates_use_todays_settings",
    "marts/model_daily:fleet_file_entries_match",
    "marts/model_daily:ratios_lie_between_zero_and_one",
    "raw/series:families_stay",
    "raw/series:no_series_is_refused",
    "raw/unknown_families:devices_of_unknown_families_are_booked",
    "raw/series_chunks:sources_speak",
    "raw/series_chunks:power_and_tokens_meet",
    "raw/power_samples:energy_counters_move",
    "raw/token_samples:clocks_agree",
    "marts/energy_ledger:power_has_a_model",
    "marts/token_ledger:tokens_have_power",
    "marts/energy_ledger:boards_of_a_node_speak",
    "marts/model_hourly:engines_are_whole",
    "marts/unmetered_devices:devices_have_power",
    "marts/efficiency_fit:every_part_is_made",
    "published/consolidation:every_part_is_made",
    "published/fleet_report:every_part_is_made",
    "published/publication:every_part_is_made",
    "published/right_sizing:every_part_is_made",
}


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    return definitions_of(load_fleet(DEFAULT_FLEET))


@pytest.fixture(scope="module")
def manifest() -> dict:
    return json.loads(project.prepared_project().manifest_path.read_text())


def dbt_keys(manifest: dict, kinds: tuple[str, ...]) -> set[str]:
    nodes = manifest["nodes"].values()
    return {
        f"{node['schema']}/{node['name']}"
        for node in nodes
        if node["resource_type"] in kinds and node["schema"] in ("marts", "reference")
    }


def test_the_assets_are_exactly_these_and_each_is_materialized(definitions: dg.Definitions, manifest: dict) -> None:
    graph = definitions.resolve_asset_graph()
    keys = {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert keys == RAW | FLEET | dbt_keys(manifest, ("model", "seed")) | OWN_TABLES
    assert [node.key.to_user_string() for node in graph.asset_nodes if not node.is_materializable] == []
    marts = {key for key in keys if key.startswith("marts/")}
    assert marts >= {
        "marts/benchmark_efficiency",
        "marts/deployment_usage",
        "marts/efficiency_curve",
        "marts/efficiency_curve_daily",
        "marts/energy_ledger",
        "marts/fleet_daily",
        "marts/focus_cost_and_usage",
        "marts/free_boards",
        "marts/goodput_hourly",
        "marts/idle_power",
        "marts/model_daily",
        "marts/model_footprints",
        "marts/model_hourly",
        "marts/model_intervals",
        "marts/model_list_prices",
        "marts/model_monthly",
        "marts/power_limits_daily",
        "marts/pressure_hourly",
        "marts/partial_load_cost",
        "marts/phase_energy",
        "marts/phase_fit",
        "marts/phase_pools_hourly",
        "marts/reconciliation_daily",
        "marts/recoverable_energy",
        "marts/run_windows",
        "marts/scrape_copies_daily",
        "marts/site_carbon_hourly",
        "marts/tenant_daily",
        "marts/tenant_usage_daily",
        "marts/token_ledger",
        "marts/unmetered_devices",
        "marts/unreadable_values",
    }
    assert {key.split("/")[0] for key in keys} == {"fleet", "marts", "published", "raw", "reference"}


def test_a_mart_depends_on_what_it_reads_through_its_steps_and_lists_them(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()

    def shown(mart: str) -> tuple[set[str], object]:
        node = graph.get(dg.AssetKey(["marts", mart]))
        return {key.to_user_string() for key in node.parent_keys}, node.metadata.get("steps")

    assert shown("benchmark_efficiency") == ({"raw/benchmark_results"}, "int_benchmark_results")
    assert shown("platform_partial_load") == (
        {
            "fleet/cost_rates",
            "fleet/device_types",
            "marts/platform_results",
            "reference/cost_rates",
            "reference/device_types",
            "reference/platform_assumptions",
            "reference/platform_prices",
            "reference/platforms",
        },
        "stg_device_types, int_cost_rates",
    )
    assert shown("site_scope2_hourly") == (
        {
            "fleet/energy_contracts",
            "fleet/residual_mixes",
            "fleet/sites",
            "fleet/tariffs",
            "marts/cost_drivers_hourly",
            "marts/energy_contracts_daily",
            "marts/site_carbon_hourly",
            "raw/grid_intensity",
            "reference/grid_factors",
            "reference/grid_zones",
        },
        "stg_run_dates, int_carbon_factors, int_site_intervals, int_site_hours, int_site_energy_hours,"
        " int_contract_hours",
    )
    # A mart that reads marts alone has no steps.
    assert shown("fleet_daily")[1] is not None
    assert shown("platform_comparison")[1] is None
    # Samples reach the book.
    assert {"raw/power_samples", "raw/token_samples", "raw/series"} <= shown("energy_ledger")[0]


def test_advice_depends_on_the_tables_that_its_models_read(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    parents = {
        table: {key.to_user_string() for key in graph.get(dg.AssetKey(table.split("/"))).parent_keys}
        for table in ("marts/cost_forecast", "published/consolidation", "published/right_sizing")
    }
    assert parents["marts/cost_forecast"] == {
        "fleet/budgets",
        "fleet/commitments",
        "fleet/cost_rates",
        "fleet/site_charges",
        "fleet/sites",
        "fleet/spot_rates",
        "fleet/tariffs",
        "marts/cost_daily",
        "marts/held_back_dates",
        "marts/model_daily",
        "marts/site_power_hourly",
        "marts/unmetered_devices",
        "marts/figure_intervals",
        "reference/cost_rates",
    }
    assert {"marts/deployment_usage", "marts/energy_ledger"} <= parents["published/consolidation"]
    assert {"marts/goodput_hourly", "published/consolidation"} <= parents["published/right_sizing"]


def test_a_mart_has_the_group_of_its_topic_an_owner_and_a_rank(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()

    def shown(*path: str) -> tuple[str | None, list[str], object]:
        node = graph.get(dg.AssetKey(list(path)))
        return node.group_name, list(node.owners), node.metadata.get("rank")

    assert shown("marts", "model_daily") == ("usage", ["team:operations"], "start here")
    assert shown("marts", "site_scope2_hourly") == ("carbon", ["team:sustainability"], "topic")
    assert shown("marts", "cost_reconciliation_monthly") == ("cost", ["team:finance"], "topic")
    assert shown("marts", "cost_forecast")[:2] == ("cost", ["team:finance"])
    assert shown("marts", "efficiency_fit")[:2] == ("efficiency", ["team:operations"])
    assert shown("reference", "device_types") == ("reference", ["team:operations"], None)


def test_every_dbt_data_test_is_a_check_beside_our_own(definitions: dg.Definitions, manifest: dict) -> None:
    checks = {
        f"{check.asset_key.to_user_string()}:{check.name}"
        for check in definitions.resolve_asset_graph().asset_check_keys
    }
    assert checks >= OWN_CHECKS
    rules = {invariant.name for invariant in invariants.invariants()}
    names = {check.partition(":")[2] for check in checks - OWN_CHECKS} - rules
    tests = {node["name"] for node in manifest["nodes"].values() if node["resource_type"] == "test"}
    assert names == tests


def test_every_invariant_is_a_check_of_its_mart_and_holds_something_back(
    definitions: dg.Definitions, manifest: dict
) -> None:
    rules = invariants.invariants()
    assert {(invariant.name, invariant.mart) for invariant in rules} == {
        ("accounts_add_up_to_energy", "energy_ledger"),
        ("dates_have_one_row_per_key", "held_back_dates"),
        ("days_add_up_to_months", "model_monthly"),
        ("every_metered_joule_is_booked_once", "reconciliation_daily"),
        ("hours_add_up_to_days", "fleet_daily"),
        ("idle_power_adds_up_to_the_ledger", "idle_power"),
        ("matched_intervals_are_whole", "energy_ledger"),
        ("phases_add_up_to_productive_energy", "phase_energy"),
        ("shares_add_up_to_the_meter", "energy_ledger"),
        ("tables_have_one_row_per_key", "held_back_tables"),
        ("tokens_are_booked_once", "token_reconciliation_daily"),
        ("tokens_are_where_their_energy_is", "token_ledger"),
    }
    parents = {
        name.rpartition(".")[2]
        for model in invariants.GATHERING
        for name in manifest["nodes"][f"model.wattledger.{model}"]["depends_on"]["nodes"]
    }
    named = {"int_failed_entities", "energy_ledger", "reconciliation_daily", "token_reconciliation_daily"}
    assert parents == {invariant.name for invariant in rules} | named


def test_every_mart_is_held_back_by_date_or_whole(manifest: dict) -> None:
    """The two lists of macros/held_back.sql are the marts by their own `replaces`, and each has a grain."""
    marts = {
        node["name"]: node["config"]
        for node in manifest["nodes"].values()
        if node["resource_type"] == "model" and node["schema"] == "marts"
    }
    text = (PROJECT / "dbt_project/macros/held_back.sql").read_text()
    listed = {
        name: set(re.findall(r"'(\w+)'", text.partition(f"macro {name}()")[2].partition("endmacro")[0]))
        for name in ("dated_marts", "undated_marts")
    }
    gates = {"held_back_dates", "held_back_tables"}
    dated = {name for name, config in marts.items() if config.get("replaces", "dates") == "dates"}
    assert listed["dated_marts"] == dated - gates
    assert listed["undated_marts"] == marts.keys() - dated - gates
    assert [name for name, config in marts.items() if not config["meta"].get("grain")] == []
    # A mart over several dates is made after dates are held back.
    children = {name for name in marts.keys() - dated - gates if not depends_on(manifest, name, "held_back_dates")}
    assert children == {"accelerator_prices", "benchmark_efficiency", "model_footprints", "scenario_results"}
    # And so is each step of it that reads a dated mart: a mart which waits may read a step that did not.
    models = {node["name"]: node for node in manifest["nodes"].values() if node["resource_type"] == "model"}
    before = {name for name in models if depends_on(manifest, "held_back_dates", name)}
    hasty = {
        name
        for name in models.keys() - before - dated - gates
        if dated & {key.rpartition(".")[2] for key in models[name]["depends_on"]["nodes"]}
        and not depends_on(manifest, name, "held_back_dates")
        and any(depends_on(manifest, mart, name) for mart in marts.keys() - dated - gates)
    }
    assert hasty == {"model_footprints"}  # the names of models alone


def test_spark_replaces_what_the_marts_do(manifest: dict) -> None:
    """The lists of committed_marts are the marts by their own `replaces`."""
    marts = {
        node["name"]: node["config"].get("replaces", "dates")
        for node in manifest["nodes"].values()
        if node["resource_type"] == "model" and node["schema"] == "marts"
    }
    of = {kind: {name for name, replaced in marts.items() if replaced == kind} for kind in set(marts.values())}
    months = dict.fromkeys(of["months"], "month")
    billing = dict.fromkeys(of["billing_months"] | of["billing_months_of_lookback"], "billing_month")
    assert months | billing == committed_marts.MONTHLY
    assert of["billing_months_of_lookback"] == committed_marts.OF_LOOKBACK
    assert of["windows"] == committed_marts.COPIED
    assert of["all"] == committed_marts.REMADE


def depends_on(manifest: dict, model: str, other: str) -> bool:
    """Whether a model is computed from another, directly or through other models."""
    waiting, seen = [f"model.wattledger.{model}"], set()
    while waiting:
        for parent in manifest["nodes"].get(waiting.pop(), {}).get("depends_on", {}).get("nodes", []):
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return f"model.wattledger.{other}" in seen


def test_the_jobs_and_schedules_are_exactly_these(definitions: dg.Definitions) -> None:
    repository = definitions.get_repository_def()
    assert {job.name for job in repository.get_all_jobs()} == {JOB, "__ASSET_JOB"}
    assert {schedule.name: schedule.cron_schedule for schedule in repository.schedule_defs} == {
        "daily_ledger_schedule": "15 1 * * *"
    }
    assert repository.sensor_defs == []


def test_the_partitions_are_the_utc_days_of_the_fleets_period(definitions: dg.Definitions) -> None:
    keys = definitions.resolve_job_def(JOB).partitions_def.get_partition_keys()
    assert (keys[0], keys[-1], len(keys)) == ("2026-10-01", "2026-10-28", 28)


def test_everything_that_writes_is_in_the_pool_that_admits_one(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    pools = {node.key.to_user_string(): node.pools for node in graph.asset_nodes if node.is_materializable}
    assert {key for key, found in pools.items() if found != {POOL}} == set()
    configuration = yaml.safe_load(CONFIGURATION.read_text())
    assert configuration["concurrency"]["pools"] == {"default_limit": 1, "granularity": "run"}


def test_partitioned_assets_are_backfilled_in_one_run(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    policies = {
        node.key.to_user_string(): node.backfill_policy
        for node in graph.asset_nodes
        if node.partitions_def is not None and node.is_materializable
    }
    assert set(policies.values()) == {dg.BackfillPolicy.single_run()}
    assert {"raw/power_samples", "marts/model_daily"} <= policies.keys()
    unpartitioned = {node.key.to_user_string() for node in graph.asset_nodes if node.partitions_def is None}
    assert {"fleet/sources", "reference/metric_catalog", "published/publication"} <= unpartitioned


def test_the_publication_waits_for_every_mart(definitions: dg.Definitions, manifest: dict) -> None:
    graph = definitions.resolve_asset_graph()
    parents = {key.to_user_string() for key in graph.get(dg.AssetKey(["published", "publication"])).parent_keys}
    marts = {key for key in dbt_keys(manifest, ("model",)) if key.startswith("marts/")}
    assert parents == marts | OWN_TABLES - {"published/publication", "published/fleet_report"}
    blocking = {
        f"{key.asset_key.to_user_string()}:{key.name}"
        for key in graph.asset_check_keys
        if graph.get_check_spec(key).blocking
    }
    assert blocking == set()  # what breaks an invariant is held back, date by date, before anything is published


def test_what_a_run_has_left_is_measured_after_everything_else(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    (last,) = (key for key in graph.get_all_asset_keys() if key.path == ["raw", "disk_use"])
    before = dg.AssetSelection.assets(last).upstream(include_self=False).resolve(graph)
    assert before == graph.get_all_asset_keys() - {last}
    # Each of these costs a run a transaction.
    assert {"/".join(key.path) for key in graph.get(last).parent_keys} == {
        "fleet/commitment_offers",
        "fleet/currency_rates",
        "published/fleet_report",
        "raw/unknown_devices",
        "raw/unknown_families",
    }


@pytest.mark.parametrize(
    ("name", "keys"), [("postgresql", {"dsn_env": "WATTLEDGER_POSTGRESQL"}), ("object_store", {"url": "store/"})]
)
def test_a_fleet_with_a_target_publishes_there_after_the_snapshot(
    definitions: dg.Definitions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, keys: dict[str, str]
) -> None:
    monkeypatch.setenv("WATTLEDGER_POSTGRESQL", "postgresql://127.0.0.1:1/absent")
    contents = yaml.safe_load(DEFAULT_FLEET.read_text(encoding="utf-8"))
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(contents | {"publication": {name: keys}}))
    graph = definitions_of(load_fleet(path)).resolve_asset_graph()
    added = set(graph.get_all_asset_keys()) - set(definitions.resolve_asset_graph().get_all_asset_keys())
    assert [key.to_user_string() for key in added] == [f"published/{name}"]
    (node,) = [graph.get(key) for key in added]
    assert {key.to_user_string() for key in node.parent_keys} == {"published/publication"}
    assert node.pools == {POOL}
    assert node.description


def test_only_a_fleet_without_an_end_is_kept_fresh(definitions: dg.Definitions, tmp_path: Path) -> None:
    open_file = tmp_path / "open.yaml"
    open_file.write_text(
        "fleet: open\nsynthetic: true\nperiod: {start: 2026-10-01}\n"
        "sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]\n"
    )
    fresh = {
        node.key.path[0]
        for node in definitions_of(load_fleet(open_file)).resolve_asset_graph().asset_nodes
        if node.freshness_policy_or_from_metadata is not None
    }
    assert fresh == {"marts", "published"}
    assert [n.key for n in definitions.resolve_asset_graph().asset_nodes if n.freshness_policy_or_from_metadata] == []


def test_every_asset_has_a_description(definitions: dg.Definitions) -> None:
    nodes = definitions.resolve_asset_graph().asset_nodes
    assert [node.key.to_user_string() for node in nodes if not node.description] == []


def test_every_check_has_a_description_and_a_dbt_test_what_it_expects(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    checks = {key: graph.get_check_spec(key) for key in graph.asset_check_keys}
    assert len(checks) > 50
    short = {key.name: spec.description for key, spec in checks.items() if len((spec.description or "").split()) <= 5}
    assert short == {}
    dbt = {key.name: spec.metadata.get("expected") for key, spec in checks.items() if UNIQUE_ID in spec.metadata}
    assert len(dbt) > 20
    assert [name for name, expected in dbt.items() if not expected] == ["words_of_the_book_are_known"]
    assert [key.name for key, spec in checks.items() if not spec.metadata.get("remedy")] == []


@pytest.mark.parametrize("period", ["{start: 2026-10-01}", "{start: 2026-10-01, end: 2026-10-02}"])
def test_the_definitions_load_without_a_warning(tmp_path: Path, period: str) -> None:
    """No part of Dagster that is deprecated, or may change in the next release."""
    path = tmp_path / "fleet.yaml"
    path.write_text(
        f"fleet: small\nsynthetic: true\nperiod: {period}\n"
        "sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]\n"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        definitions_of(load_fleet(path)).get_repository_def().load_all_definitions()
    assert [str(one.message) for one in caught] == []


@pytest.mark.long
@pytest.mark.slow
def test_a_fresh_checkout_loads_by_dagster_and_by_dg(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    generated = shutil.ignore_patterns("target", "logs", "__pycache__", ".user.yml")
    for folder in ("collectors", "pipelines", "dbt_project", "fleets"):
        shutil.copytree(PROJECT / folder, checkout / folder, ignore=generated)
    for name in ("pyproject.toml", "workspace.yaml"):
        shutil.copy(PROJECT / name, checkout / name)
    home = tmp_path / "home"
    home.mkdir()
    programs = Path(sys.executable).parent
    environ = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("WATTLEDGER_", "DAGSTER_", "DBT_"))},
        "DAGSTER_HOME": str(home),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    shutil.copy(CONFIGURATION, home / "dagster.yaml")
    advice = "Function `definitions_validate_command` is superseded"  # Dagster's, of its own command
    for command in (["dagster", "definitions", "validate", "-w", "workspace.yaml"], ["dg", "check", "defs"]):
        done = subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
        lines = (done.stdout + done.stderr).splitlines()
        assert [line for line in lines if "warning" in line.lower() and advice not in line] == []
    assert (checkout / "dbt_project" / "target" / "manifest.json").exists()
