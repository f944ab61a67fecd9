"""The metric catalogue as a collector may know it: which families to keep, by each name that a source may write.

Add here how the seeds' names are read. Keep out what a metric means (unit, factor, rank): that is read by SQL alone.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

# In the agent's own distribution the seeds are in its package (agent/hatch_build.py).
CATALOGUE_FOLDERS = (
    Path(__file__).parent,
    Path(__file__).parents[1] / "dbt_project" / "seeds",
    # Of the ledger's wheel (pyproject.toml).
    Path(__file__).parents[1] / "pipelines" / "bundled" / "dbt_project" / "seeds",
)
# Beside the catalogue: how the names of an exporter are written elsewhere, such as `ray_vllm_…` for `vllm:…`.
SPELLINGS = "metric_spellings.csv"


def spelled(rows: Iterable[Mapping[str, str]], spellings: Path | None) -> Iterator[Mapping[str, str]]:
    """The rows of the catalogue, and after them those rows by every other name of their metric.

    A spelling puts a prefix before the name and its `colon` in place of each colon; one with a colon leaves names
    without a colon alone. Without the file of spellings there are no others.
    """
    rows = list(rows)
    yield from rows
    if spellings is None or not spellings.is_file():
        return
    with spellings.open(newline="", encoding="utf-8") as lines:
        for spelling in csv.DictReader(lines):
            for row in rows:
                name = row["metric"]
                if row.get("source_kind") != spelling["source_kind"] or (spelling["colon"] and ":" not in name):
                    continue
                yield {**row, "metric": spelling["prefix"] + name.replace(":", spelling["colon"])}
