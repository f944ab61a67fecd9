"""The fleet file: one YAML that a user edits, read whole and validated before anything runs.

Add here how a file is found wrong or doubtful as a whole. Keep out its keys (`fleet_keys`) and the rules themselves
(`disagreements`, `plausibility`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from pipelines.fleet import fleet_yaml
from pipelines.fleet.disagreements import disagreements
from pipelines.fleet.fleet_errors import FleetError, problems
from pipelines.fleet.fleet_keys import Fleet
from pipelines.fleet.places import data_folder
from pipelines.fleet.plausibility import Finding, advice, doubts

logger = logging.getLogger(__name__)

__all__ = ["Fleet", "FleetError", "load_fleet", "read_fleet"]


def load_fleet(path: Path | str, environ: Mapping[str, str] = os.environ) -> Fleet:
    """The fleet file at `path`, or FleetError with everything that is wrong in it, at once. What is doubtful in it is
    logged."""
    fleet, found = read_fleet(path, environ)
    for finding in found:
        # Without a handler Python prints a warning to stderr: so does every command that reads a fleet file.
        logger.warning("%s: %s", fleet.path.name, advice(finding))
    return fleet


def read_fleet(path: Path | str, environ: Mapping[str, str] = os.environ) -> tuple[Fleet, list[Finding]]:
    """The fleet file at `path` with what is doubtful in it, or FleetError."""
    path = Path(path).absolute()
    raw = fleet_yaml.read(path)
    if not isinstance(raw, dict):
        raise FleetError(path, ["expected a mapping with the keys fleet, period, sources, …"])
    reserved = sorted({"path", "root"} & raw.keys())
    name = raw["fleet"] if isinstance(raw.get("fleet"), str) else "unnamed"
    data, moved = data_folder(path, name, environ)
    root = data / name
    notices = [moved] if moved else []
    context = {"environ": environ, "roots": {"fleet": path.parent, "data": root}, "notices": notices}
    try:
        fleet = Fleet.model_validate({**raw, "path": path, "root": root}, context=context)
    except ValidationError as wrong:
        raise FleetError(path, [*(f"{key}: unknown key" for key in reserved), *problems(wrong, raw, Fleet)]) from None
    found = [*(f"{key}: unknown key" for key in reserved), *disagreements(fleet, datetime.now(UTC).date())]
    if found:
        raise FleetError(path, found)
    return fleet, [*(Finding("", notice) for notice in notices), *doubts(fleet)]
