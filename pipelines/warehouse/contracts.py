"""The marts as the dbt project defines them: their columns, a digest of their formulas, the version of the method.

Read from dbt's manifest and dbt_project.yml. Add here what the pipeline needs from the project before dbt runs. Keep
out the tables of a warehouse (`upgrades`) and what a date was booked with (`settings`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

# String literals first: `--` inside one is no comment.
_COMMENTS = re.compile(r"('(?:[^']|'')*')|--[^\n]*|/\*.*?\*/|\{#.*?#\}", re.DOTALL)
# Files of the dbt project: which older formulas make the same rows as today's, and the columns' former names.
SAME_FIGURES = "same_figures.yml"
FORMER_COLUMNS = "former_columns.yml"
_MAXIMUM = re.compile(r"^max\((\w+)\)$")


@dataclass(frozen=True)
class Mart:
    """A public table of dbt: its contract, what of it a run replaces (the config `replaces`), and its
    description and its columns' (by the column's name, "" for the table). `grain` are the columns that identify a row,
    `never_null` those that always have a value, `formerly` the old name of each column that was renamed, `gone` columns
    that were left out."""

    columns: tuple[tuple[str, str], ...]
    replaces: str = "dates"
    descriptions: Mapping[str, str] = field(default_factory=dict, hash=False)
    grain: tuple[str, ...] = ()
    never_null: frozenset[str] = frozenset()
    formerly: Mapping[str, str] = field(default_factory=dict, hash=False)
    gone: frozenset[str] = frozenset()

    @property
    def is_dated(self) -> bool:
        """Whether a run replaces the rows of its dates, and no others."""
        return self.replaces == "dates"


@dataclass(frozen=True)
class Contracts:
    """The marts by name, the method's version, and for the marts that runs replace in part: a digest of their SQL,
    older digests of SQL that makes the same rows, and the seeds that this SQL reads."""

    marts: Mapping[str, Mart]
    formulas: str
    seeds: frozenset[str]
    method_version: str
    same_formulas: frozenset[str] = frozenset()

    @property
    def columns(self) -> str:
        """A digest of the columns of the marts that keep rows from run to run; another name makes no date old."""
        lasting = sorted(
            (name, [(mart.formerly.get(column, column), kind) for column, kind in mart.columns])
            for name, mart in self.marts.items()
            if mart.replaces != "all"
        )
        return _digest(json.dumps(lasting))


def contracts_of(manifest: Path, project: Path) -> Contracts:
    """The contracts of a parsed project; `project` is its folder. Read once for as long as the manifest stays."""
    return _contracts(manifest, project, manifest.stat().st_mtime_ns)


@cache
def _contracts(manifest: Path, project: Path, _: int) -> Contracts:
    parsed = json.loads(manifest.read_text(encoding="utf-8"))
    stated = yaml.safe_load((project / "dbt_project.yml").read_text(encoding="utf-8"))
    models = {
        unique_id: node
        for unique_id, node in parsed["nodes"].items()
        if node["resource_type"] == "model" and node["schema"] == "marts"
    }
    renamed, gone = former_columns(project)
    marts = {
        node["name"]: Mart(
            tuple((column["name"], column["data_type"]) for column in node["columns"].values()),
            node["config"].get("replaces", "dates"),
            {"": node.get("description", "")}
            | {name: column.get("description", "") for name, column in node["columns"].items()},
            *_grain(node["config"].get("meta", {})),
            {now: former for former, now in renamed.get(node["name"], {}).items()},
            frozenset(gone.get(node["name"], ())),
        )
        for node in models.values()
    }
    lasting = [unique_id for unique_id, node in models.items() if marts[node["name"]].replaces != "all"]
    reached = _reached(parsed, lasting)
    seeds = frozenset(unique_id.rpartition(".")[2] for unique_id in reached if unique_id.startswith("seed."))
    formulas = _formulas(parsed, reached)
    return Contracts(marts, formulas, seeds, str(stated["vars"]["method_version"]), _same_formulas(project, formulas))


def variable(project: Path, name: str) -> Any:
    """One of the variables of dbt_project.yml."""
    return yaml.safe_load((project / "dbt_project.yml").read_text(encoding="utf-8"))["vars"][name]


def former_columns(project: Path) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Table -> former name of a column -> its name now; and of columns that are gone, where their figure is."""
    renamed: dict[str, dict[str, str]] = {}
    gone: dict[str, dict[str, str]] = {}
    for entry in yaml.safe_load((project / FORMER_COLUMNS).read_text(encoding="utf-8")):
        for table in entry["tables"]:
            renamed.setdefault(table, {}).update(entry.get("renamed", {}))
            gone.setdefault(table, {}).update(entry.get("gone", {}))
    return renamed, gone


def _same_formulas(project: Path, formulas: str) -> frozenset[str]:
    """The digests that `same_figures.yml` lists for these formulas; none where it was written for others."""
    declared = yaml.safe_load((project / SAME_FIGURES).read_text(encoding="utf-8"))
    return frozenset(declared["same_as"]) if declared["formulas"] == formulas else frozenset()


def _grain(meta: Mapping[str, Any]) -> tuple[tuple[str, ...], frozenset[str]]:
    """The columns that identify a row, and those that always have a value: `never_null` has a column that is no part of
    the grain as max(column)."""
    grain = tuple(meta.get("grain", ()))
    return grain, frozenset(_MAXIMUM.sub(r"\1", column) for column in meta.get("never_null", grain))


def _reached(parsed: Mapping[str, Any], models: list[str]) -> set[str]:
    """These models, and all models, seeds and macros of the project that they read."""
    reached: set[str] = set()
    waiting = list(models)
    while waiting:
        unique_id = waiting.pop()
        if unique_id not in reached:
            reached.add(unique_id)
            waiting += _reads(parsed, unique_id)
    return reached


def _formulas(parsed: Mapping[str, Any], reached: set[str]) -> str:
    """A digest of SQL without comments and white space: a reworded comment does not change a formula."""
    sql = {
        unique_id: parsed["nodes"][unique_id]["raw_code"]
        if unique_id in parsed["nodes"]
        else parsed["macros"][unique_id]["macro_sql"]
        for unique_id in reached
        if unique_id.startswith(("model.", "macro."))
    }
    return _digest(json.dumps(sorted((unique_id, bare(text)) for unique_id, text in sql.items())))


def _reads(parsed: Mapping[str, Any], unique_id: str) -> Iterator[str]:
    """What of this project a model or macro reads, with a macro's variants for each engine."""
    read = (parsed["nodes"].get(unique_id) or parsed["macros"].get(unique_id) or {}).get("depends_on", {})
    yield from read.get("nodes", ())
    for macro in read.get("macros", ()):
        package, name = macro.split(".")[1:]
        variants = (macro, *(f"macro.{package}.{engine}__{name}" for engine in ("default", "duckdb", "spark")))
        yield from (
            found for found in variants if found in parsed["macros"] and package == parsed["metadata"]["project_name"]
        )


def bare(sql: str) -> str:
    """SQL without comments, every stretch of white space one blank."""
    return " ".join(_COMMENTS.sub(lambda found: found[1] or " ", sql).split())


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
