"""The formats that a fleet file may name, and the mapping that each makes of a file.

Add a format here, with its module. Keep out formats of requests and results: those are `collectors.records`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from collectors.formats.found_columns import ORDER, Format, FoundColumns, Unusable
from collectors.formats.monitors import amd_smi, dcgmi_dmon, nvidia_smi_dmon
from collectors.formats.nvidia_smi import nvidia_smi
from collectors.formats.openings import Opening, opening_of
from collectors.protocols.mapped_files import FileMapping
from collectors.samples import SourceError

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

    def of_file(self, path: str) -> FileMapping:
        """The mapping of one of the files. SourceError where it is of another format, or lacks what only the fleet
        file can state."""
        opening = opening_of(path)
        try:
            found = FORMATS[self.format](opening)
        except Unusable as why:
            raise SourceError(path, None, f"is of the format {self.format} and {why}") from None
        if found is None:
            raise SourceError(path, None, unlike(opening, self.format))
        needs_start = found.basis not in ("moment", "clock")
        if needs_start and self.starts_at is None:
            raise SourceError(path, None, missing_start(found))
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
        )


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
            if name != named and format_of(opening) is not None:
                return f"is not of the format {named}, but of {name}"
        except Unusable:
            return f"is not of the format {named}, but of {name}"
    first = opening.lines[0][:80] if opening.lines else ""
    return f"is not of the format {named}; it begins with {first!r}"
