"""The demo's advice of its first weeks against what its later dates asked for and drew.

No engine can be replayed here: demand beyond the recommended capacity counts as short, and what is saved is what the
freed accelerators drew on the later dates, above the bare watts of the type. Keep out fleets that are served
(`advice`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from bench import children
from pipelines.advice import advised
from pipelines.analysis import preference, right_sizing, savings, sizes, sleep

FLEET = "fleets/demo.yaml"
FIRST, LAST = date(2026, 10, 1), date(2026, 10, 29)
EVENINGS = (7, 14, 21)  # days that are booked when advice is given


def demo_lines(folder: Path) -> Iterator[str]:
    """A line per change that was preferred on an evening: what the later dates were short of, and what they saved."""
    variables = {"WATTLEDGER_DATA": str(folder / "demo"), "DAGSTER_HOME": str(folder / "demo" / "dagster")}
    (folder / "demo" / "dagster").mkdir(parents=True)
    given: list[tuple[int, pd.DataFrame, dict[str, frozenset[int]]]] = []
    booked = 0
    for evening in (*EVENINGS, (LAST - FIRST).days):
        span = ("--start", FIRST + timedelta(booked), "--end", FIRST + timedelta(evening))
        children.run("pipelines", "run", "--fleet", FLEET, *span, variables=variables)
        booked = evening
        if evening in EVENINGS:
            with _opened(folder) as connection:
                rows = connection.execute("select * from published.right_sizing where is_preferred").df()
                given.append((evening, rows, slots_of_sleep(connection)))
    with _opened(folder) as connection:
        usage, days = advised.usage(connection), advised.read(connection, "days")
        demand = advised.read(connection, "intervals")
    yield "| advised after | model | change | short of the capacity | hurts | promised kWh | realised kWh | within |"
    yield "|---|---|---|---|---|---|---|---|"
    for evening, rows, slots in given:
        for row in rows[~rows["kind"].isin(preference.NO_CHANGE)].to_dict("records"):
            yield _line(row, evening, slots.get(row["model"], frozenset()), (usage, demand, days))


@contextmanager
def _opened(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    path = folder / "demo" / "demo" / "warehouse.duckdb"
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute("set TimeZone = 'UTC'")
        yield connection


def slots_of_sleep(connection: duckdb.DuckDBPyConnection) -> dict[str, frozenset[int]]:
    """Model -> the hours of the local week (0: Monday 0:00) through which it may sleep, as advice finds them."""
    usage, hours = advised.usage(connection), advised.read(connection, "hours")
    windows = sleep.windows(sleep.sleepers(usage), hours, "weeks", "idle_weeks")
    return {
        str(usage.loc[number, "model"]): frozenset(own["slot"].astype(int)) for number, own in windows.groupby("usage")
    }


def _line(
    row: dict[str, Any],
    evening: int,
    slots: frozenset[int],
    known: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame],
) -> str:
    usage, demand, days = known
    (number,) = usage.index[(usage[sizes.KEYS] == pd.Series(row)[sizes.KEYS]).all(axis=1)]
    later = pd.Timestamp(FIRST + timedelta(evening))
    asked = demand[(demand["usage"] == number) & (pd.to_datetime(demand["date"]) >= later)]
    own = days[days["usage"] == number]
    is_later = pd.to_datetime(own["date"]) >= later
    if row["kind"] == "sleep_outside_hours":
        short = asked["slot"].isin(slots) & ~asked["is_parked"]
        ratio = float(short.mean())
    else:
        counts = right_sizing.shortfalls(pd.DataFrame([row]).assign(candidate=0, usage=number), asked)
        ratio = float(counts["short_intervals"].iloc[0] / counts["intervals"].iloc[0])
    # What it is above bare watts, then and before: a saving is in proportion to that.
    joules, seconds = savings.FOLLOWS[row["kind"]]
    before, after = (
        own.loc[which, joules].sum() / own.loc[which, seconds].sum() - usage.loc[number, "idle_watts_bare"]
        for which in (~is_later, is_later)
    )
    realised = row["saving_kwh_month"] * after / before
    is_within = row["saving_low"] <= realised <= row["saving_high"]
    within = "–" if not np.isfinite(row["saving_low"]) else "yes" if is_within else "no"
    hurts = "yes" if ratio > right_sizing.ALLOWED_SHORT_RATIO else "no"
    return (
        f"| {evening} days | {row['model']} | {row['kind']} | {ratio:.2%} | {hurts} | {row['saving_kwh_month']:.1f}"
        f" | {realised:.1f} | {within} |"
    )
