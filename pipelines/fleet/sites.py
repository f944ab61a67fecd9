"""Sites: where the accelerators of a fleet are, on which grid, and what is paid there.

Add a fact of a whole site here. Keep out what a charge consists of (`site_charges`, `tariffs`) and what nodes have.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from pipelines.fleet.money.energy_contracts import ResidualMix
from pipelines.fleet.money.site_charges import CarbonPrice, Charge, DemandCharge, Hosting, Licence, Operations, Share
from pipelines.fleet.money.tariffs import Tariff
from pipelines.fleet.values import GivenName, Name, NonNegative, Part, TimeZone


def _ratio(pue: float) -> float:
    if not 1 <= pue <= MOST_PUE:
        percent = f" (a percentage? {pue:g} % is {pue / 100:g})" if 100 <= pue <= 100 * MOST_PUE else ""
        raise ValueError(
            f"expected 1 to {MOST_PUE}{percent}: all electricity of the facility over that of its computers, 1.3 for"
            " 30 % of overhead"
        )
    return pue


# Above it a number is a percentage: no facility needs nine times as much for its overhead as for its computers.
MOST_PUE = 10

Pue = Annotated[float, Field(strict=True), AfterValidator(_ratio)]


class Site(Part):
    """A place with one grid zone (`unknown` where it is unknown), one time zone and one facility overhead, of which
    `cooling_share_of_overhead` is cooling; what it charges beside electricity and GPU-hours; and what a kWh emits there
    that no contract covers. Accelerators are handed back by the whole `node`, or by the `board` (`rented_by`)."""

    name: GivenName
    zone: Name
    time_zone: TimeZone = "UTC"
    pue: Pue
    wue_litres_per_kwh: NonNegative | None = None
    tariff: tuple[Tariff, ...] = ()
    cooling_share_of_overhead: Share | None = None
    rented_by: Literal["node", "board"] = "node"
    demand_charges: tuple[DemandCharge, ...] = ()
    hosting: tuple[Hosting, ...] = ()
    operations: tuple[Operations, ...] = ()
    licences: tuple[Licence, ...] = ()
    carbon_prices: tuple[CarbonPrice, ...] = ()
    residual_mixes: tuple[ResidualMix, ...] = ()

    @property
    def charges(self) -> dict[str, tuple[Charge, ...]]:
        """Key -> what the site pays under it, beside electricity and GPU-hours."""
        keys = ("demand_charges", "hosting", "operations", "licences", "carbon_prices")
        return {key: getattr(self, key) for key in keys}
