"""The key `retention` of the fleet file: what may be removed of a fleet's data, layer by layer.

Add a layer here together with what removes it (`pipelines.upkeep`). Keep out what must never go, whatever is stated.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipelines.fleet.values import Part

Days = Annotated[int, Field(strict=True, ge=1)]


class Retention(Part):
    """What the nightly run removes when it has published, and `prune` when it is asked. A layer that is not stated
    stays (docs/operations.md)."""

    raw_days: Days | None = None
    intermediate: bool = True
    publications: Annotated[int, Field(strict=True, ge=1)] | None = None
    history_days: Days | None = None
    log_days: Days | None = None
    spool_days: Days | None = None
