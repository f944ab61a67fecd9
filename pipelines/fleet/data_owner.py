"""Which fleet file the data of a fleet is from: a small file in the fleet's folder that `run` writes.

Two files with one `fleet:` would write the same folder, each over the other's dates. Keep out where that folder is:
`places`.
"""

from __future__ import annotations

from pathlib import Path

from collectors.durable_files import open_way
from pipelines.fleet import fleet_yaml
from pipelines.fleet.fleet_errors import FleetError
from pipelines.fleet.fleet_file import Fleet

MARKER = "fleet_file"


def claim(fleet: Fleet) -> None:
    """Note that the fleet's folder is written from this file. FleetError where another file that is still there has the
    same name and other content; a file that was moved, or copied as it is (a new checkout), takes over."""
    marker = fleet.root / MARKER
    before = Path(marker.read_text(encoding="utf-8").strip()) if marker.is_file() else fleet.path
    if _is_another(before, fleet):
        raise FleetError(
            fleet.path,
            [
                f"fleet: got {fleet.fleet!r}, which {before} is named too, and {fleet.root} has that file's data,"
                " expected a name of its own: change `fleet:`, or set WATTLEDGER_DATA to another folder. If this file"
                f" replaces the other one, remove {marker}"
            ],
        )
    if before != fleet.path or not marker.exists():
        open_way(marker.parent)
        marker.write_text(f"{fleet.path}\n", encoding="utf-8")


def _is_another(path: Path, fleet: Fleet) -> bool:
    try:
        if path.samefile(fleet.path) or path.read_bytes() == fleet.path.read_bytes():
            return False
        raw = fleet_yaml.read(path)
    except (OSError, FleetError):
        return False
    return isinstance(raw, dict) and raw.get("fleet") == fleet.fleet
