"""The whole command, in copies of the project of which a part is broken: what it spoils, and what it reports."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import duckdb
import openpyxl
import pytest

from pipelines.fleet.places import PROJECT
from tests.books import arguments, environment
from tests.models import model
from tests.planted import DAY, ENERGY, OUTPUT, WATTS, board, plant, pod, rising, steady, vllm

NEXT = DAY + timedelta(days=1)
# The board's gauge reads 8 % more than its counter.
SOUND = [
    (ENERGY, board("GPU-a", "n1", **pod("a")), rising(300_000)),
    (WATTS, board("GPU-a", "n1", **pod("a")), steady(324)),
    (OUTPUT, vllm("a", "chat"), rising(10)),
]


def copied_project(folder: Path, *changes: tuple[str, str, str]) -> Path:
    """A copy of the project in which, file by file, `right` became `wrong`."""
    project = folder / "project"
    for name in ("collectors", "pipelines", "dbt_project"):
        shutil.copytree(PROJECT / name, project / name, ignore=shutil.ignore_patterns("target", "logs", "__pycache__"))
    shutil.copyfile(PROJECT / "pyproject.toml", project / "pyproject.toml")
    for file, right, wrong in changes:
        text = (project / file).read_text(encoding="utf-8")
        assert text.count(right) == 1, (file, right)
        (project / file).write_text(text.replace(right, wrong), encoding="utf-8")
    return project


def run(project: Path, fleet: Path, data: Path, *options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments(fleet, *options),
        env=environment(data, PYTHONPATH=os.fspath(project)),
        cwd=project,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


STAGING = "dbt_project/models/staging/stg_series.sql"
CONTAINER = "        described.container,\n"
# A figure, a sheet, a printed table and a data test that DuckDB refuses once a row reaches them; and a model that takes
# the name of a container for a number.
BROKEN = (
    ("pipelines/report/sql/alarms.sql", "{} measured {:,.1f} % {} than", "{} measured {:+,.1f} % {} than"),
    (
        "pipelines/publishing/workbook/detail_questions.py",
        "            sum(rejected_samples)\n",
        "            sum(case when error('no such meter') is null then 1 end)\n",
    ),
    (
        "pipelines/command_line/model_headline.py",
        "select null, null, null, null, sum(facility_energy_kwh)",
        "select error('no total'), null, null, null, sum(facility_energy_kwh)",
    ),
    (
        "dbt_project/tests/seconds_fit_into_the_interval.sql",
        "having sum(covered_seconds)",
        "having cast(max(meter) as integer) > 0 or sum(covered_seconds)",
    ),
    (
        STAGING,
        CONTAINER,
        "        cast(cast(nullif(described.container, 'engine') as integer) as varchar) as container,\n",
    ),
)


@pytest.mark.long
def test_what_is_broken_is_a_line_and_everything_else_is_published(tmp_path: Path) -> None:
    book = plant(tmp_path, [*SOUND, (OUTPUT, vllm("odd", "odd", container="tp0"), rising(5))], days=2)
    book.start_empty()
    fleet, published = book.fleet.path, book.fleet.published
    project = copied_project(tmp_path, *BROKEN)
    done = run(project, fleet, tmp_path / "data", "--end", NEXT)

    assert done.returncode == 1, done.stdout + done.stderr
    figure = (
        "figure Alarms (query pipelines/report/sql/alarms.sql) could not be made: InvalidInputException: Invalid Input"
        " Error: missing '}' in format string"
    )
    sheet = (
        "sheet Meters of the workbook (query in pipelines/publishing/workbook) could not be made:"
        " InvalidInputException: Invalid Input Error: no such meter"
    )
    table = "The table of models could not be made: InvalidInputException: Invalid Input Error: no total"
    expected = [
        f"  FAILED published/fleet_report every_part_is_made: 1 row\n    {figure}\n",
        f"  FAILED published/publication every_part_is_made: 1 row\n    {sheet}\n",
        f"\n{table}\n",
        "  warned raw/series no_series_is_refused: 1 row\n    source cluster, metric vllm:generation_tokens_total,",
        ", label container, value tp0, model stg_series\n",
    ]
    assert [line for line in expected if line not in done.stdout] == [], done.stdout
    test = "FAILED marts/energy_ledger seconds_fit_into_the_interval: Runtime Error in test"
    assert re.search(f"{test}.*\n.*Could not convert string 'GPU-a' to INT32", done.stdout), done.stdout
    # Published all the same: 10 tokens a second of a day, and the board's 300 W.
    assert read(published) == [("chat", 864_000, 25_920_000)]
    page = html.unescape((published / "report.html").read_text(encoding="utf-8"))
    assert f"The {figure}" in page
    assert page.count("could not be made") == 1
    sheets = openpyxl.load_workbook(published / "wattledger.xlsx", data_only=True)
    assert sheets["Meters"]["A2"].value == f"The {sheet}"
    assert [row[0] for row in sheets["Models"].iter_rows(min_row=5, values_only=True)] == ["chat"]

    # What no build can make keeps what is published, and the message shows how to see it.
    (project / STAGING).write_text(
        (PROJECT / STAGING)
        .read_text(encoding="utf-8")
        .replace(CONTAINER, "        cast(cast('priceless' as integer) as varchar) as container,\n"),
        encoding="utf-8",
    )
    done = run(project, fleet, tmp_path / "data", "--start", NEXT)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "step ledger failed: dbt could not build stg_series: " in done.stderr
    assert "Could not convert string 'priceless' to INT32" in done.stderr
    assert (
        "What was published before stays. To see it fail alone: env"
        f" WATTLEDGER_WAREHOUSE={book.fleet.warehouse} .venv/bin/dbt build --project-dir dbt_project --profiles-dir"
        " dbt_project --select stg_series --vars '{"
    ) in done.stderr
    assert read(published) == [("chat", 864_000, 25_920_000)]

    # A board that does not balance is named, and its day is published with a mark: it is booked without five minutes.
    shutil.copyfile(PROJECT / STAGING, project / STAGING)
    intervals = project / "dbt_project" / model("int_energy_intervals")
    right, noon = intervals.read_text(encoding="utf-8"), f"epoch_us(timestamptz '{DAY} 12:00:00+00')"
    assert right.count("select * from final") == 1
    dropped = f"select * from final where not (interval_start_us = {noon} and meter = 'GPU-a')"
    intervals.write_text(right.replace("select * from final", dropped), encoding="utf-8")
    done = run(project, fleet, tmp_path / "data", "--rebuild", "--start", DAY, "--end", NEXT)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED marts/reconciliation_daily every_metered_joule_is_booked_once" in done.stdout, done.stdout
    # `odd` can be read again.
    assert read(published) == [("chat", 864_000, 25_830_000), ("odd", 432_000, None)]
    with closing(duckdb.connect(str(published / "wattledger.duckdb"), read_only=True)) as connection:
        (marked,) = connection.execute(
            "select doubt_reasons from marts.model_daily where model = 'chat' order by date"
        ).fetchall()[:1]
    assert "unbalanced_joules" in marked[0]


def read(published: Path) -> list[tuple]:
    """Model, output tokens and joules of what is published."""
    query = "select model, sum(output_tokens)::bigint, sum(energy_joules)::bigint from marts.model_daily group by model"
    with closing(duckdb.connect(str(published / "wattledger.duckdb"), read_only=True)) as connection:
        return connection.execute(f"{query} order by 1").fetchall()
