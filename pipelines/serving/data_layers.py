"""How many bytes a fleet's data takes, by what they are.

Add a layer here when a fleet gets another kind of file. Keep out what becomes of old ones.
"""

from __future__ import annotations

import os
from pathlib import Path

from pipelines.fleet.fleet_file import Fleet

# Name in the fleet's folder, or the beginning of one -> layer.
_LAYERS = {
    "warehouse.duckdb": "warehouse",
    "published": "publications",
    "today.duckdb": "today",
    ".today": "today",
    ".dagster": "history",
    "logs": "logs",
}
OTHER = "other"


def bytes_by_layer(fleet: Fleet) -> dict[str, int]:
    """Bytes on disk by layer; of a file that has several names (hard links of publications) once."""
    found = dict.fromkeys([*_LAYERS.values(), OTHER], 0)
    seen: set[tuple[int, int]] = set()
    for path in sorted(fleet.root.iterdir()) if fleet.root.is_dir() else []:
        layer = next((layer for name, layer in _LAYERS.items() if path.name.startswith(name)), OTHER)
        found[layer] += _size(path, seen)
    return found


def _size(path: Path, seen: set[tuple[int, int]]) -> int:
    try:
        status = path.lstat()
        if path.is_dir() and not path.is_symlink():
            with os.scandir(path) as entries:
                return sum(_size(Path(entry.path), seen) for entry in entries)
    except FileNotFoundError:
        return 0  # removed meanwhile
    if (status.st_dev, status.st_ino) in seen:
        return 0
    seen.add((status.st_dev, status.st_ino))
    return status.st_blocks * 512
