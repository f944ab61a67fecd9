"""A long backfill in one command: seconds per day and memory as it goes on, and what the next day costs on top of it.

Add here what a fleet's owner asks of a backfill. Keep out the run itself (`product.Fleet`).
"""

from __future__ import annotations

from datetime import date
from itertools import pairwise

import duckdb

from bench import table
from bench.product import Fleet, Job, steps_of

STRETCHES = 6


def print_run(fleet: Fleet, start: date, days: int) -> None:
    """Book `days` from `start` on in one command; print seconds per day, and the most memory of stretches and steps."""
    job = fleet.run(start, days)
    table.job(f"  {days} days in one command", job)
    print(f"  seconds per day: {job.cost.seconds / days:.2f}, processor s {job.cost.cpu_seconds / days:.2f}")
    landed_at = _landed_at(fleet)
    size = max(1, len(landed_at) // STRETCHES)
    edges = [*range(0, len(landed_at) - size, size), len(landed_at) - 1]
    print("  landing, by stretch of days:")
    for first, last in pairwise(edges):
        began, end = landed_at[first], landed_at[last]
        print(f"    days {first + 1} to {last}: {(end - began) / (last - first):.3f} s a day, {_held(job, began, end)}")
    print("  each part of more than a second:")
    steps = steps_of(fleet.home)
    if job.cost.readings:
        # Imports, and an event of each asset and day that Dagster notes as planned.
        began = job.cost.readings[0].at
        first, last = min(step.start for step in steps), max(step.end for step in steps)
        _print_part("before the first step", job, began, first)
        _print_part("after the last step", job, last, began + job.cost.seconds)
    for step in steps:
        _print_part(step.key, job, step.start, step.end)
    print(f"  the most memory, MiB: {job.cost.peak_mib}", flush=True)


def print_next_day(alone: Fleet, grown: Fleet, on: date, pairs: int) -> None:
    """Book the day after them, on top of them and on a warehouse without them, in turn; print both and the ratio."""
    for fleet in (grown, alone):
        table.job(f"  {fleet.name}: the day for the first time", fleet.run(on))
    by_wall, by_cpu, published = [], [], []
    for _ in range(pairs):
        one, many = _again(alone, on), _again(grown, on)
        by_wall.append(many.cost.seconds / one.cost.seconds)
        by_cpu.append(many.cost.cpu_seconds / one.cost.cpu_seconds)
        published.append(many.steps["publish"])
    table.ratio("on all days / alone, aim 1.1", by_wall, by_cpu)
    table.median("publishing it on all days, s, aim 3", published)


def _again(fleet: Fleet, on: date) -> Job:
    job = fleet.run(on)
    table.job(f"  {fleet.name}: the day again", job)
    return job


def _landed_at(fleet: Fleet) -> list[float]:
    """When each day's landing was noted, in the order of landing (Unix seconds)."""
    query = "select epoch(landed_at) from raw.landings where source = 'power' and outcome = 'landed' order by landed_at"
    with duckdb.connect(str(fleet.warehouse), read_only=True) as connection:
        return [float(at) for (at,) in connection.execute(query).fetchall()]


def _print_part(name: str, job: Job, start: float, end: float) -> None:
    if end - start > 1:
        used = job.cost.cpu_between(start, end)
        processors = "-" if used is None else f"{used:.1f}"
        print(f"    {name}: {end - start:.1f} s (processor s {processors}), {_held(job, start, end)}", flush=True)


def _held(job: Job, start: float, end: float) -> str:
    held = job.cost.held_between(start, end)
    return "memory not measured: there is no /proc here" if held is None else f"at most {held:.0f} MiB"
