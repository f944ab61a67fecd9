"""What a GPU-hour costs: rates that the fleet file states, and price lists of GPUs that it names.

Add a way to state a rate here. Keep out rates that everybody may assume (dbt_project/seeds/cost_rates.csv) and what a
rate is multiplied by: SQL.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import Field

from pipelines.sources import FleetPath, Name, NonNegative, Part


class UnreadableList(Exception):
    """A price list cannot be read as the fleet file says; the message names file, column and what there is."""


class CostRate(Part):
    """What one GPU-hour of a device type costs this fleet; stands before the seed's rows. A rented or colocated GPU's
    rate usually `includes_energy`: the electricity is not charged again."""

    device_type: Name
    usd_per_gpu_hour: NonNegative
    includes_energy: bool = False
    valid_from: date = date(1970, 1, 1)
    valid_to: date | None = None
    source: Name


class CostRateFile(Part):
    """A CSV of instance types with their price: the rate is the price of an instance over its GPUs.

    `where` keeps the rows of one provider, region or instance type; `device_types` maps the list's names of GPUs to
    ours. What rents a GPU by the hour pays its electricity, so the rates include energy unless the file says otherwise.
    """

    path: FleetPath
    source: Name
    device_types: dict[Name, Name] = Field(min_length=1)
    where: dict[Name, str] = Field(default_factory=dict)
    gpu: Name = "gpu"
    gpu_count: Name = "gpu_count"
    usd_per_hour: Name = "usd_per_hour_ondemand"
    includes_energy: bool = True
    valid_from: date = date(1970, 1, 1)
    valid_to: date | None = None

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
        told = f"{row[self.usd_per_hour]!r} USD for {row[self.gpu_count]!r} GPUs"
        raise UnreadableList(f"{self.path}: {row[self.gpu]}: got {told}, expected a price and a count of GPUs")
