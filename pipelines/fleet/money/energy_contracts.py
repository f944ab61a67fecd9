"""Which electricity a site buys: contracts and certificates, and the residual mix of what they do not cover.

Add a way to state how much a contract supplies here. Keep out grid factors (`grid_sources`), tariffs (`tariffs`) and
how supply is matched with consumption: SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import combinations, product
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pipelines.fleet.money.site_charges import Share
from pipelines.fleet.values import Dated, Name, NonNegative, Positive

# Shares are stated in decimals: 0.1 + 0.2 + 0.7 is a little above 1.
_ROUNDING = 1e-9


class ResidualMix(Dated):
    """What a kWh emits that no contract claims, as the grid's operator or registry publishes it, on local dates."""

    gco2e_per_kwh: NonNegative
    source: Name


class EnergyContract(Dated):
    """Electricity that a contract or certificate supplies to a site, on local dates [valid_from, valid_to).

    Either a share of each hour's consumption, or MWh a year, spread evenly over the local hours [from, to) of the year.
    MWh are matched with the consumption of the date, or of the same hour with `matching: hourly`.
    """

    contract: Name
    site: Name
    gco2e_per_kwh: NonNegative
    is_renewable: Annotated[bool, Field(strict=True)] = False
    source: Name
    share_ratio: Share | None = None
    mwh_per_year: Positive | None = None
    matching: Literal["yearly", "hourly"] | None = None
    local_hours: tuple[int, int] = (0, 24)

    @model_validator(mode="after")
    def _states_one_amount(self) -> EnergyContract:
        if (self.share_ratio is None) == (self.mwh_per_year is None):
            raise ValueError("expected exactly one of share_ratio (of each hour) and mwh_per_year")
        if self.share_ratio is not None and self.matching is not None:
            raise ValueError(
                f"matching: got {self.matching!r}, expected none with share_ratio: a share is of each hour"
            )
        first, end = self.local_hours
        if not 0 <= first < end <= 24:
            raise ValueError(f"local_hours: got [{first}, {end}], expected 0 <= from < to <= 24")
        return self

    def __str__(self) -> str:
        until = f" to {self.valid_to}" if self.valid_to else ""
        return f"energy_contracts[{self.contract}] (from {self.valid_from}{until})"

    def row(self) -> dict[str, Any]:
        """The contract as a row of fleet.energy_contracts."""
        return {
            **self.model_dump(exclude={"local_hours"}),
            "matching": "share" if self.share_ratio is not None else self.matching or "yearly",
            "local_hour_from": self.local_hours[0],
            "local_hour_to": self.local_hours[1],
        }

    def holds_with(self, other: EnergyContract) -> bool:
        """Whether both supply one site on one date in one hour."""
        return (
            self.site == other.site
            and _on_one_date(self, other)
            and max(self.local_hours[0], other.local_hours[0]) < min(self.local_hours[1], other.local_hours[1])
        )

    def holds_at(self, day: date, hour: int) -> bool:
        """Whether it supplies its site in this local hour of this local date."""
        first, end = self.local_hours
        return self.valid_from <= day < (self.valid_to or date.max) and first <= hour < end


def wrong_contracts(contracts: Sequence[EnergyContract], sites: set[str]) -> Iterator[str]:
    """A message for each contract of an unknown site, and for contracts that cannot hold at the same time."""
    yield from _contracts_of_unknown_sites(contracts, sites)
    yield from _double_contracts(contracts)


def _contracts_of_unknown_sites(contracts: Sequence[EnergyContract], sites: set[str]) -> Iterator[str]:
    """A line per contract of a site that the fleet file does not have."""
    for contract in contracts:
        if contract.site not in sites:
            yield (
                f"energy_contracts[{contract.contract}].site: got {contract.site!r}, expected one of the sites"
                f" {sorted(sites)}"
            )


def _double_contracts(contracts: Sequence[EnergyContract]) -> Iterator[str]:
    """Contracts that state an amount twice for one hour, and shares that are more than the whole: a line each."""
    for earlier, later in combinations(contracts, 2):
        if earlier.contract == later.contract and earlier.holds_with(later):
            yield (
                f"{later}: states an amount for dates and hours of site {later.site!r} for which {earlier} states one"
                " already, expected one amount per contract: give it a name of its own, or end the earlier one"
                " (valid_to is the first date on which it does not hold)"
            )
    shares = [contract for contract in contracts if contract.share_ratio is not None]
    found = set[frozenset[int]]()
    for one, other in product(shares, shares):
        # The sum rises only where a share begins: on the first date of one, in the first hour of another.
        day, hour = max(one.valid_from, other.valid_from), max(one.local_hours[0], other.local_hours[0])
        held = [n for n, share in enumerate(shares) if share.site == one.site and share.holds_at(day, hour)]
        total = sum(shares[n].share_ratio or 0 for n in held)
        if total > 1 + _ROUNDING and frozenset(held) not in found:
            found.add(frozenset(held))
            yield (
                f"energy_contracts: the share_ratio of {', '.join(shares[n].contract for n in held)} make {total:g} of"
                f" site {one.site!r} from {day}, hour {hour}, expected at most 1: lower a share, or end one of them"
            )


def double_residual_mixes(site: str, mixes: Sequence[ResidualMix]) -> Iterator[str]:
    """Pairs of residual mixes of a site that hold on one date: a line each."""
    for (n, earlier), (m, later) in combinations(enumerate(mixes), 2):
        if _on_one_date(earlier, later):
            yield (
                f"sites[{site}].residual_mixes[{m}] (from {later.valid_from}): holds on dates on which"
                f" residual_mixes[{n}] (from {earlier.valid_from}) holds already, expected one per date: keep one of"
                " them, or end the earlier one (valid_to is the first date on which it does not hold)"
            )


def _on_one_date(one: Dated, other: Dated) -> bool:
    return max(one.valid_from, other.valid_from) < min(one.valid_to or date.max, other.valid_to or date.max)
