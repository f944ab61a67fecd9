"""The end of a run: what `retention` lets go is removed, and what every layer takes is noted.

Keep out what goes (`pruning`) and how it is measured (`layers`).
"""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from pipelines.fleet.fleet_file import Fleet
from pipelines.receipts import receipt_files
from pipelines.upkeep import layers, pruning
from pipelines.warehouse import database, disk_room, findings
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.raw_tables import create_tables

CHECK = "retention_is_kept"
REMEDY = (
    "the line has what stays and why: close the month with `wattledger close`, or make room on the disk; `wattledger"
    " prune` shows what would go"
)
_WHAT = "One row per run and layer of the fleet's data: the bytes that the run has left of it."

logger = logging.getLogger(__name__)


def upkeep_asset(fleet: Fleet, after: list[dg.AssetKey], pool: str) -> dg.AssetsDefinition:
    """raw/disk_use, when everything else of a run is made."""
    key = asset_key(fleet, "raw", "disk_use")

    @dg.asset(
        key=key,
        deps=after,
        description=_WHAT,
        check_specs=[
            dg.AssetCheckSpec(
                CHECK,
                asset=key,
                description="Everything that `retention` lets go could be removed.",
                metadata={"remedy": REMEDY},
            )
        ],
        group_name="raw",
        kinds={"duckdb"},
        pool=pool,
    )
    def disk_use(context: dg.AssetExecutionContext) -> Iterator[Any]:
        """What `retention` lets go is removed; then each layer's bytes are noted."""
        home = layers.home_of(fleet)
        history = pruning.History(context.instance, home, home.is_relative_to(fleet.root))
        now = datetime.now(UTC)
        gone, stays = [], []
        with database.writing(fleet.warehouse, "disk_use"):
            with database.connect(fleet.warehouse) as connection:
                create_tables(connection)
                for layer in pruning.looked(connection, fleet, history, now, layers.LAYERS):
                    layer.remove()
                    gone += list(pruning.lines([layer])) if layer.goes else []
                    stays += [f"{layer.name}: {layer.refused}"] if layer.refused else []
            gone += [f"receipts of {on}" for on in receipt_files.expire(fleet, now.date())]
            try:
                pruning.compacted(fleet, is_asked=False)
            except disk_room.TooLittleRoom as refusal:
                stays.append(str(refusal))
            with database.connect(fleet.warehouse) as connection:
                found = layers.measured(connection, fleet, home)
                layers.note(connection, context.run_id, now, found)
        for line in gone:
            logger.info("removed %s", line)
        rows = [(layer, disk_room.shown(size)) for layer, size in found.items()]
        yield dg.MaterializeResult(
            metadata={"layers": dg.MarkdownMetadataValue(findings.markdown(["layer", "size"], rows)), "removed": gone}
        )
        yield dg.AssetCheckResult(
            passed=not stays,
            asset_key=key,
            check_name=CHECK,
            severity=dg.AssetCheckSeverity.WARN,
            description="; ".join(stays) or None,
            metadata={"layers_removed": len(gone), "layers_kept_back": len(stays)},
        )

    return disk_use
