"""What a format finds in the opening of a file: which of its columns is what, and how its times are written.

Add here what several tools' files share. Keep out the columns of one tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from collectors.cells import TimeUnit
from collectors.formats.openings import Opening

# What is written names a moment; or the time of a clock in an unknown zone; or one without its date; or it
# counts from a start; or there is nothing.
TimeBasis = Literal["moment", "clock", "clock without date", "relative", "order of rows"]
ORDER: Literal["order of rows"] = "order of rows"
MADE_TIME = "time of the row"  # the column of a layout that makes its times
_EPOCHS: Sequence[tuple[float, float, TimeUnit]] = (
    (9e8, 4.2e9, "s"), (9e11, 4.2e12, "ms"), (9e14, 4.2e15, "us"), (9e17, 4.2e18, "ns"),
)  # fmt: skip
_OFFSET = re.compile(r"\d:\d.*(Z|[+-]\d\d(:?\d\d)?)$")
_DATED = re.compile(r"\d{4}[-/]\d\d[-/]\d\d")
_UNIT_OF_CELL = re.compile(r"^[-+]?[0-9.]+(?:[eE][-+]?\d+)?\s*((?![eE][-+]?\d)[A-Za-z%µ/°][\w%µ/°²³·]*)$")
_IN_BRACKETS = re.compile(r"\s*[\[(]([^\[\]()]+)[\])]\s*$")
# What one of a unit is in watts, joules, bytes or as a ratio.
FACTORS = {
    "W": 1.0, "mW": 1e-3, "uW": 1e-6, "µW": 1e-6, "kW": 1e3,
    "J": 1.0, "mJ": 1e-3, "uJ": 1e-6, "µJ": 1e-6, "kJ": 1e3, "Wh": 3600.0, "kWh": 3.6e6,
    "%": 0.01, "B": 1.0, "KiB": 1024.0, "MiB": 1048576.0, "GiB": 1073741824.0, "MB": 1048576.0, "GB": 1073741824.0,
}  # fmt: skip
UNITS_OF_POWER = frozenset(unit for unit in FACTORS if unit.endswith("W"))
UNITS_OF_ENERGY = frozenset(unit for unit in FACTORS if unit.endswith(("J", "Wh")))


@dataclass(frozen=True)
class FoundColumns:
    """The roles of a file's columns, as in `mapped_files.FileMapping`. `units` are those that the file states."""

    layout: str
    time: str
    basis: TimeBasis
    time_unit: TimeUnit | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    rows_are: Literal["boards"] | None = None
    columns: tuple[str, ...] = ()


class Unusable(Exception):
    """A file of this format that cannot be read as it is; the message is for whoever has it, with the fix."""


Format = Callable[[Opening], FoundColumns | None]


def bare(name: str) -> tuple[str, str | None]:
    """A column name without its unit in brackets, and that unit: `power.draw [W]` is power.draw, W."""
    found = _IN_BRACKETS.search(name)
    return (name[: found.start()].strip(), found[1].strip()) if found else (name.strip(), None)


def unit_of_cells(cells: Sequence[str]) -> str | None:
    """The unit behind the numbers of a column; None where they have none, or several."""
    units = {found[1] for cell in cells if (found := _UNIT_OF_CELL.match(cell))}
    return units.pop() if len(units) == 1 else None


def basis_of(cells: Sequence[str]) -> tuple[TimeBasis, TimeUnit | None] | None:
    """How times are written in a column, by its first one; None where that is no time."""
    first = next((cell for cell in cells if cell), "")
    with suppress(ValueError):
        number = float(first)
        unit = next((unit for low, high, unit in _EPOCHS if low <= number < high), None)
        if unit is not None:
            return "moment", unit
        return ("relative", "s") if 0 <= number < 9e8 else None
    if _DATED.match(first):
        return ("moment" if _OFFSET.search(first) else "clock"), None
    return None
