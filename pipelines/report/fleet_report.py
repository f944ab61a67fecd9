"""The asset published/fleet_report: writes the page of the current publication and switches the latest link to it.

    published/<publication_id>/report.html
    published/report.html                     the newest report that could be made

Add here how the page gets to its readers. Keep out what is on it: that is `page`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from collectors.durable_files import opened, write_whole
from pipelines.fleet.fleet_file import Fleet
from pipelines.publishing import parts
from pipelines.publishing.parts import Parts
from pipelines.publishing.publication_manifest import DATABASE, REPORT
from pipelines.publishing.published_files import share
from pipelines.report.chart_images import images
from pipelines.report.page import page
from pipelines.warehouse.asset_keys import asset_key

# Whose charts are in the asset's metadata, too: five pictures, 0.2 s and 0.2 MB of the run's log.
PICTURED = ("advice", "cost_and_energy_over_time", "efficiency_curves", "idle_energy")

logger = logging.getLogger(__name__)


def write_report(fleet: Fleet, made_parts: Parts | None = None) -> Path | None:
    """Write the report of the current publication; returns its path, or None while nothing is published. What could not
    be made of it is in `made_parts`.

    Both files are replaced in one step: a reader gets the whole old page or the whole new one. The latest one is the
    same file under a second name, so it stays when old publications are removed.
    """
    folder = fleet.latest_publication
    if folder is None:
        return None
    made, latest = folder / REPORT, fleet.published / REPORT
    # In the publication's own folder: what a crash leaves there is removed with it.
    fresh = folder / f".{os.getpid()}-{REPORT}"
    write_whole(made, page(folder / DATABASE, made_parts, fleet).encode())
    opened(made)
    try:
        share(made, fresh)
        fresh.replace(latest)
    finally:
        fresh.unlink(missing_ok=True)
    return made


def fleet_report_asset(fleet: Fleet, pool: str) -> dg.AssetsDefinition:
    """published/fleet_report, after the publication. Where it fails, the publication stays as it is."""

    key = asset_key(fleet, "published", "fleet_report")

    @dg.asset(
        key=key,
        deps=[asset_key(fleet, "published", "publication")],
        check_specs=[parts.spec(key)],
        group_name="published",
        kinds={"html"},
        pool=pool,
    )
    def fleet_report() -> Iterator[Any]:
        """The fleet on one page, for an operator and a finance lead: what to do next and what that saves."""
        made_parts = Parts()
        try:
            made = write_report(fleet, made_parts)
        except Exception as error:
            raise dg.Failure(
                f"the fleet report could not be made: {type(error).__name__}: {error}. The publication and the report"
                " before it stay as they are"
            ) from error
        if made is None:
            yield dg.MaterializeResult(metadata={"nothing_published": "every date is held back"})
            yield made_parts.result(key)
            return
        pictures = _pictures(made.read_text(encoding="utf-8"), made_parts)
        logger.info("report: %s", fleet.published / REPORT)
        yield dg.MaterializeResult(
            metadata={
                "path": dg.MetadataValue.path(str(fleet.published / REPORT)),
                "of_publication": dg.MetadataValue.path(str(made)),
                "bytes": made.stat().st_size,
                **pictures,
            }
        )
        yield made_parts.result(key)

    return fleet_report


def _pictures(report: str, made_parts: Parts) -> dict[str, dg.MarkdownMetadataValue]:
    """Section -> its charts. One that cannot be drawn is a line of text: the report is written by then."""
    drawn = {name: made_parts.picture(name, lambda name=name: images(report, name)) for name in PICTURED}  # type: ignore[misc]
    return {name: dg.MetadataValue.md(shown) for name, shown in drawn.items() if shown}
