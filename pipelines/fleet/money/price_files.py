"""The price lists of models that a fleet file names.

Add here what the fleet file may set for a list. Keep out how a list is read (`collectors.records.price_lists`) and how
its rows reach the warehouse (`pipelines.landing.price_landing`). What a GPU-hour costs is in `cost_rates`.
"""

from __future__ import annotations

from datetime import date

from pydantic import Field

from pipelines.fleet.source_limits import RowLimits
from pipelines.fleet.values import FleetPath, Name, Part


class PriceFile(Part):
    """A list of prices (.json in LiteLLM's shape, or .csv): who published it, when it was read, from when it holds.

    It holds until a list of the same source with a later `valid_from` does.
    """

    path: FleetPath
    source: Name
    as_of: date
    valid_from: date = date(1970, 1, 1)
    limits: RowLimits = RowLimits()


class Prices(Part):
    """What others charge for models; what a fleet pays itself is under cost_rates and tariff."""

    files: tuple[PriceFile, ...] = Field(default=())
