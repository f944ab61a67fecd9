"""SQL that is kept of an earlier run is what dbt renders."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.booking import dbt_run
from pipelines.booking.project import prepared_project
from pipelines.booking.rendered_sql import RenderedSql, copied
from pipelines.fleet.places import DBT_PROJECT
from tests.books import PARSED, empty_warehouse

# 200 draws, of which `make test` makes two.
SAMPLE, OTHERS = range(2), [range(first, first + 22) for first in range(2, 200, 22)]
MODELS_OF_A_DRAW = 10


class Projects:
    """The project twice: with what is kept, and with nothing but dbt."""

    def __init__(self, folder: Path) -> None:
        self.warehouse, self.target = folder / "warehouse.duckdb", folder / "target"
        shutil.copyfile(empty_warehouse(), self.warehouse)
        self.kept, self.dbts = folder / "kept", folder / "dbts"
        self.dbts.mkdir()
        shutil.copyfile(prepared_project().target_path / PARSED, self.dbts / PARSED)
        manifest = dbt_run.parsed_project(DBT_PROJECT, self.dbts).manifest
        dbt_run.keep(manifest, self.kept, dbt_run.project_digest())
        nodes: list[Any] = list(manifest.nodes.values())
        self.names = sorted(node.name for node in nodes if node.resource_type in ("model", "test"))

    def compiled(self, parsed: Path, variables: dict[str, Any], names: Sequence[str] = ()) -> dict[str, str]:
        chosen = names or ("resource_type:model", "resource_type:test")
        words = ["compile", "--exclude", "resource_type:unit_test", "--select", *chosen]
        surroundings = {"WATTLEDGER_WAREHOUSE": str(self.warehouse)}
        done = dbt_run.run_dbt(words, variables, surroundings, self.target, parsed=parsed)
        return {one.node.name: one.node.compiled_code for one in done if one.node.resource_type != "seed"}

    def files(self) -> list[Path]:
        return sorted(self.kept.rglob("*.json"))


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Projects:
    return Projects(tmp_path_factory.mktemp("rendered"))


def drawn(draw: random.Random) -> dict[str, Any]:
    """Variables as runs and ticks have them, and some that none has."""
    start = date(2026, 1, 1) + timedelta(draw.randrange(1000))
    end = start + timedelta(draw.choice((1, 1, 2, 28, 400)))
    choices: dict[str, Any] = {
        "grid_seconds": draw.choice((60, 300, 900)),
        "max_spread_seconds": draw.randrange(3600, 10**7),
        "most_tokens_per_second": draw.randrange(1, 10**10),
        "keeps_receipts": draw.random() < 0.5,
        "keeps_unchanged": draw.random() < 0.5,
        "has_todays_columns": True,
        "curve_lookback_days": draw.randrange(1, 60),
        "doubt_threshold": draw.random(),
        "unasked_dates": f"date '{start}'",
        "closed_until_us": draw.randrange(10**15, 2 * 10**15),
    }
    left = {name: value for name, value in choices.items() if draw.random() < 0.5}
    return {**left, "start_date": start.isoformat(), "end_date": end.isoformat()}


@pytest.mark.parametrize("seeds", [SAMPLE, *(pytest.param(some, marks=pytest.mark.rest) for some in OTHERS)], ids=str)
def test_what_is_kept_is_what_dbt_renders(projects: Projects, seeds: range) -> None:
    """A run of drawn variables keeps its SQL; the next night's has other dates."""
    for seed in seeds:
        draw = random.Random(seed)
        first = drawn(draw)
        names = draw.sample(projects.names, MODELS_OF_A_DRAW)
        night = {**first, **{name: value for name, value in drawn(draw).items() if name.endswith("_date")}}
        if "closed_until_us" in first:
            night["closed_until_us"] = draw.randrange(10**15, 2 * 10**15)

        projects.compiled(projects.kept, first, names)

        kept, dbts = (projects.compiled(parsed, night, names) for parsed in (projects.kept, projects.dbts))
        assert kept == dbts, f"seed {seed}"


@pytest.mark.rest
def test_all_models_of_a_night(projects: Projects) -> None:
    first = {"start_date": "2026-10-01", "end_date": "2026-10-02", "grid_seconds": 60}
    night = {"start_date": "2026-10-02", "end_date": "2026-10-03", "grid_seconds": 60}
    projects.compiled(projects.kept, first)

    assert projects.compiled(projects.kept, night) == projects.compiled(projects.dbts, night)


def test_what_is_kept_is_given(projects: Projects) -> None:
    """A text that was changed by hand comes back, with the next night's dates; other variables have no such text, nor
    has what asks the warehouse, nor what dbt would take for a template."""
    names = ("stg_run_dates", "held_back_dates")
    first = {"start_date": "2026-10-01", "end_date": "2026-10-02", "max_spread_seconds": 4711}
    night = {**first, "start_date": "2026-10-02", "end_date": "2026-10-03"}
    before = set(projects.files())
    projects.compiled(projects.kept, first, names)
    (file,) = set(projects.files()) - before
    texts = json.loads(file.read_text(encoding="utf-8"))
    assert [*texts] == ["model.wattledger.stg_run_dates"]
    file.write_text(json.dumps({"model.wattledger.stg_run_dates": "select '\x1fend_date\x1f'"}), encoding="utf-8")

    assert projects.compiled(projects.kept, night, ["stg_run_dates"]) == {"stg_run_dates": "select '2026-10-03'"}
    other = {**night, "max_spread_seconds": 4712}
    assert projects.compiled(projects.kept, other, names) == projects.compiled(projects.dbts, other, names)
    manifest = dbt_run.parsed_project(DBT_PROJECT, projects.kept).manifest
    assert "{{" in manifest.nodes["model.wattledger.stg_run_dates"].raw_code  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({"start_date": "2026-10-03", "end_date": "2026-10-04"}, "select '\x1fstart_date\x1f'"),
        ({"start_date": "2026-10-03", "end_date": "2026-10-03"}, None),
        ({"start_date": "2026-10-01", "end_date": "2026-10-03"}, None),
        ({"start_date": "2026-10-03", "end_date": "2026-10-04", "closed_month_of": "2026-10-03"}, None),
        ({"start_date": "2026-10-03", "end_date": "2026-10-05", "unasked_dates": "date '2026-10-04'"}, None),
    ],
    ids=["innocent", "one date for two", "a date that a template has", "a date of two variables", "unasked dates"],
)
def test_only_a_date_that_is_one_variable_is_a_hole(
    projects: Projects, tmp_path: Path, more: dict[str, str], kept: str | None
) -> None:
    name = "model.wattledger.stg_run_dates"
    parsed = copied(dbt_run.parsed_project(DBT_PROJECT, projects.kept).manifest)
    parsed.nodes[name].raw_code += " -- since 2026-10-01"  # type: ignore[union-attr]
    rendered = RenderedSql(parsed, tmp_path, more, "warehouse")
    node: Any = rendered.manifest.nodes[name]
    node.compiled, node.compiled_code = True, "select '2026-10-03'"
    rendered.keep()

    texts = [json.loads(file.read_text(encoding="utf-8")) for file in tmp_path.iterdir()]
    assert texts == ([{name: kept}] if kept else [])


def test_a_file_that_is_cut_is_not_read(projects: Projects, tmp_path: Path) -> None:
    """Neither texts nor the project: the next run has dbt's, and keeps its own."""
    night = {"start_date": "2026-10-01", "end_date": "2026-10-02", "max_spread_seconds": 4713}
    before = set(projects.files())
    expected = projects.compiled(projects.kept, night, ["stg_run_dates"])
    (file,) = set(projects.files()) - before
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole[:-1], encoding="utf-8")
    assert projects.compiled(projects.kept, night, ["stg_run_dates"]) == expected
    assert file.read_text(encoding="utf-8") == whole

    folder = dbt_run.kept_folder(tmp_path, dbt_run.project_digest())
    folder.mkdir(parents=True)
    cut = next(projects.kept.rglob(dbt_run.MANIFEST)).read_bytes()[:-1]
    (folder / dbt_run.MANIFEST).write_bytes(cut)
    shutil.copyfile(projects.dbts / PARSED, tmp_path / PARSED)
    assert dbt_run.parsed_project(DBT_PROJECT, tmp_path).kept is None
