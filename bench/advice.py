"""Advice against what came of it: `python -m bench.advice --seeds 1 2` prints tables.

A fleet is served whose capacity is known (`served_load`), what its exporters would have reported is booked by the
product week by week, and each change that `published.right_sizing` prefers on the evening of a week is made in the 30
days after it (`advice_replay`): the same requests, on the recommended size. The demo has recorded demand alone
(`advice_of_demo`). Add a figure of the score here. Keep out how a size is replayed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from bench import served_fleet, served_telemetry
from bench.advice_of_demo import demo_lines, slots_of_sleep
from bench.advice_replay import Change, Month, Replays
from bench.fleet_day import FIRST_DAY
from bench.product import Fleet
from bench.served_fleet import DAY, Deployment
from bench.served_load import Served, serve
from pipelines.analysis import preference
from pipelines.analysis.savings import HOURS_PER_MONTH

EVENINGS = (14, 21, 28, 35)  # days that are booked when advice is given
AFTER_DAYS = 30  # that follow it: a saving promises the coming 30 days
PUE = 1.2  # of the site of `product.Fleet`


@dataclass(frozen=True)
class Outcome:
    """One row of advice, and the days after it with and without the change. Savings in kWh a month."""

    kind: str
    demand: str
    has_slo: bool
    waits: bool
    is_late: bool
    promised: float
    low: float
    high: float
    realised: float
    slower: float  # median seconds per token, over those without the change

    @property
    def hurts(self) -> bool:
        return self.waits or self.is_late

    @property
    def holds(self) -> bool:
        """Whether what was saved is within the interval of the promise."""
        return self.low <= self.realised <= self.high


def serve_fleet(fleet: list[Deployment], days: int, minutes_until: int) -> dict[str, list[Served]]:
    """All deployments as they are: a sample a minute for some days, then one a day."""
    sampled_at = np.concatenate(
        [np.arange(0, minutes_until * DAY, served_telemetry.SAMPLE_SECONDS), np.arange(minutes_until, days + 1) * DAY]
    )
    return {
        one.name: [serve(one.engine, part, sampled_at) for part in one.requests.dealt(one.replicas)] for one in fleet
    }


def advice(connection: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """A row of published.right_sizing per deployment, and the hours of the week in which each that sleeps does: the
    preferred one; where a plan of published.consolidation is preferred, the one that saves most."""
    rows = connection.execute(
        "select * from published.right_sizing qualify row_number() over ("
        "partition by exclusive_group_id order by is_preferred desc, saving_kwh_month desc nulls last) = 1"
    ).df()
    slots = slots_of_sleep(connection)
    return rows.assign(slots=[slots.get(model, frozenset()) for model in rows["model"]])


def change_of(row: dict[str, Any], one: Deployment) -> Change | None:
    """What a row of advice has done; None where it changes nothing."""
    if row["kind"] in preference.NO_CHANGE:
        return None
    if row["kind"] == "sleep_outside_hours":
        return Change(one.replicas, one.engine.boards, row["slots"])
    if row["kind"] == "spin_down":
        return Change(0, 0)
    return Change(int(row["recommended_replicas"]), int(row["recommended_gpus_per_replica"]))


def outcome(row: dict[str, Any], one: Deployment, change: Change, replays: Replays, evening: int) -> Outcome:
    """The days after an evening with and without a change."""
    span = evening, evening + AFTER_DAYS
    before, after = replays.month(one, None, *span), replays.month(one, change, *span)
    waits, is_late = after.hurts(before)
    return Outcome(
        kind=row["kind"],
        demand=one.demand,
        has_slo=not np.isnan(one.slo_seconds),
        waits=waits,
        is_late=is_late,
        promised=float(row["saving_kwh_month"]),
        low=float(row["saving_low"]),
        high=float(row["saving_high"]),
        realised=kwh_month(before, after),
        slower=after.token_seconds / before.token_seconds,
    )


def kwh_month(before: Month, after: Month) -> float:
    """What the facility saves in a month of 730 hours, as a saving is promised."""
    watts = (before.joules - after.joules) / (AFTER_DAYS * DAY)
    return watts * HOURS_PER_MONTH / 1000 * PUE


def table(outcomes: Iterable[Outcome], by: Callable[[Outcome], str], heading: str) -> Iterator[str]:
    """Lines of a table, a row per value of `by`."""
    rows = sorted(outcomes, key=by)
    yield (
        f"| {heading} | advice | hurts | by waiting | by the SLO | slower | promised kWh | realised kWh | ratio |"
        " within |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    names = list(dict.fromkeys(map(by, rows)))
    for name in [*names, "all"]:
        own = [one for one in rows if name in ("all", by(one))]
        promised, realised = sum(one.promised for one in own), sum(one.realised for one in own)
        slo = [one.is_late for one in own if one.has_slo]
        known = [one.holds for one in own if np.isfinite(one.low)]
        slower = [one.slower for one in own if np.isfinite(one.slower)]
        yield (
            f"| {name} | {len(own)} | {_share(one.hurts for one in own)} | {_share(one.waits for one in own)}"
            f" | {_share(slo)} | {f'{np.median(slower):.2f}' if slower else '–'} | {promised:.0f} | {realised:.0f}"
            f" | {f'{realised / promised:.2f}' if promised else '–'} | {_share(known)} |"
        )


def _share(are: Iterable[bool]) -> str:
    known = list(are)
    return f"{sum(known)} of {len(known)}" if known else "–"


def smaller(one: Deployment) -> list[Change]:
    """The next smaller sizes: a replica less, and half of the boards where the weights fit."""
    found = [Change(one.replicas - 1, one.engine.boards)] if one.replicas > 1 else []
    half = one.engine.boards // 2
    return found + ([Change(one.replicas, half)] if half and one.engine.on(half).kv_tokens > 0 else [])


@dataclass(frozen=True)
class Kept:
    """A deployment of which no change was advised, why not, and whether a smaller size would have been enough."""

    reason: str
    fits_smaller: bool


def score(
    fleet: list[Deployment], replays: Replays, rows: pd.DataFrame, evening: int
) -> tuple[list[Outcome], list[Outcome], list[Kept]]:
    """What was advised on an evening, what was to be tried, and what was kept."""
    advised_rows, tried, kept = [], [], []
    by_model = {row["model"]: row for row in rows.to_dict("records")}
    for one in fleet:
        if one.name not in by_model:
            continue
        row = by_model[one.name]
        change = change_of(row, one)
        if change is not None:
            advised_rows.append(outcome(row, one, change, replays, evening))
            continue
        if row["kind"] == "try_it":
            size = Change(int(row["trial_replicas"]), int(row["trial_gpus_per_replica"]))
            tried.append(outcome(row, one, size, replays, evening))
        span = evening, evening + AFTER_DAYS
        before = replays.month(one, None, *span)
        fits = [not any(replays.month(one, size, *span).hurts(before)) for size in smaller(one)]
        kept.append(Kept(f"{row['kind']} {row['reason_code']}", any(fits)))
    return advised_rows, tried, kept


def back_test(seed: int, folder: Path) -> tuple[list[Outcome], list[Outcome], list[Kept]]:
    """A fleet of a seed, booked week by week by the product."""
    days = EVENINGS[-1] + AFTER_DAYS + 1  # a day more, so that the last requests have their answers
    fleet = served_fleet.drawn(seed, days)
    served = serve_fleet(fleet, days, EVENINGS[-1])
    files = f"served-{seed}"
    served_telemetry.write(folder / files, fleet, [served[one.name] for one in fleet], EVENINGS[-1])
    product = Fleet(
        folder, f"served_{seed}", files, EVENINGS[-1], streams=("power", "tokens"), time_zone="UTC",
        interval_seconds=served_telemetry.SAMPLE_SECONDS, more=served_telemetry.fleet_lines(fleet),
    )  # fmt: skip
    # Days until a Monday, from the first on.
    replays = Replays(served, EVENINGS[0], days, (7 - FIRST_DAY.weekday()) % 7)
    found: tuple[list[Outcome], list[Outcome], list[Kept]] = [], [], []
    for first, evening in zip((0, *EVENINGS), EVENINGS, strict=False):
        print(f"seed {seed}: {evening} days", flush=True, file=sys.stderr)
        product.run(FIRST_DAY + timedelta(first), evening - first)
        with duckdb.connect(str(product.warehouse), read_only=True) as connection:
            connection.execute("set TimeZone = 'UTC'")
            rows = advice(connection)
        for all_of_a_sort, new in zip(found, score(fleet, replays, rows, evening), strict=True):
            all_of_a_sort.extend(new)  # type: ignore[arg-type]
    return found


def lines(seeds: list[int], found: tuple[list[Outcome], list[Outcome], list[Kept]]) -> Iterator[str]:
    """What is printed of the served fleets of all seeds together."""
    outcomes, tried, kept = found
    yield (
        f"seeds {', '.join(map(str, seeds))}: {len(served_fleet.DEMANDS)} deployments each, advice on the evenings of"
        f" days {', '.join(map(str, EVENINGS))}, each against the {AFTER_DAYS} days after it"
    )
    yield from table(outcomes, lambda one: one.kind, "kind")
    yield ""
    yield from table(outcomes, lambda one: one.demand, "demand")
    yield ""
    yield f"to try: {len(tried)}; too small in the {AFTER_DAYS} days after: {_share(one.hurts for one in tried)}"
    yield ""
    yield from ("| kept | rows | a smaller size was enough |", "|---|---|---|")
    for reason, rows in sorted(Counter(one.reason for one in kept).items()):
        yield f"| {reason} | {rows} | {sum(one.fits_smaller for one in kept if one.reason == reason)} |"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.advice", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--no-demo", action="store_true", help="without the demo's recorded demand")
    options = parser.parse_args(arguments)
    found: tuple[list[Outcome], list[Outcome], list[Kept]] = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds:
            for whole, part in zip(found, back_test(seed, Path(folder)), strict=True):
                whole.extend(part)  # type: ignore[arg-type]
        if options.seeds:
            print(*lines(options.seeds, found), sep="\n")
        if not options.no_demo:
            print("", *demo_lines(Path(folder)), sep="\n")


if __name__ == "__main__":
    main()
