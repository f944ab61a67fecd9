"""What a kWh costs at a site: by its local hours and dates, as the fleet file states it.

Add a way to state a tariff here. Keep out what a GPU-hour costs (`cost_rates`) and what a tariff is multiplied by: SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import combinations

from pydantic import model_validator

from pipelines.fleet.values import Dated, Number


class Tariff(Dated):
    """A price per kWh in local hours [from, to)."""

    usd_per_kwh: Number
    local_hours: tuple[int, int] = (0, 24)

    @model_validator(mode="after")
    def _within_a_day(self) -> Tariff:
        first, end = self.local_hours
        if not 0 <= first < end <= 24:
            raise ValueError(f"local_hours: got [{first}, {end}], expected 0 <= from < to <= 24")
        return self

    def __str__(self) -> str:
        first, end = self.local_hours
        until = f" to {self.valid_to}" if self.valid_to else ""
        return f"{self.usd_per_kwh:g} USD/kWh, hours {first} to {end}, from {self.valid_from}{until}"

    def is_in_force(self, on: date) -> bool:
        """Whether it prices hours of a local date."""
        return self.valid_from <= on and (self.valid_to is None or on < self.valid_to)

    def overlaps(self, other: Tariff) -> bool:
        """Whether both would price the same hour."""
        return max(self.local_hours[0], other.local_hours[0]) < min(self.local_hours[1], other.local_hours[1]) and max(
            self.valid_from, other.valid_from
        ) < min(self.valid_to or date.max, other.valid_to or date.max)


def double_tariffs(site: str, tariffs: Sequence[Tariff]) -> Iterator[str]:
    """Pairs of tariffs of a site that price the same local hour of the same local date: a line each, with both."""
    for (n, earlier), (m, later) in combinations(enumerate(tariffs), 2):
        if earlier.overlaps(later):
            yield (
                f"sites[{site}].tariff[{m}] ({later}): prices local hours that tariff[{n}] ({earlier}) prices already,"
                " expected one price per local hour and date: keep one of them, change local_hours, or end the earlier"
                " one (valid_to is the first date that is not priced)"
            )


def unpriced_hours(site: str, tariffs: Sequence[Tariff], first: date, last: date) -> Iterator[str]:
    """A line for tariffs of a site that leave out hours of a local day, with the first date on which they do. A date
    without any tariff is one that is not priced."""
    changes = {first, *(one.valid_from for one in tariffs), *(one.valid_to for one in tariffs if one.valid_to)}
    for on in sorted(day for day in changes if first <= day <= last):
        priced = {hour for one in tariffs if one.is_in_force(on) for hour in range(*one.local_hours)}
        if 0 < len(priced) < 24:
            bounded = priced | {-1, 24}
            edges = [n for n in range(25) if (n in bounded) != (n - 1 in bounded)]
            shown = ", ".join(f"{start} to {end}" for start, end in zip(edges[::2], edges[1::2], strict=True))
            yield (
                f"sites[{site}].tariff: got prices for {len(priced)} of 24 hours, expected a price for each:"
                f" electricity of the local hours {shown} has no cost from {on} on"
            )
            return
