"""Every check that a run can have, as Dagster has it: those of a fleet that has a source of each kind.

Add a part of a fleet file to `_FLEET` when it brings a check of its own. Keep out what checks look at.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from pipelines.booking import invariants
from pipelines.booking.alarms import ALARMS
from pipelines.booking.project import prepared_project
from pipelines.code_location import definitions_of
from pipelines.fleet.fleet_file import load_fleet
from pipelines.landing.bill_assets import BILL_CHECK
from pipelines.landing.telemetry_assets import PRICE_CHECK
from pipelines.landing.window_assets import WINDOW_CHECK
from pipelines.publishing import parts
from pipelines.warehouse.asset_keys import table_of

# What the page shows as NAME and KIND.
_NAME = "placeholder"
_KIND = "inferencex"
_PLACEHOLDER = re.compile(rf"{_NAME}\d?")
_FLEET = f"""
fleet: {_NAME}
synthetic: true
period: {{start: 2026-10-01, end: 2026-10-02}}
sources: [{{name: {_NAME}, kind: synthetic, scenario: demo, interval_seconds: 60}}]
requests: [{{name: {_NAME}2, kind: aiperf, path: requests}}]
benchmarks: [{{name: {_NAME}3, kind: {_KIND}, path: "results/*.json", as_of: 2026-11-01}}]
grid_intensity:
  sources: [{{name: {_NAME}4, kind: electricity_maps, zone: US-CAL-CISO, token_env: EMAPS_TOKEN}}]
  files: [{{path: "grid/*.csv", format: electricity_maps, zone: DE}}]
"""
# A file that cannot be read is an error; rejected rows of one warn.
_OF_FILES = (BILL_CHECK, PRICE_CHECK, WINDOW_CHECK, "grid_files_are_sound")


class Check(NamedTuple):
    """One check: its table, name, what should hold, what is expected and what to do. With `is_error` a run ends with
    status 1."""

    table: str
    name: str
    description: str
    expected: str
    remedy: str
    is_error: bool
    is_invariant: bool


def all_checks() -> dict[str, Check]:
    """Every check by its name; of one that several tables have, the last, as that of TABLE."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.yaml"
        path.write_text(_FLEET, encoding="utf-8")
        graph = definitions_of(load_fleet(path, {"EMAPS_TOKEN": "unused"})).resolve_asset_graph()
    laws = {law.name for law in invariants.invariants(prepared_project().manifest_path)}
    alarms = {alarm.name: alarm.is_error for alarm in ALARMS}
    found: dict[str, Check] = {}
    for key in sorted(graph.asset_check_keys):
        spec = graph.get_check_spec(key)
        name, table = _PLACEHOLDER.sub("NAME", key.name), table_of(key.asset_key)
        # A source that did not answer is an error; the rest of what is checked of raw tables warns.
        is_error = key.name in laws or key.name == parts.CHECK or alarms.get(key.name, key.name != name)
        found[name] = Check(
            "TABLE" if name in found else table,
            name,
            _shown(spec.description or "", folder),
            str(spec.metadata.get("expected", "")),
            str(spec.metadata.get("remedy", "")),
            is_error or key.name in _OF_FILES,
            key.name in laws,
        )
    return found


def _shown(description: str, folder: str) -> str:
    text = " ".join(description.split()).replace(f"{folder}/grid/*.csv", "FILES").replace(_KIND, "KIND")
    return _PLACEHOLDER.sub("NAME", text)
