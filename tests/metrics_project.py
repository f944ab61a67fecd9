"""MetricFlow asked on a publication: its views built by dbt, its own engine, all questions in one process.

Add here how it is asked. Keep out what it should answer. As a program (`python -m tests.metrics_project FOLDER`) it
reads a JSON list of questions and prints a JSON list of answers: dbt and MetricFlow keep one adapter per process, which
is not to be the one that other tests book with. No module here is called `metricflow`: dbt imports that package.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.fleet.places import PROJECT
from tests import optional

Question = Mapping[str, Any]  # keys of MetricFlowQueryRequest.create
PROGRAMS = Path(sys.executable).parent


def project_of(publication: Path, folder: Path) -> tuple[Path, dict[str, str]]:
    """A copy of the project with its views over a published file, as `make metrics` makes them; and its environment."""
    project = folder / "metricflow"
    shutil.copytree(PROJECT / "bi/metricflow", project, ignore=shutil.ignore_patterns("target", "logs", "*.duckdb"))
    environment = {**os.environ, "WATTLEDGER_PUBLICATION": str(publication), "DBT_PROFILES_DIR": str(project)}
    done = subprocess.run(
        [PROGRAMS / "dbt", "build"], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return project, environment


def answers(publication: Path, questions: Sequence[Question], folder: Path) -> list[dict[tuple, tuple]]:
    """For each question what it is grouped by -> the metrics, in the order that the question names them."""
    optional.required("metricflow")
    project, environment = project_of(publication, folder)
    done = subprocess.run(
        [sys.executable, "-m", "tests.metrics_project", project],
        input=json.dumps(questions),
        cwd=project,
        env={**environment, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [
        {tuple(group): tuple(values) for group, values in answer} for answer in json.loads(done.stdout.splitlines()[-1])
    ]


def command(publication: Path, words: Sequence[str], folder: Path) -> list[str]:
    """The lines that a MetricFlow command prints, as a user types it in the project's folder."""
    optional.required("metricflow")
    project, environment = project_of(publication, folder)
    done = subprocess.run(
        [PROGRAMS / words[0], *words[1:]], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def _ask(project: Path) -> None:
    from dbt_metricflow.cli.cli_configuration import CLIConfiguration  # noqa: PLC0415
    from metricflow.engine.metricflow_engine import MetricFlowQueryRequest  # noqa: PLC0415

    configuration = CLIConfiguration()
    configuration.setup(project, project, configure_file_logging=False)
    found = []
    for question in json.load(sys.stdin):
        table = configuration.mf.query(MetricFlowQueryRequest.create(**question)).result_df
        rows = [dict(zip(table.column_names, row, strict=True)) for row in table.rows]
        found.append(
            [
                [
                    [str(row[name]) if row[name] is not None else None for name in question.get("group_by_names", [])],
                    [float(row[name]) if row[name] is not None else None for name in question["metric_names"]],
                ]
                for row in rows
            ]
        )
    print(json.dumps(found))


if __name__ == "__main__":
    _ask(Path(sys.argv[1]))
