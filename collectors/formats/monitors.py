"""What monitors print as tables for people: `nvidia-smi dmon`, `dcgmi dmon`, and AMD's `amd-smi` as CSV or JSON.

Add here the columns of such a monitor. Keep out how its lines become rows (`layouts`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from collectors.formats.found_columns import MADE_TIME, ORDER, FoundColumns, TimeBasis, Unusable, basis_of
from collectors.formats.openings import Opening

_DMON = {
    "nvml_power_watts": ("pwr", 1.0),
    "nvml_utilization_gpu_ratio": ("sm", 0.01),
    "nvml_memory_used_bytes": ("fb", 1048576.0),
}
# The short names of the fields of `dcgmi dmon -e`; each has the unit that dcgm-exporter reports it in.
_DCGMI = {
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "TOTEC",
    "DCGM_FI_DEV_POWER_USAGE": "POWER",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "GRACT",
    "DCGM_FI_DEV_GPU_UTIL": "GPUTL",
    "DCGM_FI_DEV_FB_USED": "FBUSD",
}
JSON_TIME = re.compile(r'"timestamp"\s*:\s*"?([^",}]+)')
_LOG_IT = "Write a log with `amd-smi monitor -w SECONDS"
# Column -> what one of it is in the unit of the catalogue: W, µJ, %, MiB.
_AMD = {
    "gpu_energy_consumed": (("total_energy_consumption",), 1e6),
    "gpu_package_power": (("socket_power", "power_usage", "current_socket_power", "average_socket_power"), 1.0),
    "gpu_gfx_activity": (("gfx_activity", "gfx", "gfx_util"), 1.0),
    "gpu_used_vram": (("used_vram", "vram_used"), 1.0),
}


def nvidia_smi_dmon(opening: Opening) -> FoundColumns | None:
    """`nvidia-smi dmon`, best with `-o DT`."""
    header = next((line.lstrip("# ").split() for line in opening.lines if line.startswith("#")), [])
    if "gpu" not in header[:3] or not {"pwr", "sm", "gtemp", "fb"} & {*header}:
        return None
    if "pwr" not in header:
        raise Unusable("has no column pwr: add p to `dmon -s`")
    before = [name.lower() for name in header[: header.index("gpu")]]
    clocks: dict[tuple[str, ...], TimeBasis] = {
        ("date", "time"): "clock", ("time", "date"): "clock", ("time",): "clock without date",
    }  # fmt: skip
    basis = clocks.get(tuple(before), ORDER)
    found = {metric: of for metric, of in _DMON.items() if of[0] in header}
    return FoundColumns(
        "nvidia_smi_dmon",
        MADE_TIME,
        basis,
        None if basis == "clock" else "s",
        {"index": "gpu"},
        {metric: column for metric, (column, _) in found.items()},
        {metric: factor for metric, (_, factor) in found.items()},
        columns=tuple(header),
    )


def dcgmi_dmon(opening: Opening) -> FoundColumns | None:
    """`dcgmi dmon -e …`, which writes no time; a wrapper may have put one before each line."""
    words = next((words for line in opening.lines if "#Entity" in (words := line.split())), [])
    if not words:
        return None
    at = words.index("#Entity")
    fields = words[at + 1 :]
    values = {metric: field for metric, field in _DCGMI.items() if field in fields}
    if not {"POWER", "TOTEC"} & {*fields}:
        raise Unusable("has neither POWER nor TOTEC: add 155,156 to `dcgmi dmon -e`")
    time = basis_of([" ".join(words[:at])]) if at else None
    if at and time is None:
        raise Unusable(f"what is before #Entity is no time: {' '.join(words[:at])!r}")
    basis, unit = time or (ORDER, "s")
    return FoundColumns("dcgmi_dmon", MADE_TIME, basis, unit, {"gpu": "gpu"}, values, columns=tuple(fields))


def amd_smi(opening: Opening) -> FoundColumns | None:
    """`amd-smi metric` or `monitor` as CSV or JSON."""
    if opening.head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"[", b"{"):
        return _amd_json(opening)
    rows = opening.cells()
    header = [name.lower() for name in rows[0]] if rows else []
    body = [row for row in rows[1:] if len(row) == len(header)]
    found = _amd_columns(header, lambda name: any(row[header.index(name)][:1].isdigit() for row in body))
    if "gpu" not in header or not {"gpu_package_power", "gpu_energy_consumed"} & {*found}:
        return None
    time = next((name for name in ("timestamp", "time") if name in header), None)
    if time is None:
        raise Unusable(
            "has no column timestamp: it is one reading. Write a log with `amd-smi monitor -w SECONDS --csv`"
        )
    own = dict(zip(header, rows[0], strict=True))
    how = basis_of([row[header.index(time)] for row in body])
    basis, unit = how or ("moment", "s")
    return FoundColumns(
        "csv", own[time], basis, unit, {"gpu_id": own["gpu"]},
        {metric: own[column] for metric, (column, _) in found.items()},
        {metric: factor for metric, (_, factor) in found.items()}, columns=tuple(rows[0]),
    )  # fmt: skip


def _amd_columns(names: list[str], has_number: Callable[[str], bool]) -> dict[str, tuple[str, float]]:
    """Metric -> the first of its columns that has a number, the first of all where none has, and its factor."""
    found = {}
    for metric, (columns, factor) in _AMD.items():
        present = [name for name in columns if name in names]
        if present:
            found[metric] = next(filter(has_number, present), present[0]), factor
    return found


def amd_rows(held: Any) -> list[dict[str, Any]]:
    """The readings of boards in a document of amd-smi, each flat: name -> value."""
    held = held.get("gpu_data", held) if isinstance(held, dict) else held
    return [
        _flat(row) for row in (held if isinstance(held, list) else [held]) if isinstance(row, dict) and "gpu" in row
    ]


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and "value" in value:
            found[name] = value["value"]
        elif isinstance(value, dict):
            found |= _flat(value)
        else:
            found[name] = value
    return found


def _amd_json(opening: Opening) -> FoundColumns | None:
    text = opening.text
    if '"gpu"' not in text or not any(f'"{name}"' in text for name in ("socket_power", "power_usage")):
        return None
    if '"timestamp"' not in text:
        raise Unusable(f"has no timestamp: it is one reading. {_LOG_IT} --json`")
    names = [name for columns, _ in _AMD.values() for name in columns if f'"{name}"' in text]
    found = _amd_columns(
        names, lambda name: re.search(rf'"{name}"\s*:\s*(\{{\s*"value"\s*:\s*)?"?\d', text) is not None
    )
    how = basis_of([one.strip() for one in JSON_TIME.findall(text)])
    basis, unit = how or ("moment", "s")
    return FoundColumns(
        "amd_smi_json", "timestamp", basis, unit, {"gpu_id": "gpu"},
        {metric: column for metric, (column, _) in found.items()},
        {metric: factor for metric, (_, factor) in found.items()}, columns=tuple(names),
    )  # fmt: skip
