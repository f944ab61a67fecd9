"""Files that state the energy of whole runs: CodeCarbon's emissions.csv and Slurm's `sacct`.

Their rows become run windows: when a run began and ended, and where. Their joules are not read. A board whose own meter
is read, too, would be there twice. Add another program that states a run's energy here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from collectors.cells import shown
from collectors.rows import Rejects, number_of
from collectors.samples import SourceError

Rows = Iterator[tuple[str, Mapping[str, Any]]]
_RANGES = re.compile(r"([^,\[]*)(?:\[([^\]]*)\])?([^,\[]*)(?:,|$)")
_UNKNOWN = frozenset({"", "Unknown", "None", "None assigned"})
MOST_NODES = 10_000


def codecarbon(path: str, columns: Sequence[str], rows: Rows, rejects: Rejects) -> Rows:
    """The window of each run of an emissions.csv: `timestamp` is when a row was written and `duration` the seconds of
    the run until then. Of a run that was written several times the last row counts."""
    _needed(path, columns, ("timestamp", "run_id", "duration"))
    last: dict[str, tuple[str, float, Mapping[str, Any]]] = {}
    for place, row in rows:
        try:
            seconds = float(number_of(str(row.get("duration"))))
        except ValueError:
            rejects.add(place, f"duration: got {shown(row.get('duration'))}, expected seconds")
            continue
        run = str(row.get("run_id"))
        if run not in last or seconds >= last[run][1]:
            last[run] = place, seconds, row
    for run, (place, seconds, row) in last.items():
        written = row.get("timestamp")
        try:
            began = (datetime.fromisoformat(str(written)) - timedelta(seconds=seconds)).isoformat()
        except (ValueError, OverflowError):
            began = str(written)
        yield place, {"window_id": run, "start_at": began, "end_at": written}


def sacct(path: str, columns: Sequence[str], rows: Rows, rejects: Rejects) -> Rows:
    """The window of each job of `sacct --parsable2`, on each of its nodes. Steps (`12.batch`) are parts of their job,
    and a job that has not ended has no window yet."""
    _needed(path, columns, ("JobID", "Start", "End", "NodeList"))
    for place, row in rows:
        job = str(row.get("JobID"))
        if "." in job or row.get("Start") in _UNKNOWN or row.get("End") in _UNKNOWN:
            continue
        nodes = nodes_of(str(row.get("NodeList")))
        if not nodes:
            rejects.add(place, f"NodeList: got {shown(row.get('NodeList'))}, expected nodes such as gpu[01-04]")
        for node in nodes:
            name = job if len(nodes) == 1 else f"{job}/{node}"
            yield place, {"window_id": name, "start_at": row.get("Start"), "end_at": row.get("End"), "node": node}


def nodes_of(text: str) -> list[str]:
    """The nodes of Slurm's shorthand: gpu[01-02,07],head is gpu01, gpu02, gpu07, head."""
    if text in _UNKNOWN:
        return []
    found: list[str] = []
    for before, ranges, after in _RANGES.findall(text):
        if not before and not ranges:
            continue
        for part in ranges.split(",") if ranges else [""]:
            first, dash, last = part.partition("-")
            if not dash:
                found.append(f"{before}{part}{after}")
            elif first.isdigit() and last.isdigit() and int(last) - int(first) < MOST_NODES:
                found += [f"{before}{n:0{len(first)}}{after}" for n in range(int(first), int(last) + 1)]
    return found


def _needed(path: str, columns: Sequence[str], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in columns]
    if missing:
        there = ", ".join(columns) or "none"
        raise SourceError(path, None, f"no column {missing[0]}; there are {there}"[:500])


RUN_FORMATS: Mapping[str, Callable[[str, Sequence[str], Rows, Rejects], Rows]] = {
    "codecarbon": codecarbon,
    "sacct": sacct,
}
