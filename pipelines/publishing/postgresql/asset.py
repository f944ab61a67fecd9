"""published/postgresql: the publication in PostgreSQL, as Dagster runs it. Only a fleet that configures it has it.

Add here what Dagster shows of it. Keep out how it is written: that is `loading`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import dagster as dg

from pipelines.fleet.fleet_file import Fleet
from pipelines.fleet.targets.publication_targets import PostgresqlTarget
from pipelines.publishing.postgresql import loading
from pipelines.publishing.postgresql.server import PostgresqlError
from pipelines.warehouse import findings
from pipelines.warehouse.asset_keys import asset_key
from pipelines.warehouse.contracts import Mart

logger = logging.getLogger(__name__)


def postgresql_asset(
    fleet: Fleet, target: PostgresqlTarget, marts: Mapping[str, Mart], pool: str
) -> dg.AssetsDefinition:
    """published/postgresql, after the publication."""

    @dg.asset(
        key=asset_key(fleet, "published", "postgresql"),
        deps=[asset_key(fleet, "published", "publication")],
        group_name="published",
        kinds={"postgres"},
        pool=pool,
    )
    def publication_in_postgresql() -> dg.MaterializeResult[None]:
        """The current publication's tables in PostgreSQL: what changed since the one there, in one transaction."""
        try:
            done = loading.publish_within_limits(fleet, target, marts)
        except PostgresqlError as refusal:
            raise dg.Failure(str(refusal)) from None
        if done is None:
            return dg.MaterializeResult(metadata={"nothing_published": "there is no publication yet"})
        for notice in done.notices:
            logger.warning("%s", notice)
        rows = sum(done.rows.values())
        logger.info(
            "published %s to PostgreSQL: %s rows, %d tables, %.1f s",
            done.publication_id,
            f"{rows:,}",
            len(done.rows),
            done.seconds,
        )
        return dg.MaterializeResult(
            metadata={
                "publication_id": done.publication_id,
                "previous_publication_id": done.previous_id or "none",
                "database": done.place,
                "dates": len(done.dates),
                "dagster/row_count": rows,
                "tables": dg.MarkdownMetadataValue(findings.markdown(["table", "rows"], done.rows.items())),
                **({"notices": list(done.notices)} if done.notices else {}),
            }
        )

    return publication_in_postgresql
