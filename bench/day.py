"""What one day of fleets of several sizes takes: processor seconds, memory, bytes by layer, per GPU-day.

Add here another amount of a day. Keep out the floor beside it (`Bench.floor`, `Bench.ceiling`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import duckdb

from bench.product import Fleet, Job

LAYERS = ("raw", "marts", "intermediate", "publications", "history")


def print_day(gpus: int, fleet: Fleet, job: Job) -> None:
    """Two lines for a fleet whose day was just booked on a new warehouse."""
    held = _bytes_by_layer(fleet.warehouse)
    rest = job.other_cpu_seconds
    landing = "-" if job.land_cpu_seconds is None else f"{job.land_cpu_seconds:.1f}"
    print(
        f"  {gpus} GPUs: {job.cost.seconds:.1f} s, core-seconds {job.cost.cpu_seconds:.1f} (landing {landing},"
        f" the rest {'-' if rest is None else f'{rest:.1f}'}), {job.cost.cpu_seconds / gpus:.4g} per GPU-day,"
        f" peak {job.cost.peak_mib} MiB",
        flush=True,
    )
    listed = ", ".join(f"{name} {held.get(name, 0) / 1e6:,.1f}" for name in LAYERS)
    print(
        f"    MB on disk: {listed}; raw {held['raw'] / job.rows:.2f} bytes a sample of {job.rows / 1e6:,.1f} M;"
        f" raw and marts {(held['raw'] + held['marts']) / gpus / 1e3:,.1f} kB per GPU-day",
        flush=True,
    )


def _bytes_by_layer(warehouse: Path) -> Mapping[str, int]:
    """As the newest run measured them (raw.disk_use)."""
    with closing(duckdb.connect(str(warehouse), read_only=True)) as connection:
        rows = connection.execute(
            "select layer, bytes from raw.disk_use qualify measured_at = max(measured_at) over ()"
        ).fetchall()
    return dict(rows)
