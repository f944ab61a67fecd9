"""What a GPU-hour costs: rates that the fleet file states, and price lists of GPUs that it names.

Add a way to state a rate here. Keep out which rates everybody may assume (dbt_project/seeds/cost_rates.csv; here they
are only looked up) and what a rate is multiplied by: SQL.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from pipelines.fleet.catalog import SEEDS
from pipelines.fleet.sources import FleetPath, Name, NonNegative, Part


class UnreadableList(Exception):
    """A price list is not what the fleet file states; the message names file, column and what there is."""


class Quote(Part):
    """Who states a rate, and for which dates [valid_from, valid_to); without an end until the type's next rate."""

    source: Name
    valid_from: date = date(1970, 1, 1)
    valid_to: date | None = None

    @model_validator(mode="after")
    def _forward(self) -> Quote:
        if self.valid_to is not None and self.valid_to <= self.valid_from:
            raise ValueError(f"valid_to: got {self.valid_to}, expected a date after valid_from {self.valid_from}")
        return self

    def __str__(self) -> str:
        until = f" to {self.valid_to}" if self.valid_to else ""
        return f"{self.source}, from {self.valid_from}{until}"


class CostRate(Quote):
    """What one GPU-hour of a device type costs this fleet; it replaces the seed's rows. A rented or colocated GPU's
    rate usually `includes_energy`: the electricity is not charged again."""

    device_type: Name
    usd_per_gpu_hour: NonNegative
    includes_energy: bool = False


def seeded_rate(device_type: str, on: date, seeds: Path = SEEDS) -> CostRate | None:
    """The rate that the seed has of a device type on a date: it counts where the fleet file states none."""
    with (seeds / "cost_rates.csv").open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["device_type"] == device_type]
    rates = [
        CostRate(
            device_type=device_type,
            usd_per_gpu_hour=float(row["usd_per_gpu_hour"]),
            includes_energy=row["includes_energy"] == "true",
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

    def rates(self) -> Iterator[dict[str, Any]]:
        """One rate per device type, as CostRate has them. UnreadableList where the list does not give exactly one."""
        rows = self._rows()
        for gpu, device_type in self.device_types.items():
            mine = [row for row in rows if row[self.gpu] == gpu]
            prices = sorted({round(self._price(row), 6) for row in mine if row[self.usd_per_hour]})
            if len(prices) != 1:
                found = ", ".join(f"{price:g}" for price in prices) or "none"
                raise UnreadableList(
                    f"{self.path}: {len(mine)} rows of {gpu} where {self.where}: expected one price per GPU-hour, found"
                    f" {found}; `where` may keep fewer rows"
                )
            stated = self.model_dump(include={"source", "includes_energy", "valid_from", "valid_to"})
            yield {"device_type": device_type, "usd_per_gpu_hour": prices[0], **stated}

    def _rows(self) -> list[dict[str, str]]:
        try:
            with Path(self.path).open(newline="", encoding="utf-8-sig") as lines:
                reader = csv.DictReader(lines, restval="")
                missing = {self.gpu, self.gpu_count, self.usd_per_hour, *self.where} - set(reader.fieldnames or [])
                if missing:
                    raise UnreadableList(f"{self.path}: no column {sorted(missing)}; there are {reader.fieldnames}")
                return [row for row in reader if all(row[column] == kept for column, kept in self.where.items())]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise UnreadableList(f"{self.path}: cannot be read: {error}") from error

    def _price(self, row: dict[str, str]) -> float:
        try:
            usd, gpus = float(row[self.usd_per_hour]), float(row[self.gpu_count])
            if 0 <= usd < 1e6 and 0 < gpus <= 1024:
                return usd / gpus
        except ValueError:
            pass
        price = f"{row[self.usd_per_hour]!r} USD for {row[self.gpu_count]!r} GPUs"
        raise UnreadableList(f"{self.path}: {row[self.gpu]}: got {price}, expected a price and a count of GPUs")


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
