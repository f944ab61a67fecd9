"""The bench's printed lines: a row for each process, a line for each ratio with its aim.

Add here another kind of line. Keep out what is measured.
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from importlib.metadata import version

from bench.children import Cost
from bench.product import Job

COLUMNS = ("", "wall s", "cpu s", "peak MiB", "land s", "M rows/s", "seeds s", "models s", "checks s", "publish s")
WIDTHS = (46, *(max(len(column), 8) for column in COLUMNS[1:]))


def machine() -> str:
    """The machine and the packages that the figures are of."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("duckdb", "dagster", "dbt-core"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {memory_gib:.0f} GiB, Python {platform.python_version()}, {packages}"


def heading(title: str) -> None:
    print(f"\n{title}")
    cells = [column.rjust(width) if column else " " * width for column, width in zip(COLUMNS, WIDTHS, strict=True)]
    print(" ".join(cells).rstrip(), flush=True)


def row(name: str, cost: Cost, land: float, rows: int, *steps: float | None) -> None:
    cells = [f"{cost.seconds:.1f}", f"{cost.cpu_seconds:.1f}", f"{cost.peak_mib}"]
    cells += [f"{land:.2f}", f"{rows / land / 1e6:.2f}" if rows else "-"]
    cells += ["-" if step is None else f"{step:.2f}" for step in steps]
    print(name.ljust(WIDTHS[0]), " ".join(c.rjust(w) for c, w in zip(cells, WIDTHS[1:], strict=False)), flush=True)


def job(name: str, job: Job) -> None:
    steps = (job.steps[step] for step in ("seeds", "models", "checks", "publish"))
    row(name, job.cost, job.steps["land"], job.rows, *steps)


def median(name: str, values: Iterable[float]) -> None:
    values = list(values)
    print(f"  {name}: {statistics.median(values):.2f} ({', '.join(f'{value:.2f}' for value in values)})", flush=True)


def ratio(name: str, by_wall: list[float], by_cpu: list[float]) -> None:
    median(name, by_wall)
    median("  the same by processor seconds", by_cpu)


def processors(jobs: Sequence[Job], floor_land_cpu_seconds: Sequence[float], empty: Job) -> None:
    """The processor seconds of landing beside the floor's, of everything else, and the peak, of jobs run in turn."""
    land = [job.land_cpu_seconds for job in jobs if job.land_cpu_seconds is not None]
    other = [job.other_cpu_seconds for job in jobs if job.other_cpu_seconds is not None]
    if land and other and empty.other_cpu_seconds is not None:
        ratios = [one / floor for one, floor in zip(land, floor_land_cpu_seconds, strict=True)]
        median("  landing, processor s / the floor's landing, aim 1.2", ratios)
        median("    processor s of the product's landing", land)
        median("    processor s of the floor's landing", floor_land_cpu_seconds)
        median("  everything but landing, processor s, aim 35 at 10,000 GPUs", other)
        median("    beyond the empty day's", [one - empty.other_cpu_seconds for one in other])
    else:
        print("  processor seconds of landing and of the rest: not measured, there is no /proc here", flush=True)
    print(f"  peak MiB, aim 4096: {max(job.cost.peak_mib for job in jobs)}", flush=True)
