"""What a GPU-hour costs: rates that the fleet file states, and price lists of GPUs that it names.

Add a way to state a rate here. Keep out which rates everybody may assume (dbt_project/seeds/cost_rates.csv; here they
are only looked up) and what a rate is multiplied by: SQL.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, model_validator

from collectors.cells import shown
from collectors.rows import Reject, Rejects, number_of, readable
from collectors.samples import SourceError
from collectors.text_files import csv_rows
from pipelines.fleet.catalog import SEEDS
from pipelines.fleet.source_limits import RowLimits
from pipelines.fleet.values import Dated, FleetPath, GivenName, Name, NonNegative, Part, Positive

# What a rate per GPU-hour may hold already, so that it is not charged again: parts of the cost, by what they come with.
IncludedPart = Literal["energy", "demand_charge", "hosting", "operations", "licences"]
COMES_WITH = {"energy": ("cooling", "overhead")}


class Quote(Dated):
    """Who states a rate, and for which dates [valid_from, valid_to); without an end until the type's next rate."""

    source: Name

    def __str__(self) -> str:
        until = f" to {self.valid_to}" if self.valid_to else ""
        return f"{self.source}, from {self.valid_from}{until}"


class CostRate(Quote):
    """What one GPU-hour of a device type costs this fleet; it replaces the seed's rows.

    Rented: `usd_per_gpu_hour`, which usually `includes_energy`; `includes` names other parts of the cost that it holds.
    Owned: `price_usd_per_gpu` less `residual_value_usd_per_gpu` over `life_years`, and what the capital costs a year.
    """

    device_type: Name
    usd_per_gpu_hour: NonNegative | None = None
    includes_energy: bool = False
    includes: tuple[IncludedPart, ...] = ()
    price_usd_per_gpu: NonNegative | None = None
    residual_value_usd_per_gpu: NonNegative = 0
    life_years: Positive | None = None
    cost_of_capital_ratio: Annotated[float, Field(strict=True, ge=0, lt=1)] = 0

    @model_validator(mode="after")
    def _rented_or_owned(self) -> CostRate:
        if (self.usd_per_gpu_hour is None) == (self.price_usd_per_gpu is None):
            raise ValueError("expected exactly one of usd_per_gpu_hour (rented) and price_usd_per_gpu (owned)")
        if self.price_usd_per_gpu is None:
            return self
        if self.life_years is None:
            raise ValueError("life_years: expected the years over which price_usd_per_gpu is written off")
        if self.residual_value_usd_per_gpu > self.price_usd_per_gpu:
            raise ValueError(
                f"residual_value_usd_per_gpu: got {self.residual_value_usd_per_gpu:g}, expected at most the price"
                f" {self.price_usd_per_gpu:g}"
            )
        return self

    def row(self) -> dict[str, Any]:
        """The rate as a row of fleet.cost_rates."""
        return {**self.model_dump(), "includes": " ".join(self.all_included)}

    @property
    def all_included(self) -> list[str]:
        """The parts of the cost that the rate holds, sorted."""
        stated = {*self.includes, *(("energy", "demand_charge") if self.includes_energy else ())}
        return sorted(stated.union(*(COMES_WITH.get(part, ()) for part in stated)))

    @property
    def price(self) -> str:
        """What a GPU costs, in words."""
        if self.usd_per_gpu_hour is None:
            return f"{self.price_usd_per_gpu:.0f} USD over {self.life_years:g} years"
        return f"{self.usd_per_gpu_hour:.2f} USD per hour"


class Commitment(Dated):
    """GPUs of a type at a site that are paid for on local dates [valid_from, valid_to), used or not; they are used
    before any at the type's rate. That rate states which other parts the price holds."""

    commitment: Name
    site: GivenName
    device_type: Name
    gpus: Positive
    usd_per_gpu_hour: NonNegative


class SpotRate(Part):
    """GPUs of a type at a site that are rented at the price of the moment in [start_at, end_at); without an end until
    the next entry of the same site and type begins. They are paid only while they are there, after commitments and
    before any at the type's rate, which states which other parts the price holds."""

    site: GivenName
    device_type: Name
    gpus: Positive
    usd_per_gpu_hour: NonNegative
    start_at: AwareDatetime
    end_at: AwareDatetime | None = None

    @model_validator(mode="after")
    def _forward(self) -> SpotRate:
        if self.end_at is not None and self.end_at <= self.start_at:
            raise ValueError(f"end_at: got {self.end_at}, expected a time after start_at {self.start_at}")
        return self


def seeded_rate(device_type: str, on: date, seeds: Path = SEEDS) -> CostRate | None:
    """The rate that the seed has of a device type on a date: it counts where the fleet file states none."""
    with (seeds / "cost_rates.csv").open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["device_type"] == device_type]
    rates = [
        CostRate(
            device_type=device_type,
            usd_per_gpu_hour=float(row["usd_per_gpu_hour"]),
            includes_energy="energy" in row["includes"].split(),
            source=row["source"],
            valid_from=date.fromisoformat(row["valid_from"]),
        )
        for row in rows
    ]
    return max((rate for rate in rates if rate.valid_from <= on), key=lambda rate: rate.valid_from, default=None)


class CostRateFile(Quote):
    """A CSV of instance types with their price: the rate is the price of an instance over its GPUs.

    `where` keeps the rows of one provider, region or instance type; `device_types` maps the list's names of GPUs to
    ours. What rents a GPU by the hour pays its electricity, so the rates include energy unless
    `includes_energy` is false.
    """

    path: FleetPath
    device_types: dict[Name, Name] = Field(min_length=1)
    where: dict[Name, str] = Field(default_factory=dict)
    gpu: Name = "gpu"
    gpu_count: Name = "gpu_count"
    usd_per_hour: Name = "usd_per_hour_ondemand"
    includes_energy: bool = True

    limits: RowLimits = RowLimits()

    def rates(self, rejects: Rejects) -> Iterator[dict[str, Any]]:
        """One rate per device type, as CostRate has them; a row without a possible price is a reject. SourceError where
        the list does not give exactly one price, or too many of its rows are bad."""
        stated = [row for row in readable(self._rows(rejects), self._gpu_and_price, rejects) if row is not None]
        rejects.check(self.path)
        for gpu, device_type in self.device_types.items():
            mine = [price for name, price in stated if name == gpu]
            prices = sorted({price for price in mine if price is not None})
            if len(prices) != 1:
                found = ", ".join(f"{price:g}" for price in prices) or "none"
                reason = (
                    f"{len(mine)} rows of {gpu} where {self.where}: expected one price per GPU-hour, found {found};"
                    " `where` may keep fewer rows"
                )
                raise SourceError(self.path, None, "; ".join(filter(None, [reason, str(rejects)])))
            own = self.model_dump(include={"source", "includes_energy", "valid_from", "valid_to"})
            yield CostRate(device_type=device_type, usd_per_gpu_hour=prices[0], **own).row()

    def _rows(self, rejects: Rejects) -> Iterator[tuple[str, dict[str, str]]]:
        columns, rows = csv_rows(self.path, rejects)
        missing = {self.gpu, self.gpu_count, self.usd_per_hour, *self.where} - set(columns)
        if missing:
            reason = f"no column {sorted(missing)}; there are {columns}"
            raise SourceError(self.path, None, (rejects.first[0] if rejects.first else reason)[:500])
        return rows

    def _gpu_and_price(self, row: Mapping[str, str]) -> tuple[str, float | None] | None:
        """The GPU and what one costs an hour (None: not stated) of a row that `where` keeps; None for another row."""
        gpu = row.get(self.gpu, "")
        if gpu not in self.device_types or any(row.get(column, "") != kept for column, kept in self.where.items()):
            return None
        usd, gpus = row.get(self.usd_per_hour, "").strip(), row.get(self.gpu_count, "").strip()
        if not usd:
            return gpu, None
        with suppress(ValueError):
            per_hour, count = number_of(usd), number_of(gpus)
            if 0 <= per_hour < 1e6 and 0 < count <= 1024:
                return gpu, round(per_hour / count, 6)
        price = f"{shown(usd)} USD for {shown(gpus)} GPUs"
        raise Reject(f"{gpu}: got {price}, expected a price and a count of GPUs")


def wrong_capacity_prices(
    commitments: Sequence[Commitment], spot_rates: Sequence[SpotRate], sites: Collection[str]
) -> Iterator[str]:
    """Commitments and spot rates of a site that the fleet does not have, and two spot rates at once: a line each."""
    stated = [(f"commitments[{commitment.commitment}]", commitment.site) for commitment in commitments]
    stated += [(f"spot_rates[{n}]", rate.site) for n, rate in enumerate(spot_rates)]
    for name, site in stated:
        if site not in sites:
            yield f"{name}.site: got {site!r}, expected one of the sites {sorted(sites)}"
    yield from _double_spot_rates(spot_rates)


def _double_spot_rates(rates: Sequence[SpotRate]) -> Iterator[str]:
    """Spot rates that price the same type at the same site at one time: a line each."""
    by_place: dict[tuple[str, str], list[tuple[int, SpotRate]]] = {}
    for n, rate in enumerate(rates):
        by_place.setdefault((rate.site, rate.device_type), []).append((n, rate))
    for (site, device_type), priced in sorted(by_place.items()):
        priced.sort(key=lambda entry: entry[1].start_at)
        for (n, earlier), (m, later) in pairwise(priced):
            if earlier.start_at == later.start_at or (earlier.end_at is not None and earlier.end_at > later.start_at):
                yield (
                    f"spot_rates[{m}] (from {later.start_at.isoformat()}): prices {device_type} at {site} at times that"
                    f" spot_rates[{n}] (from {earlier.start_at.isoformat()}) prices already, expected one price at a"
                    " time: keep one of them, or leave out end_at of the earlier one"
                )


def stated_rates(rates: Sequence[CostRate], files: Sequence[CostRateFile]) -> dict[str, str]:
    """Device type -> the key of the fleet file that prices it."""
    stated = {
        device_type: f"cost_rate_files[{n}]"
        for n, file in enumerate(files)
        for device_type in file.device_types.values()
    }
    return stated | {rate.device_type: f"cost_rates[{n}]" for n, rate in enumerate(rates)}


def double_rates(rates: Sequence[CostRate], files: Sequence[CostRateFile]) -> Iterator[str]:
    """Device types that two entries price on one date, with both entries: a line each."""
    entries: list[tuple[str, str, Quote]] = [
        (rate.device_type, f"cost_rates[{n}]", rate) for n, rate in enumerate(rates)
    ]
    entries += [
        (device_type, f"cost_rate_files[{n}].device_types[{gpu}]", file)
        for n, file in enumerate(files)
        for gpu, device_type in file.device_types.items()
    ]
    by_type: dict[str, list[tuple[str, Quote]]] = {}
    for device_type, name, entry in entries:
        by_type.setdefault(device_type, []).append((name, entry))
    for device_type, priced in sorted(by_type.items()):
        priced.sort(key=lambda entry: entry[1].valid_from)  # of equal dates the file's order stays
        for (name, earlier), (other, later) in pairwise(priced):
            until = earlier.valid_to
            if earlier.valid_from < later.valid_from and (until is None or until <= later.valid_from):
                continue  # a rate without an end ends where the next one begins
            remedy = (
                "keep one of them, or give one another valid_from"
                if earlier.valid_from == later.valid_from
                else f"set valid_to of {name} to {later.valid_from} or leave it out"
            )
            yield (
                f"{other} ({later}): prices {device_type} on dates that {name} ({earlier}) prices already, expected one"
                f" rate per device type and date: {remedy}"
            )
