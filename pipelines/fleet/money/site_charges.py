"""What a site costs beside its electricity and its GPU-hours: demand charge, hosting, operations, licences, carbon.

Add a kind of charge here, with its part in the seed `cost_parts`. Keep out rates per GPU-hour (`cost_rates`), prices
per kWh (`tariffs`) and what a charge is multiplied by: SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import combinations
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from pipelines.fleet.values import Dated, Name, NonNegative, Positive

Share = Annotated[float, Field(strict=True, ge=0, le=1)]


class Charge(Dated):
    """A price that a site pays."""

    part: ClassVar[str]
    price: ClassVar[str]

    def row(self) -> dict[str, Any]:
        """The charge as a row of fleet.site_charges: `usd` in the unit that its key names."""
        return {**self.model_dump(), "part": self.part, "usd": getattr(self, self.price)}

    def prices_with(self, other: Charge) -> bool:
        """Whether both price the same thing on one date."""
        mine, theirs = (getattr(charge, "device_type", None) for charge in (self, other))
        return (mine is None or theirs is None or mine == theirs) and max(self.valid_from, other.valid_from) < min(
            self.valid_to or date.max, other.valid_to or date.max
        )


class DemandCharge(Charge):
    """A price per kW of the month's highest mean power over `interval_minutes`."""

    part = "demand_charge"
    price = "usd_per_kw_month"
    usd_per_kw_month: NonNegative
    interval_minutes: Annotated[int, Field(strict=True, ge=5, le=60)] = 15

    @model_validator(mode="after")
    def _divides_an_hour(self) -> DemandCharge:
        if 60 % self.interval_minutes:
            raise ValueError(f"interval_minutes: got {self.interval_minutes}, expected a divisor of 60, such as 15")
        return self


class Hosting(Charge):
    """A price per provisioned kW and month, whatever is drawn."""

    part = "hosting"
    price = "usd_per_kw_month"
    usd_per_kw_month: NonNegative
    provisioned_kw: Positive


class Operations(Charge):
    """Staff, network and whatever else a site costs in a month."""

    part = "operations"
    price = "usd_per_month"
    usd_per_month: NonNegative


class Licence(Charge):
    """Software that is paid by the GPU-hour, of one device type or of all."""

    part = "licences"
    price = "usd_per_gpu_hour"
    usd_per_gpu_hour: NonNegative
    device_type: Name | None = None


class CarbonPrice(Charge):
    """What a tonne of location-based CO2e costs; an internal price, unless it is a tax."""

    part = "carbon_price"
    price = "usd_per_tonne"
    usd_per_tonne: NonNegative


def double_charges(site: str, charges: Mapping[str, Sequence[Charge]]) -> Iterator[str]:
    """Pairs of charges under one key of a site that price the same thing on one date: a line each."""
    for key, stated in charges.items():
        for (n, earlier), (m, later) in combinations(enumerate(stated), 2):
            if earlier.prices_with(later):
                yield (
                    f"sites[{site}].{key}[{m}] (from {later.valid_from}): prices dates that {key}[{n}]"
                    f" (from {earlier.valid_from}) prices already, expected one price per date: keep one of them, or"
                    " end the earlier one (valid_to is the first date that is not priced)"
                )
