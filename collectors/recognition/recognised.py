"""What is known of a file, and of a folder of them.

Add here a fact that a user wants to see before a file is read whole. Keep out how it is found (`file_kinds`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal

from collectors.recognition.spans import Span, disjoint

Kind = Literal[
    "power samples", "token samples", "samples", "requests", "benchmark results", "run windows", "metrics page",
    "spool", "prices", "named only", "unknown",
]  # fmt: skip
Section = Literal["sources", "requests", "benchmarks", "run_windows"]
SPARE_NAME = "logs"
# Whose times have to meet: power, and what was made of it.
_MADE_OF = ("power samples", "token samples", "requests")


@dataclass(frozen=True)
class RecognisedFile:
    """One file. `format` is None where it is unknown; `entry` is None where it is not read, and `reason` is why.

    `section` is where the entry belongs in the fleet file; an entry of `sources` is one of `files` of a source of kind
    files. `columns` and `units` are as the file names them, `boards` the identities in its opening, `models` likewise.
    `first_at` and `last_at` are UTC; where `is_zone_stated` is False they are of a clock in an unknown zone, taken as
    UTC. `doubts` are what only the user knows, one sentence each.
    """

    path: str
    format: str | None
    kind: Kind
    section: Section | None = None
    entry: Mapping[str, Any] | None = None
    reason: str | None = None
    columns: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    boards: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    first_at: datetime | None = None
    last_at: datetime | None = None
    is_zone_stated: bool | None = None
    interval_seconds: float | None = None
    doubts: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line."""
        what = self.format or "unknown"
        span = f", {_shown(self.first_at)} to {_shown(self.last_at)}" if self.first_at and self.last_at else ""
        zone = "" if self.is_zone_stated or not span else " by its own clock"
        return f"{self.path}: {what} ({self.kind}){span}{zone}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class Recognised:
    """The files of a path, in order. `skipped` are lines about what was not looked at, each with its reason; `counted`
    is how many files there are."""

    path: str
    files: tuple[RecognisedFile, ...]
    skipped: tuple[str, ...] = ()
    counted: int = 0

    def readable(self) -> Iterator[RecognisedFile]:
        """The files that a fleet file can name."""
        return (file for file in self.files if file.entry is not None)

    def fleet_parts(self, as_of: date | None = None, beside: Path | None = None) -> dict[str, Any]:
        """The keys `sources`, `requests`, `benchmarks` and `run_windows` of a fleet file that reads these files. Files
        of one interval are one source, of equal entries one glob. `as_of` is the day from which benchmarks count;
        paths inside the folder `beside`, in which the fleet file will be, are written from there."""
        parts: dict[str, Any] = {}
        names: set[str] = set()
        by_interval: dict[tuple[str, float], list[dict[str, Any]]] = {}
        for file, entry in _entries(list(self.readable())):
            if beside is not None and Path(entry["path"]).is_relative_to(beside):
                entry["path"] = str(Path(entry["path"]).relative_to(beside))
            if file.section == "sources":
                interval = file.interval_seconds or 60.0
                by_interval.setdefault((file.format or SPARE_NAME, interval), []).extend(_of_boards(entry))
            elif file.section == "run_windows":
                parts.setdefault("run_windows", {"files": []})["files"].append(entry)
            elif file.section is not None:
                entry["name"] = _free(file.format or SPARE_NAME, names)
                if file.section == "benchmarks" and "as_of" not in entry:
                    entry["as_of"] = as_of or (file.last_at or datetime.now(UTC)).date()
                parts.setdefault(file.section, []).append(entry)
        for (name, interval), files in by_interval.items():
            whole: float = int(interval) if interval == int(interval) else interval
            source = {"name": _free(name, names), "kind": "files", "interval_seconds": whole, "files": files}
            parts.setdefault("sources", []).append(source)
        return parts

    def disjoint(self) -> str | None:
        """Why no power of these files can be that of their tokens: their spans, none of which overlap; else None."""
        spans: dict[bool, list[Span]] = {True: [], False: []}
        for file in self.readable():
            if file.kind in _MADE_OF and file.first_at is not None and file.last_at is not None:
                spans[file.kind == "power samples"].append(Span(file.path, file.first_at, file.last_at))
        return disjoint(spans[True], spans[False])

    def period(self) -> tuple[date, date] | None:
        """The dates of all files with times: of the first one, and the first day after the last one. Results of
        benchmarks, which are of no date of the fleet, count where there is nothing else."""
        timed = [file for file in self.readable() if file.first_at or file.last_at]
        timed = [file for file in timed if file.kind != "benchmark results"] or timed
        firsts = [file.first_at for file in timed if file.first_at]
        lasts = [file.last_at for file in timed if file.last_at]
        if not firsts or not lasts:
            return None
        return min(firsts).date(), date.fromordinal(max(lasts).toordinal() + 1)


def _of_boards(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The entry, or one for each board whose watts are a column of the file."""
    boards = entry.pop("boards", None)
    if boards is None:
        yield entry
        return
    for index, column in boards.items():
        labels = {**entry.get("constant_labels", {}), "index": index}
        yield {**entry, "constant_labels": labels, "values": {"nvml_power_watts": column}}


def _entries(files: list[RecognisedFile]) -> Iterator[tuple[RecognisedFile, dict[str, Any]]]:
    """(one of its files, entry) of each entry; files of one folder and ending with equal entries have one together."""
    alike: dict[str, list[RecognisedFile]] = {}
    seen: set[str] = set()
    for file in files:
        rest = {key: value for key, value in (file.entry or {}).items() if key != "path"}
        path = Path(file.path)
        key = f"{file.section}|{path.parent}|{''.join(path.suffixes)}|{file.interval_seconds}|{sorted(rest.items())}"
        alike.setdefault(key, []).append(file)
    for held in alike.values():
        path = Path(held[0].path)
        ending = path.suffixes[-1] if path.suffixes else ""
        beside = {one.name for one in path.parent.iterdir() if one.name.endswith(ending)} if len(held) > 1 else set()
        if len(held) > 1 and ending and beside == {Path(file.path).name for file in held}:
            yield held[0], {**dict(held[0].entry or {}), "path": str(path.parent / f"*{ending}")}
        else:
            for file in held:
                if str(file.entry) not in seen:
                    seen.add(str(file.entry))
                    yield file, dict(file.entry or {})


def _free(name: str, taken: set[str]) -> str:
    base = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or SPARE_NAME
    found = next(one for n in range(1, len(taken) + 2) if (one := base if n == 1 else f"{base}_{n}") not in taken)
    taken.add(found)
    return found


def _shown(at: datetime | None) -> str:
    return "" if at is None else at.strftime("%Y-%m-%d %H:%M:%S")
