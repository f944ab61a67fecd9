"""dbt's exposures name the tables that the readers of this repository really query."""

from __future__ import annotations

import json
import re

from pipelines.booking import project
from pipelines.fleet.places import PROJECT
from pipelines.publishing.dashboards import charts, grafana
from pipelines.publishing.workbook.questions import QUESTIONS

PIPELINES = PROJECT / "pipelines"
METRICS = PROJECT / "bi/metricflow/models"
SOURCE = re.compile(r"source\('marts', '(\w+)'\)")


def named_in(*patterns: str) -> set[str]:
    """The marts that queries in these files of `pipelines` name."""
    files = [path for pattern in patterns for path in PIPELINES.glob(pattern) if path.suffix in (".py", ".sql")]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    return set(re.findall(r"\b(?:finance|marts)\.(\w+)", text))


def test_each_reader_depends_on_the_marts_that_its_queries_name() -> None:
    manifest = json.loads(project.prepared_project().manifest_path.read_text())
    dbt_marts = {node["name"] for node in manifest["nodes"].values() if node["resource_type"] == "model"}
    exposures = {one["name"]: one for one in manifest["exposures"].values()}
    assert {
        name: sorted(node.rpartition(".")[2] for node in one["depends_on"]["nodes"]) for name, one in exposures.items()
    } == {
        name: sorted(tables & dbt_marts)
        for name, tables in {
            "printed_page": named_in("command_line/*headline.py", "named_figures/unplaced_hosts.py"),
            "fleet_report": named_in("report/**/*"),
            "workbook": {table for one in QUESTIONS for table in re.findall(r"\b(?:finance|marts)\.(\w+)", one.query)},
            "focus_files": {"focus_corrections", "focus_cost_and_usage"},
            "metrics": {name for path in METRICS.glob("*.sql") for name in SOURCE.findall(path.read_text("utf-8"))},
            "history_guard": named_in("publishing/history.py"),
            "superset_dashboards": set(charts.datasets()),
            "grafana_dashboards": {
                table for table in re.findall(r"\b(?:finance|marts)\.(\w+)", json.dumps(grafana.boards()))
            },
        }.items()
    }
    assert all(one["owner"]["name"] and one["description"] for one in exposures.values())


def test_the_tables_that_a_sheet_names_are_those_of_its_query() -> None:
    for question in QUESTIONS:
        queried = re.findall(r"\b(?:finance|marts|published)\.\w+", question.query)
        assert sorted(set(queried)) == sorted(question.tables.split(", ")), question.sheet
