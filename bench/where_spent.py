"""Where a process spends its seconds, by part of the project: `python -m bench.where_spent OUT.json run --fleet …`.

Runs a command of `wattledger` in this process. A hundred times a second the processor time that each thread has used
since the sample before is put down to the part that the thread is at. Linux only (`/proc`). Add here what belongs to
which part. Keep out which commands are measured (`empty_day`).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from pipelines import process_exit

SAMPLES_PER_SECOND = 100
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
START, IMPORTS, NATIVE, OWN = "Python's start", "imports", "DuckDB: its own threads", "the sampler itself"
DBT, DBT_PARSE = "dbt: its Python, per model and check", "dbt: the parsed project, read"
STATEMENTS, OPENING = "DuckDB: statements of models and checks", "DuckDB: opening the warehouse"
EVENTS, DAGSTER = "Dagster: events in SQLite", "Dagster: definitions, plan, steps"
LANDING, BOOKING = "landing", "booking, without dbt"
EXPECTATIONS, ADVICE = "Great Expectations", "advice"
PUBLICATION, PICTURES = "publication: snapshot, Parquet, manifest", "pictures"
WORKBOOK, REPORT, UPKEEP, PRINTED = "workbook", "report", "upkeep", "printed tables, alarms"
# The innermost function of a thread whose file has one of these in its path decides; the first that matches.
PARTS = (
    ("/dbt/adapters/duckdb/environments/", STATEMENTS),
    ("/dbt/parser/", DBT_PARSE),
    ("/dbt/contracts/graph/manifest", DBT_PARSE),
    ("/dbt/", DBT),
    ("/dbt_common/", DBT),
    ("/dagster/_core/storage/", EVENTS),
    ("/dagster_dbt/", DAGSTER),
    ("/dagster/", DAGSTER),
    ("/great_expectations/", EXPECTATIONS),
    ("/pipelines/warehouse/database", OPENING),
    ("/pipelines/landing/", LANDING),
    ("/collectors/", LANDING),
    ("/pipelines/booking/dbt_run", DBT_PARSE),
    ("/pipelines/booking/", BOOKING),
    ("/pipelines/advice/", ADVICE),
    ("/pipelines/analysis/", ADVICE),
    ("/pipelines/publishing/pictures", PICTURES),
    ("/pipelines/report/chart_images", PICTURES),
    ("/pipelines/publishing/workbook/", WORKBOOK),
    ("/pipelines/publishing/", PUBLICATION),
    ("/pipelines/report/", REPORT),
    ("/pipelines/upkeep/", UPKEEP),
    ("/pipelines/command_line/", PRINTED),
    ("/pipelines/alarming/", PRINTED),
)
OTHER = "other"


def part_of(frame: FrameType | None) -> str:
    """The part of the project that a thread is at; what an import executes is an import."""
    found, at = None, frame
    while at is not None:
        path = at.f_code.co_filename
        if path.startswith("<frozen importlib"):
            return IMPORTS
        if found is None:
            found = next((part for of, part in PARTS if of in path), None)
        at = at.f_back
    return found or OTHER


def _used() -> Iterator[tuple[int, float]]:
    """Each of this process's threads, and the processor seconds that it has used."""
    for task in Path("/proc/self/task").iterdir():
        try:
            words = (task / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        yield int(task.name), (int(words[11]) + int(words[12])) / TICKS_PER_SECOND


class Sampler(threading.Thread):
    """Adds up processor seconds of all threads, and wall seconds of the main thread, by part, until it is stopped."""

    def __init__(self) -> None:
        super().__init__(name="sampler", daemon=True)
        self.processor, self.wall = Counter[str](), Counter[str]()
        self._stopped = threading.Event()
        self._before = dict(_used())

    def run(self) -> None:
        """Sample until `stop`."""
        at = time.perf_counter()
        while not self._stopped.wait(1 / SAMPLES_PER_SECOND):
            now = time.perf_counter()
            self._sample(now - at)
            at = now

    def stop(self) -> None:
        """Stop, and wait for it."""
        self._stopped.set()
        self.join()

    def _sample(self, seconds: float) -> None:
        threads = {one.native_id: one.ident for one in threading.enumerate()}
        frames = sys._current_frames()
        self.wall[part_of(frames.get(threading.main_thread().ident or 0))] += seconds
        for native, used in _used():
            spent = used - self._before.get(native, 0.0)
            self._before[native] = used
            if not spent:
                continue
            if native == self.native_id:
                part = OWN
            else:
                ident = threads.get(native)
                part = NATIVE if ident is None else part_of(frames.get(ident))
            self.processor[part] += spent


def main() -> int:
    """Run a command beside a sampler; write what it found, and when this was, to the file that is named first."""
    out, *words = sys.argv[1:]
    started = time.process_time()
    sampler = Sampler()
    sampler.start()
    from pipelines.command_line.main import main as command  # noqa: PLC0415 (its imports are part of what is measured)

    status = command(words)
    sampler.stop()
    sampler.processor[START] = started
    found = {"processor": sampler.processor, "wall": sampler.wall, "ended": time.time(), "used": time.process_time()}
    Path(out).write_text(json.dumps(found), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(process_exit.noted(main()))  # as `wattledger` ends
