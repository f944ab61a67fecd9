"""Every check that a run can have: those of a fleet that has a source of each kind. Nothing here loads dbt.

Add an asset or check of Dagster that brings one to `_of_assets`, and a part of a fleet file that does to FLEET. A test
compares all of them with those of a run. Keep out what checks look at.
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pipelines.booking import checks, invariants, stale_settings
from pipelines.booking.alarms import ALARMS
from pipelines.booking.fleet_file_check import fleet_file_check
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.fleet.places import DBT_PROJECT
from pipelines.landing import bill_assets, request_assets, telemetry_assets, window_assets
from pipelines.publishing import parts
from pipelines.upkeep.upkeep_asset import upkeep_asset
from pipelines.warehouse.asset_keys import asset_key, table_of
from pipelines.warehouse.partitions import POOL

# What the page shows as NAME and KIND.
_NAME = "placeholder"
_KIND = "inferencex"
PLACEHOLDER = re.compile(rf"{_NAME}\d?")
FLEET = f"""
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
_ERRORS = (bill_assets.BILL_CHECK, telemetry_assets.PRICE_CHECK, window_assets.WINDOW_CHECK, "grid_files_are_sound")
# What joins the texts of a data test's `meta`, and the table that its rows are shown at.
_JOINED = re.compile(r"^ *~ ", re.MULTILINE)
_TABLE = re.compile(r"'ref': {'name': '(\w+)'|ref\('(\w+)'\)")


class Check(NamedTuple):
    """One check: its table, name, what should hold, what is expected and what to do. With `is_error` a run ends with
    status 1."""

    table: str
    name: str
    description: str
    expected: str
    remedy: str
    is_error: bool
    is_invariant: bool = False


def all_checks() -> dict[str, Check]:
    """Every check by its name; of one that several tables have, as that of TABLE."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.yaml"
        path.write_text(FLEET, encoding="utf-8")
        listed = [*_of_assets(load_fleet(path, {"EMAPS_TOKEN": "unused"}), folder)]
    listed += [Check("/".join(one.asset), *one[1:]) for one in ALARMS]
    listed += [Check(f"marts/{law.mart}", *law[:2], "", law.remedy, True, True) for law in invariants.invariants()]
    listed += map(_of_data_test, (DBT_PROJECT / "tests").glob("*.sql"))
    found: dict[str, Check] = {}
    for check in sorted(listed):
        found[check.name] = check._replace(table="TABLE") if check.name in found else check
    return found


def _of_assets(fleet: Fleet, folder: str) -> Iterator[Check]:
    made = [
        *telemetry_assets.telemetry_assets(fleet),
        *request_assets.request_assets(fleet),
        bill_assets.bills_asset(fleet),
        window_assets.run_windows_asset(fleet),
        *checks.asset_checks(fleet),
        fleet_file_check(fleet),
        stale_settings.settings_check(fleet),
        upkeep_asset(fleet, [], POOL),
    ]
    specs = [spec for one in made for spec in one.check_specs]
    specs += [parts.spec(asset_key(fleet, "published", name)) for name in ("publication", "fleet_report")]
    for spec in specs:
        name = PLACEHOLDER.sub("NAME", spec.name)
        text = " ".join((spec.description or "").split()).replace(f"{folder}/grid/*.csv", "FILES")
        yield Check(
            table_of(spec.asset_key),
            name,
            PLACEHOLDER.sub("NAME", text.replace(_KIND, "KIND")),
            str(spec.metadata.get("expected", "")),
            str(spec.metadata.get("remedy", "")),
            # A source that did not answer is an error; the rest of what is checked of raw tables warns.
            name != spec.name or name in (*_ERRORS, parts.CHECK),
        )


def _of_data_test(path: Path) -> Check:
    text = path.read_text(encoding="utf-8")
    meta = ast.literal_eval(_JOINED.sub("", text.partition("meta=")[2].partition("\n) }}")[0].strip()))
    named = _TABLE.search(text)
    # A test without a table of its own is one of doubts (dbt_project/macros/doubts.sql).
    table = named[1] or named[2] if named else "doubts"
    return Check(f"marts/{table}", path.stem, meta["description"], meta.get("expected", ""), meta["remedy"], False)
