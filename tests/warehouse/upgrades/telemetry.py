"""The telemetry of the fleet beside this file: three boards and two engines, a sample every two minutes for four days.

    python -m tests.warehouse.upgrades.telemetry FOLDER

writes samples/<date>.parquet and grid.csv into FOLDER. Everything follows from the minute of the day: no chance.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FIRST = datetime(2026, 10, 1, tzinfo=UTC)
DAYS = 4
STEP_SECONDS = 120
IDLE_WATTS, BUSY_WATTS = 90, 300
OUTPUT_TOKENS_PER_SECOND, INPUT_TOKENS_PER_SECOND = 40, 120
# Engine -> the board that its pod holds, and the UTC hours in which it serves.
SERVING = {"chat": ("GPU-a", range(7, 20)), "code": ("GPU-b", range(9, 12))}
BOARDS = {"GPU-a": ("n1", "chat"), "GPU-b": ("n1", "code"), "GPU-c": ("n2", None)}


def write(folder: Path, days: int = DAYS) -> None:
    """Write the first `days` days of samples, and the grid's hours of all of them."""
    (folder / "samples").mkdir(parents=True, exist_ok=True)
    rows = list(_rows())
    for n in range(days):
        start_at = FIRST + timedelta(days=n)
        of_day = [row for row in rows if start_at <= row[2] < start_at + timedelta(days=1)]
        columns = zip(*of_day, strict=True)
        types = {
            "metric": pa.string(),
            "labels": pa.string(),
            "observed_at": pa.timestamp("us", "UTC"),
            "value": pa.float64(),
        }
        table = pa.table({name: pa.array(values, types[name]) for name, values in zip(types, columns, strict=True)})
        pq.write_table(table, folder / "samples" / f"{_date(n)}.parquet", compression="zstd")
    hours = [FIRST + timedelta(hours=n) for n in range(24 * DAYS)]
    lines = [f"{hour:%Y-%m-%dT%H:%M:%SZ},{180 + 10 * (hour.hour % 12)}" for hour in hours]
    (folder / "grid.csv").write_text("\n".join(["hour,direct", *lines]) + "\n", encoding="utf-8")


def _rows() -> Iterator[tuple[str, str, datetime, float]]:
    """(metric, labels, time, value) of every sample, series by series."""
    steps = DAYS * 86400 // STEP_SECONDS
    times = [FIRST + timedelta(seconds=STEP_SECONDS * n) for n in range(steps)]
    for number, (uuid, (node, engine)) in enumerate(BOARDS.items(), 1):
        pod = f'"namespace":"llm","pod":"{engine}-0","container":"engine",' if engine else ""
        labels = f'{{{pod}"UUID":"{uuid}","Hostname":"{node}","modelName":"NVIDIA A100-SXM4-80GB"}}'
        millijoules = 1e9 * number
        for at in times:
            watts = BUSY_WATTS if _serves(engine, at) else IDLE_WATTS
            yield "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", labels, at, millijoules
            yield "DCGM_FI_DEV_POWER_USAGE", labels, at, float(watts)
            millijoules += watts * STEP_SECONDS * 1000
    for engine in SERVING:
        labels = (
            f'{{"model_name":"org/{engine}","engine":"0","namespace":"llm","pod":"{engine}-0","container":"engine"}}'
        )
        seconds = 0.0
        for at in times:
            serves = _serves(engine, at)
            yield "vllm:prompt_tokens_total", labels, at, seconds * INPUT_TOKENS_PER_SECOND
            yield "vllm:generation_tokens_total", labels, at, seconds * OUTPUT_TOKENS_PER_SECOND
            yield "vllm:num_requests_running", labels, at, float(serves)
            seconds += STEP_SECONDS if serves else 0


def _serves(engine: str | None, at: datetime) -> bool:
    return engine is not None and at.hour in SERVING[engine][1]


def _date(n: int) -> date:
    return (FIRST + timedelta(days=n)).date()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
