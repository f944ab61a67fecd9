"""`nvidia-smi --query-gpu=… --format=csv`, with any columns, in any order, with or without units.

Add here a column that names the board a row is of, or what it draws. Keep out `nvidia-smi dmon` (`monitors`).
"""

from __future__ import annotations

from collections.abc import Sequence

from collectors.formats.found_columns import FACTORS, FoundColumns, Unusable, bare, basis_of, unit_of_cells
from collectors.formats.openings import Opening

# Instantaneous and averaged power are different quantities; `power.draw` is what people query.
POWER = ("power.draw", "power.draw.instant", "power.draw.average")
_LIMIT = ("enforced.power.limit", "power.limit")
_UTILIZATION = ("utilization.gpu",)
_MEMORY = ("memory.used",)
_VALUES = {
    "nvml_power_watts": (POWER, "W"),
    "nvml_power_limit_watts": (_LIMIT, "W"),
    "nvml_utilization_gpu_ratio": (_UTILIZATION, "%"),
    "nvml_memory_used_bytes": (_MEMORY, "MiB"),
}
# Any of several names of a query; a name alone would not be enough to place a board of a host without its node.
_IDENTITIES = {
    "uuid": ("uuid", "gpu_uuid"),
    "index": ("index",),
    "minor_number": ("minor_number",),
    "gpu": ("pci.bus_id", "gpu_bus_id"),
}
_NAMES = ("name", "gpu_name")


def nvidia_smi(opening: Opening) -> FoundColumns | None:
    """The columns of such a file; None where it is none."""
    rows = opening.cells()
    header = next((row for row in rows[:1] if _is_header(row)), None)
    if header is None:
        if rows and _is_headless(rows[0]):
            raise Unusable(
                "its columns have no names (noheader). Write them into a first line, such as"
                f" `timestamp, power.draw [W]`; there are {len(rows[0])} columns, the first row is {', '.join(rows[0])}"
            )
        return None
    names = {bare(column)[0]: column for column in reversed(header)}
    body = [row for row in rows[1:] if len(row) == len(header) and row != header]
    held = {column: [row[at] for row in body] for at, column in enumerate(header)}
    time = names.get("timestamp")
    if time is None:
        raise Unusable("has no column timestamp: add timestamp to --query-gpu")
    found = basis_of(held[time])
    if body and found is None:
        raise Unusable(f"column {time!r} holds no time; the first value is {held[time][0]!r}")
    basis, unit = found or ("clock", None)
    values, factors, units = {}, {}, {}
    for metric, (columns, default) in _VALUES.items():
        column = _measured([names[name] for name in columns if name in names], held)
        if column is None:
            continue
        stated = bare(column)[1] or unit_of_cells(held[column])
        if (stated or default) not in FACTORS:
            raise Unusable(f"column {column!r} is in {stated}, expected {default}")
        values[metric] = column
        factors[metric] = FACTORS[stated or default]
        if stated:
            units[column] = stated
    if "nvml_power_watts" not in values:
        raise Unusable(f"has no column {POWER[0]}: add {POWER[0]} to --query-gpu")
    labels = {
        label: next(names[name] for name in columns if name in names)
        for label, columns in _IDENTITIES.items()
        if any(name in names for name in columns)
    }
    is_named = bool(labels)
    if is_named:
        kind = next((names[name] for name in _NAMES if name in names), None)
        labels |= {"device_type": kind} if kind else {}
    return FoundColumns(
        "csv", time, basis, unit, labels, values, factors, units, None if is_named else "boards", tuple(header)
    )  # fmt: skip


def _is_header(row: Sequence[str]) -> bool:
    names = {bare(column)[0] for column in row}
    return any(name.startswith("power.draw") for name in names) or {"timestamp", *_UTILIZATION} <= names


def _is_headless(row: Sequence[str]) -> bool:
    found = basis_of(row[:1])
    return (found is not None and unit_of_cells(row[1:2]) in ("W", "%", "MiB", "MHz")) or (
        found is not None and any(cell.endswith(" W") for cell in row) and any(cell.startswith("GPU-") for cell in row)
    )


def _measured(columns: Sequence[str], held: dict[str, list[str]]) -> str | None:
    """The first column that has a number; the first of all where none has."""
    return next((c for c in columns if any(cell[:1].isdigit() for cell in held[c])), next(iter(columns), None))
