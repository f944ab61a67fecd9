"""The seeds: every row is used."""

from __future__ import annotations

import csv
import re

import pytest

from pipelines.fleet.catalog import SEEDS
from pipelines.fleet.places import PROJECT

CODE = [
    re.sub(r"--[^\n]*|{#.*?#}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for folder in ("models", "macros", "tests")
    for path in (PROJECT / "dbt_project" / folder).rglob("*.sql")
]
WORDS = set(re.findall(r"\w+", "\n".join(CODE)))


@pytest.mark.parametrize(
    ("seed", "column"),
    [
        ("metric_catalog", "stream"),
        ("metric_catalog", "quantity"),
        ("metric_catalog", "kind"),
        ("metric_catalog", "token_class"),
        ("metric_catalog", "level"),
        ("metric_catalog", "meter_scope"),
        ("label_catalog", "attribute"),
        ("meter_errors", "meter_scope"),
    ],
)
def test_what_a_row_is_of_is_read_by_some_model(seed: str, column: str) -> None:
    """A family that no model reads would be fetched, landed and kept for nothing."""
    assert {row[column] for row in rows(seed)} - {""} - WORDS == set()


def test_every_energy_counter_ranks_before_every_power_gauge() -> None:
    """The lowest rank books a meter, over counters and gauges alike (seeds/README.md)."""
    ranks = {(row["quantity"], int(row["rank"])) for row in rows("metric_catalog") if row["stream"] == "power"}
    assert max(rank for quantity, rank in ranks if quantity == "energy") < 50
    assert min(rank for quantity, rank in ranks if quantity == "power") >= 50


@pytest.mark.parametrize("seed", ["label_catalog", "exporter_labels", "exporter_containers"])
def test_labels_are_of_exporters_whose_metrics_are_read(seed: str) -> None:
    known = {row["source_kind"] for row in rows("metric_catalog")}
    assert {row["source_kind"] for row in rows(seed)} - known - {"any"} == set()


@pytest.mark.parametrize("seed", ["device_type_aliases", "cost_rates"])
def test_device_types_are_known(seed: str) -> None:
    assert {row["device_type"] for row in rows(seed)} - {row["device_type"] for row in rows("device_types")} == set()


@pytest.mark.parametrize("seed", sorted(path.stem for path in SEEDS.glob("*.csv")))
def test_every_column_is_read_or_says_where_its_row_is_from(seed: str) -> None:
    assert rows(seed)[0].keys() - WORDS - {"reference", "source", "as_of", "unit", "vendor", "basis"} == set()


def rows(seed: str) -> list[dict[str, str]]:
    with (SEEDS / f"{seed}.csv").open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
