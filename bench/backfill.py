"""A long backfill in one command: seconds per day and memory as it goes on, and what the next day costs on top of it.

Add here what a fleet's owner asks of a backfill. Keep out the run itself (`product.Fleet`).
"""

from __future__ import annotations

from datetime import date

from bench import table
from bench.product import Fleet, Job


def print_run(fleet: Fleet, start: date, days: int) -> None:
    """Book `days` from `start` on in one command; print seconds per day and the most memory, also of each run."""
    job = fleet.run(start, days)
    table.job(f"  {days} days in one command", job)
    print(f"  seconds per day: {job.cost.seconds / days:.2f}, processor s {job.cost.cpu_seconds / days:.2f}")
    print("  each run of it, from the end of the one before:")
    began = job.cost.readings[0].at if job.cost.readings else job.stretches[0].start
    for one in job.stretches:
        dates = (date.fromisoformat(one.last) - date.fromisoformat(one.first)).days + 1
        used = job.cost.cpu_between(began, one.end)
        processors = "-" if used is None else f"{used / dates:.2f}"
        print(
            f"    {one.first} to {one.last}: {(one.end - began) / dates:.2f} s a day (processor s {processors}),"
            f" {_held(job, began, one.end)}"
        )
        began = one.end
    last = job.stretches[-1]
    print("  each part of the last run of more than a second:")
    _print_part("before its first step", job, last.start, min(step.start for step in last.steps))
    for step in last.steps:
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


def _print_part(name: str, job: Job, start: float, end: float) -> None:
    if end - start > 1:
        used = job.cost.cpu_between(start, end)
        processors = "-" if used is None else f"{used:.1f}"
        print(f"    {name}: {end - start:.1f} s (processor s {processors}), {_held(job, start, end)}", flush=True)


def _held(job: Job, start: float, end: float) -> str:
    held = job.cost.held_between(start, end)
    return "memory not measured: there is no /proc here" if held is None else f"at most {held:.0f} MiB"
