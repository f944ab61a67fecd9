"""The formats that a fleet file may name, and the mapping that each makes of a file.

Add a format here, with its module. Keep out formats of requests and results: those are `collectors.records`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from collectors.formats.found_columns import ORDER, Format, FoundColumns, Unusable
from collectors.formats.monitors import amd_smi, dcgmi_dmon, nvidia_smi_dmon
from collectors.formats.nvidia_smi import nvidia_smi
from collectors.formats.openings import Opening, headers, opening_of
from collectors.protocols.mapped_files import FileMapping, Part
from collectors.samples import SourceError

# A header names the column of times; no cell of such a log begins a line so.
HEADER = re.compile(r"^(?!\s*\d).*\btime(stamp)?\b", re.IGNORECASE)
PREFACE_LINES = 50
# The order counts: the first that knows a file has it.
FORMATS: Mapping[str, Format] = {
    "nvidia_smi": nvidia_smi,
    "nvidia_smi_dmon": nvidia_smi_dmon,
    "dcgmi_dmon": dcgmi_dmon,
    "amd_smi": amd_smi,
}


@dataclass(frozen=True)
class NamedFiles:
    """Files of a format, or a glob of such: what their lines do not state. `time_zone` is that of clocks without an
    offset, `starts_at` the moment from which times are counted, or at which the first row was written where rows have
    no time; then one follows the other after `step_seconds`."""

    path: str
    format: str
    constant_labels: Mapping[str, str] = field(default_factory=dict)
    time_zone: str = "UTC"
    starts_at: datetime | None = None
    step_seconds: float | None = None

    def of_file(self, path: str) -> Iterator[FileMapping | SourceError]:
        """The mapping of one of the files; of a log that several sessions wrote, one of each part below a header of its
        own. In the place of what is of another format, or lacks what only the fleet file can state, the reason."""
        try:
            opening = opening_of(path)
            held = found_in(opening, FORMATS[self.format])
        except Unusable as why:
            yield self._refusal(path, why)
        except SourceError as refusal:
            yield refusal
        else:
            if held is None:
                yield SourceError(path, None, unlike(opening, self.format))
                return
            for part, found in _parts(path, FORMATS[self.format], *held):
                yield self._refusal(path, found) if isinstance(found, Unusable) else self._mapping(path, part, found)

    def _refusal(self, path: str, why: Unusable) -> SourceError:
        return SourceError(path, None, f"is of the format {self.format} and {why}")

    def _mapping(self, path: str, part: Part | None, found: FoundColumns) -> FileMapping | SourceError:
        needs_start = found.basis not in ("moment", "clock")
        if needs_start and self.starts_at is None:
            return SourceError(path, None, missing_start(found))
        return FileMapping(
            path,
            time=found.time,
            time_unit=found.time_unit,
            labels=found.labels,
            constant_labels=self.constant_labels,
            values=found.values,
            rows_are=found.rows_are,
            time_zone=self.time_zone,
            starts_at=self.starts_at if needs_start else None,
            layout=found.layout,
            factors=found.factors,
            units=found.units,
            step_seconds=self.step_seconds,
            part=part,
        )


def found_in(opening: Opening, format_of: Format) -> tuple[Opening, FoundColumns] | None:
    """What a format finds in the opening of a file, and the opening from its header on: some programs print a line or
    two before it. None where the file is of another format."""
    for lines in (0, *(n for n, line in enumerate(opening.lines[:PREFACE_LINES]) if n and HEADER.search(line))):
        below = opening.after(lines)
        if (found := format_of(below)) is not None:
            return below.before(HEADER) if found.layout == "csv" else below, found
    return None


def _parts(
    path: str, format_of: Format, opening: Opening, found: FoundColumns
) -> Iterator[tuple[Part | None, FoundColumns | Unusable]]:
    """The parts of a CSV that are below headers of different columns, each with what the format finds in it, or why it
    cannot be read. A header that comes again unchanged begins none."""
    if found.layout != "csv":
        yield None, found
        return
    start: int | None = None
    header = opening.lines[0].strip()
    held: FoundColumns | Unusable = found
    for at, below in headers(path, HEADER):
        line = below.lines[0].strip()
        if line == header:
            start = at if start is None else start
        elif start is not None and (other := _found_or_why(below, format_of)) is not None:
            yield (start, at), held
            start, header, held = at, line, other
    yield ((start, None) if start else None), held


def _found_or_why(opening: Opening, format_of: Format) -> FoundColumns | Unusable | None:
    try:
        return format_of(opening)
    except Unusable as why:
        return why


def missing_start(found: FoundColumns) -> str:
    """What a file whose times do not name a moment needs."""
    has = {
        ORDER: "its rows have no time: add starts_at, when the first was written; interval_seconds is their distance",
        "clock without date": "its times have no date: add starts_at, the date and time of the first row",
    }.get(found.basis, f"column {found.time!r} counts from a start: add starts_at, the moment from which it counts")
    return f"{has}, such as starts_at: 2026-10-01T08:00:00+02:00"


def unlike(opening: Opening, named: str) -> str:
    """What a file that is not of the format is instead."""
    for name, format_of in FORMATS.items():
        try:
            if name != named and found_in(opening, format_of) is not None:
                return f"is not of the format {named}, but of {name}"
        except Unusable:
            return f"is not of the format {named}, but of {name}"
    first = opening.lines[0][:80] if opening.lines else ""
    return f"is not of the format {named}; it begins with {first!r}"
