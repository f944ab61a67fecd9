"""The topics of the dbt project: what a model is by its name, and that topics read only topics before them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelines.advice import consolidation_table, cost_forecasts, efficiency_fits, right_sizing_table, sleep_table
from pipelines.booking.project import prepared_project
from pipelines.fleet.places import PROJECT
from tests.models import MODELS, finance, marts

# In the order in which a joule and a token pass through them; a topic reads topics before it.
TOPICS = (
    "staging",
    "tokens",
    "meters",
    "claims",
    "attribution",
    "carbon/factors",
    "prices",
    "carbon/market",
    "balance",
    "doubts/hours",
    "usage",
    "carbon/footprints",
    "efficiency",
    "phases",
    "benchmarks",
    "cost",
    "doubts/listed",
    "receipts",
    "focus",
    "uncertainty",
    "advice",
    "finance",
    "finance/changes",
    "platforms",
)
# What a table of several dates asks of the balance: which dates count. Every topic may read them.
GATE = {"held_back_dates", "int_lookback", "int_lookback_dates"}
# What the topic of platforms reads of other topics: its declared door. Its README has the reason of each.
PLATFORMS = "platforms"
DOOR = {"load_test_phases", "model_footprints", "int_benchmark_results", "int_cost_rates", "stg_device_types"}
# What asks the same of every table, and so of those of platforms: one row per key, and only known words.
OF_ALL_TABLES = {"tables_have_one_row_per_key", "words_of_the_book_are_known"}
PLACES = ("steps", "inputs")  # folders of a topic for what readers do not see
MOST_FILES = 25
# Steps whose file has a config of its own: read once on DuckDB, so a view costs nothing.
OWN = {
    "int_advised_deployments": "ephemeral",
    "int_advised_intervals": "table",
    "int_bucket_readings": "view",
    "int_claimed_energy": "view",
    "int_costed_energy": "view",
    "int_due_adjustments": "view",
    "int_due_chargeback_adjustments": "view",
    "int_energy_readings": "view",
    "int_energy_segments": "view",
    "int_engine_steps": "view",
    "int_handover_segments": "view",
    "int_label_names": "view",
    "int_metered_cross_checks": "view",
    "int_metered_troubled_days": "view",
    "int_requests": "view",
    "int_scenario_inputs": "view",
    "int_scenario_terms": "view",
    "int_scenario_waits": "view",
    "int_stated_claims": "view",
    "int_tenant_readings": "view",
    "int_token_readings": "view",
    "stg_host_names": "view",
    "stg_raw_series": "view",
    "stg_repeated_boards": "view",
    "stg_series_chunks": "view",
    "stg_token_samples": "view",
}


@pytest.fixture(scope="module")
def models() -> Mapping[str, Mapping[str, Any]]:
    """Name -> the model as dbt parsed it."""
    parsed = json.loads(prepared_project().manifest_path.read_text(encoding="utf-8"))
    return {node["name"]: node for node in parsed["nodes"].values() if node["resource_type"] == "model"}


def folder_of(node: Mapping[str, Any]) -> Path:
    """The model's folder below `models`."""
    return Path(node["original_file_path"]).relative_to("models").parent


def topic_of(node: Mapping[str, Any]) -> str:
    """The topic that a model belongs to."""
    folder = folder_of(node)
    return folder.parent.as_posix() if folder.name in (*PLACES, "invariants") else folder.as_posix()


def made_as(node: Mapping[str, Any]) -> tuple[str, str, bool]:
    """Schema, materialisation, and whether dbt enforces its contract."""
    return node["schema"], node["config"]["materialized"], node["config"]["contract"]["enforced"]


def test_what_a_model_is_follows_from_its_name(models: Mapping[str, Mapping[str, Any]]) -> None:
    """dbt is silent when a moved file loses its schema, its table or its contract."""
    names = {path.stem for path in marts()}
    finance_names = {path.stem for path in finance()}
    assert (len(names), len(finance_names)) == (70, 14)
    for name, node in models.items():
        if name.startswith("stg_"):
            expected = ("staging", OWN.get(name, "table"), False)
        elif name.startswith("int_"):
            expected = ("intermediate", OWN.get(name, "view" if folder_of(node).name == "inputs" else "table"), False)
        elif folder_of(node).name == "invariants":
            expected = ("invariants", "ephemeral", False)
        elif name in finance_names:
            expected = ("finance", "view", True)
        else:
            assert name in names
            expected = ("marts", "incremental", True)
        assert (name, made_as(node)) == (name, expected)


def test_a_model_is_where_its_name_puts_it(models: Mapping[str, Mapping[str, Any]]) -> None:
    """Steps are in a topic's `steps`, what advice reads in `inputs`, marts in the topic itself."""
    for name, node in models.items():
        place = folder_of(node).name
        is_step = name.startswith("int_")
        assert (name, place in PLACES) == (name, is_step)
        assert (name, place == "inputs") == (name, name.startswith("int_advised_"))


def test_a_topic_reads_only_topics_before_it(models: Mapping[str, Mapping[str, Any]]) -> None:
    assert {topic_of(node) for node in models.values()} == set(TOPICS)
    back = []
    for name, node in models.items():
        # Invariants are of all that they read, and what they hold back is read by all that adds up dates.
        if folder_of(node).name == "invariants" or name in GATE:
            continue
        read = [unique_id.split(".")[-1] for unique_id in node["depends_on"]["nodes"] if unique_id.startswith("model.")]
        back += [
            f"{topic_of(node)}/{name} reads {topic_of(models[one])}/{one}"
            for one in read
            if one not in GATE
            and folder_of(models[one]).name != "invariants"
            and TOPICS.index(topic_of(models[one])) > TOPICS.index(topic_of(node))
        ]
    assert back == []


def test_platforms_are_behind_a_door(models: Mapping[str, Mapping[str, Any]]) -> None:
    """They read of other topics what the door names, and nothing that books a date or gives advice reads them."""
    parsed = json.loads(prepared_project().manifest_path.read_text(encoding="utf-8"))
    own = {name for name, node in models.items() if topic_of(node) == PLATFORMS}
    reads = {
        node["name"]: {unique_id.split(".")[-1] for unique_id in node["depends_on"].get("nodes", ())}
        for node in parsed["nodes"].values()
    }
    through = {one for name in own for one in reads[name] if one in models} - own
    assert through == DOOR
    assert {name for name, read in reads.items() if read & own and name not in own} == OF_ALL_TABLES
    page = (MODELS / PLATFORMS / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([\w.]+)`", page)) == DOOR


def test_platforms_are_made_from_rows_alone(models: Mapping[str, Mapping[str, Any]]) -> None:
    """They are made again only if a row or their SQL changed, so nothing else may make a difference: no clock, no part
    of a table, no model that cannot be queried."""
    seldom = {name: node for name, node in models.items() if node["config"].get("made") == "if_inputs_changed"}
    assert seldom.keys() == {name for name, node in models.items() if topic_of(node) == PLATFORMS}
    # A step has no rows that a run would keep: it is made by each.
    marts = [node for node in seldom.values() if node["schema"] == "marts"]
    assert {node["config"]["replaces"] for node in marts} == {"all"}
    read = {unique_id.split(".")[-1] for node in seldom.values() for unique_id in node["depends_on"]["nodes"]}
    assert {models[name]["config"]["materialized"] for name in read & models.keys()} <= {"table", "incremental", "view"}
    clocks = re.compile(r"\b(now|today|random|uuid|current_\w+)\b(?!_)|env_var")
    assert {name: found[0] for name, node in seldom.items() if (found := clocks.search(node["raw_code"]))} == {}


def test_a_folder_of_models_is_read_at_a_glance() -> None:
    folders = [MODELS, *(path for path in MODELS.rglob("*") if path.is_dir())]
    found = {folder: sum(path.is_file() for path in folder.iterdir()) for folder in folders}
    assert {str(folder): files for folder, files in found.items() if files > MOST_FILES} == {}


def test_each_mart_has_a_rank_and_its_topic(models: Mapping[str, Mapping[str, Any]]) -> None:
    """The comment of a table ends with them; those to start with are few, and the page of tables lists them."""
    comments = {
        {"marts": "", "finance": "finance."}[node["schema"]] + name: node["description"]
        for name, node in models.items()
        if node["schema"] in ("marts", "finance")
    }
    comments |= {
        "published.right_sizing": right_sizing_table.TABLE_COMMENT,
        "published.consolidation": consolidation_table.TABLE_COMMENT,
        "published.sleep_after": sleep_table.TABLE_COMMENT,
        "budget_monthly": cost_forecasts.BUDGET_COMMENT,
        "cost_forecast": cost_forecasts.FORECAST_COMMENT,
        "efficiency_fit": efficiency_fits.TABLE_COMMENT,
    }
    placed = {name: re.search(r" \[(start here|topic|evidence): (\w+)\]\s*$", text) for name, text in comments.items()}
    assert [name for name, found in placed.items() if found is None] == []
    of_topic = {name: found[2] for name, found in placed.items() if found and name in models}
    assert of_topic == {name: topic_of(models[name]).partition("/")[0] for name in of_topic}
    page = (PROJECT / "docs/tables.md").read_text(encoding="utf-8")
    listed = page.partition("To start with:")[2].partition("\n\n")[0]
    first = {name for name, found in placed.items() if found and found[1] == "start here"}
    assert set(re.findall(r"`([\w.]+)`", listed)) == first
    assert len([name for name in first if not name.startswith("finance.")]) == 6
    assert {name for name in placed if name.startswith("finance.")} <= first


@pytest.mark.parametrize("topic", TOPICS)
def test_each_topic_names_what_belongs_in_it(topic: str) -> None:
    page = (MODELS / topic / "README.md").read_text(encoding="utf-8")
    assert 2 <= page.count(". ") + page.count(".\n") <= 5


def test_no_view_on_spark_reads_a_table_that_is_temporary_there(models: Mapping[str, Mapping[str, Any]]) -> None:
    """Spark refuses it, and only `make test-spark` would see it. Advice and finance are models of DuckDB alone."""
    on_spark = {name: node for name, node in models.items() if not {"advice", "finance"} & set(node["tags"])}
    found = {
        name
        for name, node in on_spark.items()
        if node["config"]["materialized"] == "view"
        and any(read.startswith("source.") for read in node["depends_on"]["nodes"])
        and "'view' if target.type == 'duckdb' else '" not in node["raw_code"]
    }
    assert found == set()
