"""The key `limits` of the fleet file: what no healthy part of the fleet exceeds.

Add a limit of what telemetry may show here. Keep out what a source's answers may cost (`sources`, `collectors.limits`).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipelines.fleet.values import Part


class FleetLimits(Part):
    """What is above a limit is refused and listed (`marts.unreadable_values`). `tokens_per_second` is what one engine's
    counter can rise by."""

    tokens_per_second: Annotated[int, Field(strict=True, gt=0)] = 2_000_000
