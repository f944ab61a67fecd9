"""Which money of advice is saved now, which at a date and which never, with all advice to follow taken together.

Here and not in SQL, because which boards fall free on which nodes follows from all advice that is followed at once, one
piece after another. Add here what keeps a freed accelerator from being handed back. Keep out which advice is followed
(`preference`), what accelerators cost and until when (SQL: int_advised_capacity_prices) and energy (`savings`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd

from pipelines.analysis.savings import HOURS_PER_MONTH

MONTH = timedelta(days=31)  # for so long an accelerator must not be needed for a contract, to be given back at a date
LEAST_GPUS = 1e-6
COLUMNS = [
    *("avoidable_now_usd_month", "avoidable_later_usd_month", "avoidable_from", "not_avoidable_usd_month"),
    *("avoidable_basis", "saving_now_usd_month"),
]


@dataclass(frozen=True)
class Layer:
    """Accelerators of a type at a site that are paid for in one way. They need not be paid from `avoidable_from` on;
    None: never. USD NaN: not known."""

    words: str
    gpus: float
    usd_per_gpu_hour: float
    avoidable_from: date | None
    is_now: bool = False


def split(rows: pd.DataFrame, boards: pd.DataFrame, prices: pd.DataFrame) -> pd.DataFrame:
    """COLUMNS of each row, which is all advice to follow.

    `rows`: `recommendation_id`, `exclusive_group_id`, `holder`, `site`, `device_type`, `current_gpus`, `freed_gpus`,
    `saving_energy_usd_month`, `saving_usd_month_if_released`, and the unit to which a row moves what it keeps
    (`move_to_node`, None: nowhere). `boards` as int_advised_boards: which units (nodes or boards, whatever is handed
    back whole) each holder has. `prices` as int_advised_capacity_prices.

    Of each site and device type, hours on demand are given back first, then those at a spot price, then committed ones
    by the end of their commitment: so the book charges a smaller fleet. What is owned comes last. Each hour is given
    back once: by accelerators that are free already, then by rows in the order of `ordered`.
    """
    rows = ordered(rows)
    given, free = handed_back(rows, boards)
    left = {
        place: layers(float(of_type["gpus"].sum()), _at(prices, place))
        for place, of_type in boards.groupby(["site", "device_type"], sort=True)
    }
    for place, gpus in free.items():
        _take(left.get(place, []), gpus)
    found = {
        row["recommendation_id"]: _amounts(
            row, _take(left.get((row["site"], row["device_type"]), []), min(given.get(row["holder"], 0.0), _freed(row)))
        )
        for row in rows.to_dict("records")
    }
    made = pd.DataFrame.from_dict(found, orient="index", columns=COLUMNS)
    return made.rename_axis("recommendation_id").reset_index()


def ordered(rows: pd.DataFrame) -> pd.DataFrame:
    """The order in which rows give back hours: the greatest saving_usd_month_if_released first, then by
    `exclusive_group_id`, which stays the same from day to day."""
    return rows.assign(usd=rows["saving_usd_month_if_released"].astype(float).fillna(-np.inf)).sort_values(
        ["usd", "exclusive_group_id", "recommendation_id"], ascending=[False, True, True], ignore_index=True
    )


def handed_back(rows: pd.DataFrame, boards: pd.DataFrame) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
    """How many GPUs each holder of `rows` frees on units that are empty then, and how many of each site and device type
    are free there already.

    A holder that keeps some of its GPUs empties whole units of its own where no other holds anything, the largest
    first; the rest leaves the units that others hold least of. What stays of it is as close together as it can be.
    Who moves takes boards that others left, and these give back as many of the mover's instead.
    """
    units = _Units(boards)
    freeing = rows[rows["freed_gpus"] > 0]
    goes = freeing["freed_gpus"] >= freeing["current_gpus"] - LEAST_GPUS
    for holder in freeing.loc[goes, "holder"]:
        for unit in units.of(holder):
            units.free(holder, unit, np.inf)
    is_moving = rows["move_to_node"].notna()
    for row in freeing[~goes & ~is_moving.reindex(freeing.index)].to_dict("records"):
        units.free_together(row["holder"], float(row["freed_gpus"]))
    taken = [
        ((row["site"], row["device_type"]), units.move(row["holder"], row["move_to_node"], _kept(row)))
        for row in rows[is_moving].to_dict("records")
    ]
    is_free = boards["holder"].isna() & boards["unit"].notna() & ~boards["unit"].isin(units.occupied())
    already = boards[is_free].groupby(["site", "device_type"])["gpus"].sum().astype(float).to_dict()
    for place, gpus in taken:
        already[place] = already.get(place, 0.0) + gpus
    return units.freed(), already


class _Units:
    """Nodes or boards, whatever is handed back whole, and who holds how much of each."""

    def __init__(self, boards: pd.DataFrame) -> None:
        self._held: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._freed: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        # What is on an unnamed node stays: who else is there is not known.
        for board in boards[boards["holder"].notna() & boards["unit"].notna()].to_dict("records"):
            self._held[board["unit"]][board["holder"]] += float(board["gpus"])

    def of(self, holder: str) -> list[str]:
        return sorted(unit for unit, holders in self._held.items() if holder in holders)

    def others(self, holder: str, unit: str) -> float:
        """GPUs of a unit that others hold."""
        return sum(gpus for name, gpus in self._held[unit].items() if name != holder)

    def free(self, holder: str, unit: str, gpus: float) -> float:
        """Free at most so many; returns how many it held."""
        gone = min(gpus, self._held[unit][holder])
        self._held[unit][holder] -= gone
        self._freed[holder][unit] += gone
        return gone

    def free_together(self, holder: str, gpus: float) -> None:
        """Free so many, whole units first."""
        own = self.of(holder)
        alone = [unit for unit in own if self.others(holder, unit) <= LEAST_GPUS]
        for unit in sorted(alone, key=lambda unit: (-self._held[unit][holder], unit)):
            if self._held[unit][holder] <= gpus + LEAST_GPUS:
                gpus -= self.free(holder, unit, gpus)
        for unit in sorted(own, key=lambda unit: (self.others(holder, unit), self._held[unit][holder], unit)):
            gpus -= self.free(holder, unit, max(gpus, 0.0))

    def move(self, holder: str, unit: str, gpus: float) -> float:
        """Move a holder to a unit on which so many of its boards are needed. Who left that unit gives back as many of
        the boards that the mover leaves; returns how many of them were free before."""
        left = self.of(holder)[0]
        self.free(holder, left, np.inf)
        self._held[unit][holder] += gpus
        for other in sorted(name for name, units in self._freed.items() if name != holder and units[unit] > 0):
            part = min(gpus, self._freed[other][unit])
            self._freed[other][unit] -= part
            self._freed[other][left] += part
            self._freed[holder][left] -= part
            gpus -= part
        self._freed[holder][left] -= gpus
        return gpus

    def occupied(self) -> set[str]:
        return {unit for unit, holders in self._held.items() if sum(holders.values()) > LEAST_GPUS}

    def freed(self) -> dict[str, float]:
        """GPUs that each holder freed on units that are empty then."""
        used = self.occupied()
        return {
            holder: sum(gpus for unit, gpus in units.items() if unit not in used)
            for holder, units in self._freed.items()
        }


def layers(gpus: float, prices: pd.DataFrame) -> list[Layer]:
    """What so many GPUs of a type at a site are paid as, in the order in which they are given back."""
    if prices.empty:
        return [Layer("at an unknown price", gpus, np.nan, None, is_now=True)]
    today = _date(prices["on_date"].max()) or date.min
    spot, rated = (prices[prices["paid_as"].isin(names)] for names in (("spot",), ("on_demand", "owned")))
    contracts = [
        (_date(row["valid_from"]) or date.min, _date(row["valid_to"]) or date.max, float(row["gpus"]), row)
        for row in prices[prices["paid_as"] == "committed"].to_dict("records")
    ]

    def committed(on: date) -> float:
        """The most that a month from this date on is paid for by contract."""
        until = min(on, date.max - MONTH) + MONTH
        starts = {on, *(start for start, *_ in contracts if on < start < until)}
        return max(sum(n for start, end, n, _ in contracts if start <= at < end) for at in starts)

    covered = min(committed(today), gpus)
    spots = min(float(spot["gpus"].sum()), gpus - covered)
    rest = gpus - covered - spots
    is_owned = bool((rated["paid_as"] == "owned").any())
    usd = float(rated["usd_per_gpu_hour"].iloc[0]) if len(rated) else np.nan
    spot_usd = float(spot["usd_per_gpu_hour"].iloc[0]) if len(spot) else np.nan
    on_demand = Layer("owned", rest, usd, None) if is_owned else Layer("on demand", rest, usd, today, is_now=True)
    made = [] if is_owned else [on_demand]
    made.append(Layer("at a spot price", spots, spot_usd, today, is_now=True))
    made += _committed(contracts, covered, committed)
    return [layer for layer in (*made, *([on_demand] if is_owned else [])) if layer.gpus > LEAST_GPUS]


def _committed(contracts: list[Any], covered: float, committed: Callable[[date], float]) -> Iterator[Layer]:
    """Committed GPUs by the date from which they need not be paid: where a contract ends and none takes its place."""
    bound, since = covered, date.min
    for on in sorted({end for _, end, *_ in contracts if end < date.max}):
        freed = bound - min(bound, committed(on))
        if freed > LEAST_GPUS:
            ended = [(n, row) for _, end, n, row in contracts if since < end <= on]
            yield Layer(f"committed until {on}", freed, _mean_usd(ended), on)
            bound -= freed
        since = on
    if bound > LEAST_GPUS:
        ended = [(n, row) for _, end, n, row in contracts if since < end]
        yield Layer("committed without an end", bound, _mean_usd(ended), None)


def _mean_usd(contracts: Iterable[tuple[float, Any]]) -> float:
    gpus, usd = np.array([(n, float(row["usd_per_gpu_hour"])) for n, row in contracts]).T
    return float(gpus @ usd / gpus.sum())


def _take(left: list[Layer], gpus: float) -> list[Layer]:
    """So many GPUs off the layers, from the first on; what is taken is gone."""
    taken = []
    while left and gpus > LEAST_GPUS:
        first = left.pop(0)
        part = min(first.gpus, gpus)
        taken.append(Layer(first.words, part, first.usd_per_gpu_hour, first.avoidable_from, first.is_now))
        if first.gpus - part > LEAST_GPUS:
            rest = first.gpus - part
            left.insert(0, Layer(first.words, rest, first.usd_per_gpu_hour, first.avoidable_from, first.is_now))
        gpus -= part
    return taken


def _amounts(row: dict[str, Any], taken: list[Layer]) -> list[Any]:
    """COLUMNS of a row that gives back these accelerators; what stays is paid at the row's mean price as before."""
    energy, released = (
        np.nan if pd.isna(row[name]) else float(row[name])
        for name in ("saving_energy_usd_month", "saving_usd_month_if_released")
    )
    freed = _freed(row)
    if freed <= LEAST_GPUS:
        return [np.nan, np.nan, None, np.nan, None, energy]
    stays = max(freed - sum(layer.gpus for layer in taken), 0.0)
    stays = stays if stays > LEAST_GPUS else 0.0
    now = _usd(layer for layer in taken if layer.is_now)
    later = [layer for layer in taken if layer.avoidable_from is not None and not layer.is_now]
    never = _usd(layer for layer in taken if layer.avoidable_from is None and not layer.is_now)
    words = [f"{layer.gpus:g} {layer.words}" for layer in taken]
    words += [f"{stays:g} beside accelerators that stay in use"] if stays else []
    return [
        now,
        _usd(later),
        max((layer.avoidable_from for layer in later if layer.avoidable_from), default=None),
        never + (stays * released / freed if stays else 0.0),
        "; ".join(words),
        float(np.nansum([now, energy])) if np.isfinite([now, energy]).any() else np.nan,
    ]


def _freed(row: dict[str, Any]) -> float:
    return 0.0 if pd.isna(row["freed_gpus"]) else float(row["freed_gpus"])


def _kept(row: dict[str, Any]) -> float:
    return float(row["current_gpus"]) - _freed(row)


def _usd(taken: Iterable[Layer]) -> float:
    return float(sum(layer.gpus * layer.usd_per_gpu_hour * HOURS_PER_MONTH for layer in taken))


def _at(prices: pd.DataFrame, place: Any) -> pd.DataFrame:
    return prices[(prices["site"] == place[0]) & (prices["device_type"] == place[1])]


def _date(value: Any) -> date | None:
    """A date of a frame, which has it as a timestamp once any of its column is one."""
    return None if pd.isna(value) else pd.Timestamp(value).date()
