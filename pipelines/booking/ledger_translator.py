"""How the dbt project looks in Dagster: marts and seeds are assets, data tests are checks.

Staging models and steps hold the dates of the last run alone, and are made with the marts that read them; to record
each in Dagster took as long as to build it (docs/bench.md). So they are no assets: a mart depends on the tables that
its steps read, and lists them. Add here what Dagster shows of a model or a test. Keep out how dbt is run (`ledger`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_dbt import DagsterDbtTranslator, DbtProject

from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.lineage import lineage

# By topic; all others are of operations.
OWNERS = {"cost": "finance", "focus": "finance", "prices": "finance", "carbon": "sustainability"}
# How a mart's description ends.
RANK = re.compile(r" \[(start here|topic|evidence): \w+\]\s*$")


def _topic(dbt_resource_props: Mapping[str, Any]) -> str | None:
    """The folder of a model below `models`; None of anything else."""
    if dbt_resource_props["resource_type"] != "model":
        return None
    return Path(dbt_resource_props["original_file_path"]).parts[1]


class LedgerTranslator(DagsterDbtTranslator):
    """Assets are called as their tables are (`asset_keys`)."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self.fleet = fleet

    def get_asset_key(self, dbt_resource_props: Mapping[str, Any]) -> dg.AssetKey:
        """The key of a model: fleet, schema, name."""
        return asset_key(self.fleet, dbt_resource_props["schema"], dbt_resource_props["name"])

    def get_asset_spec(self, manifest: Mapping[str, Any], unique_id: str, project: DbtProject | None) -> dg.AssetSpec:
        """A mart depends on the tables that it reads through its steps, and lists the steps: a file each, in
        dbt_project/models."""
        spec = super().get_asset_spec(manifest, unique_id, project)
        props = self.get_resource_props(manifest, unique_id)
        if props["resource_type"] != "model" or props["schema"] != "marts":
            return spec
        read = lineage(manifest, props)
        steps = [self.get_resource_props(manifest, name)["name"] for name in read.steps]
        return spec.replace_attributes(
            deps=self._keys(manifest, read.tables),
            metadata={**spec.metadata, **({"steps": ", ".join(steps)} if steps else {})},
        )

    def get_asset_check_spec(
        self, asset_spec: dg.AssetSpec, manifest: Mapping[str, Any], unique_id: str, project: DbtProject | None
    ) -> dg.AssetCheckSpec | None:
        """A data test reads tables through steps, too, and has what it expects and what to do."""
        spec = super().get_asset_check_spec(asset_spec, manifest, unique_id, project)
        if spec is None:
            return None
        props = self.get_resource_props(manifest, unique_id)
        read = self._keys(manifest, lineage(manifest, props).tables)
        meta = props["config"]["meta"]
        return dg.AssetCheckSpec(
            spec.name,
            asset=spec.asset_key,
            description=spec.description,
            additional_deps=[key for key in read if key != spec.asset_key],
            blocking=spec.blocking,
            metadata={**spec.metadata, **{key: meta[key] for key in ("expected", "remedy") if key in meta}},
        )

    def get_group_name(self, dbt_resource_props: Mapping[str, Any]) -> str:
        """A model is in the group of its topic, the folder below `models`; a seed in that of its schema."""
        return _topic(dbt_resource_props) or str(dbt_resource_props["schema"])

    def get_owners(self, dbt_resource_props: Mapping[str, Any]) -> Sequence[str]:
        """The readers who would notice first that a table is wrong."""
        return [f"team:{OWNERS.get(_topic(dbt_resource_props) or '', 'operations')}"]

    def get_metadata(self, dbt_resource_props: Mapping[str, Any]) -> Mapping[str, Any]:
        """What dbt knows, and a mart's rank: whether a reader starts there."""
        rank = RANK.search(dbt_resource_props.get("description") or "")
        return {**super().get_metadata(dbt_resource_props), **({"rank": rank[1]} if rank else {})}

    def _keys(self, manifest: Mapping[str, Any], names: Sequence[str]) -> list[dg.AssetKey]:
        return [self.get_asset_key(self.get_resource_props(manifest, name)) for name in names]
