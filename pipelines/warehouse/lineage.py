"""What a model of the dbt project reads: the tables that stay, and the steps in between, from dbt's manifest.

A step is a model that is no mart: it holds the dates of the last run alone. Add here how models depend on each other.
Keep out what Dagster makes of it (`pipelines.booking.ledger_translator`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Lineage(NamedTuple):
    """Of one model: the unique ids of its steps, each after those that it reads; and of the marts, seeds and sources
    that it and its steps read."""

    steps: tuple[str, ...]
    tables: tuple[str, ...]


def lineage(manifest: Mapping[str, Any], node: Mapping[str, Any]) -> Lineage:
    """The lineage of a model or a test of the manifest."""
    steps: dict[str, None] = {}
    tables: set[str] = set()

    def read(one: Mapping[str, Any]) -> None:
        for name in one.get("depends_on", {}).get("nodes", []):
            parent = manifest["nodes"].get(name) or manifest["sources"][name]
            if is_step(parent):
                if name not in steps:
                    read(parent)
                    steps[name] = None
            elif not _is_of_the_booking(parent):
                tables.add(name)

    read(node)
    return Lineage(tuple(steps), tuple(sorted(tables)))


def is_step(node: Mapping[str, Any]) -> bool:
    """Whether a node of the manifest is a staging model, a step or an invariant."""
    return bool(node["resource_type"] == "model" and node["schema"] != "marts")


def tables_read(manifest: Mapping[str, Any], models: Iterable[str]) -> list[tuple[str, str]]:
    """Schema and name of the marts, seeds and sources that these models read, themselves or through their steps."""
    names = set(models)
    nodes = [node for node in manifest["nodes"].values() if node["resource_type"] == "model" and node["name"] in names]
    read = {name for node in nodes for name in lineage(manifest, node).tables}
    found = [manifest["nodes"].get(name) or manifest["sources"][name] for name in sorted(read)]
    return [(node["schema"], node["name"]) for node in found]


def _is_of_the_booking(source: Mapping[str, Any]) -> bool:
    """Whether the booking itself writes a source (models/sources.yml): then it is no parent of what is booked."""
    return bool(source.get("config", {}).get("meta", {}).get("written_by") == "booking")
