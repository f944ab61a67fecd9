"""published/object_store: the publication in an object store, as Dagster runs it. Only a fleet that configures it has
it.

Add here what Dagster shows of it. Keep out how it is written: that is `storing`.
"""

from __future__ import annotations

import logging

import dagster as dg

from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.targets.publication_targets import ObjectStoreTarget
from pipelines.publishing.object_store import storing
from pipelines.publishing.object_store.place import ObjectStoreError
from pipelines.warehouse import findings
from pipelines.warehouse.asset_keys import asset_key

logger = logging.getLogger(__name__)


def object_store_asset(fleet: Fleet, target: ObjectStoreTarget, pool: str) -> dg.AssetsDefinition:
    """published/object_store, after the publication."""

    @dg.asset(
        key=asset_key(fleet, "published", "object_store"),
        deps=[asset_key(fleet, "published", "publication")],
        group_name="published",
        kinds={"parquet", "deltalake"} if target.tables == "delta" else {"parquet"},
        pool=pool,
    )
    def publication_in_object_store() -> dg.MaterializeResult[None]:
        """The current publication's tables as Parquet files with a manifest, and as Delta tables over the same files:
        what changed since the one there."""
        try:
            done = storing.publish_within_limits(fleet, target)
        except ObjectStoreError as refusal:
            raise dg.Failure(str(refusal)) from None
        if done is None:
            return dg.MaterializeResult(metadata={"nothing_published": "there is no publication yet"})
        rows = sum(done.rows.values())
        logger.info(
            "published %s to %s: %s rows, %d files, %.1f MB, %.1f s",
            done.publication_id,
            done.place,
            f"{rows:,}",
            done.files,
            done.bytes / 1e6,
            done.seconds,
        )
        return dg.MaterializeResult(
            metadata={
                "publication_id": done.publication_id,
                "previous_publication_id": done.previous_id or "none",
                "place": done.place,
                "files": done.files,
                "bytes": done.bytes,
                "dagster/row_count": rows,
                "tables": dg.MarkdownMetadataValue(findings.markdown(["table", "rows"], done.rows.items())),
                **({"deleted_publications": list(done.forgotten)} if done.forgotten else {}),
            }
        )

    return publication_in_object_store
