"""The dashboards for Grafana have Grafana's published types (`@grafana/schema`).

TypeScript checks each file as a literal of these types, so it finds a missing key, an unknown one, and a word that
Grafana does not know. What a panel asks for is not in them: `test_dashboards` and, of Prometheus,
`tests/serving/test_in_prometheus.py` run it.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
from typing import Any

import pytest

from pipelines.publishing.dashboards import grafana
from tests import optional

pytestmark = pytest.mark.needs("grafana")

# As they are in the files: no part of one is a part of another too.
DASHBOARDS = json.loads(json.dumps(grafana.boards()))
# Where each type of panel has its options.
OPTIONS = {"barchart": "BarChart", "stat": "Stat", "table": "Table", "text": "Text", "timeseries": "TimeSeries"}
RAW = "@grafana/schema/dist/esm/raw"
IMPORTS = [
    'import type { GraphFieldConfig } from "@grafana/schema";',
    f'import type {{ Dashboard }} from "{RAW}/dashboard/x/Dashboard_types.gen";',
    *(
        f"import type {{ Options as {kind}Options }}"
        f' from "{RAW}/composable/{kind}/panelcfg/x/{name}PanelCfg_types.gen";'
        for kind, name in OPTIONS.items()
    ),
    # An enumeration's values, as JSON has them.
    "type Json<T> = T extends string ? `${T}`"
    " : T extends number ? (`${T}` extends `${infer N extends number}` ? N : T)"
    " : T extends object ? { [K in keyof T]: Json<T[K]> } : T;",
]
COMPILER = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext"]


def typed(name: str, dashboard: dict[str, Any]) -> list[str]:
    """A dashboard, its panels' options and how its lines are drawn, each with its published type."""
    lines = [f"export const {name}: Json<Dashboard> = {json.dumps(dashboard)};"]
    for panel in dashboard["panels"]:
        constant, kind = f"{name}_{panel['id']}", panel["type"]
        lines.append(f"export const {constant}: Json<Partial<{kind}Options>> = {json.dumps(panel['options'])};")
        drawn = panel.get("fieldConfig", {}).get("defaults", {}).get("custom")
        if kind == "timeseries" and drawn:
            lines.append(f"export const {constant}_drawn: Json<GraphFieldConfig> = {json.dumps(drawn)};")
    return lines


def found(lines: list[str]) -> list[str]:
    """What TypeScript finds wrong."""
    (installed,) = optional.required("grafana")
    # Beside node_modules, where the compiler looks for the types.
    check = installed / f"check-{os.getpid()}.ts"
    check.write_text("\n".join([*IMPORTS, *lines]) + "\n", encoding="utf-8")
    try:
        done = subprocess.run(
            ["node", "node_modules/typescript/bin/tsc", *COMPILER, check.name],
            cwd=installed,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        check.unlink()
    errors = [line for line in done.stdout.splitlines() if line.startswith(check.name)]
    assert (done.returncode == 0) == (errors == []), done.stdout + done.stderr
    return errors


def test_each_dashboard_has_the_published_types() -> None:
    assert sorted(DASHBOARDS) == ["finance", "operator", "sustainability", "today"]
    assert found([line for name, dashboard in DASHBOARDS.items() for line in typed(name, dashboard)]) == []


def test_an_unknown_key_a_missing_one_and_an_unknown_word_are_found() -> None:
    """Broken in one place each; the columns of the findings are those of the mistakes."""
    wrong: dict[str, tuple[list[str | int], object]] = {
        "unknown_key": (["panels", 1, "gridPosition"], {}),
        "wrong_type": (["schemaVersion"], "42"),
        "unknown_word": (["panels", 1, "options", "colorMode"], "colourful"),
    }
    lines = []
    for name, (path, value) in wrong.items():
        dashboard = copy.deepcopy(DASHBOARDS["operator"])
        place: Any = dashboard
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        lines += typed(name, dashboard)
    missing = copy.deepcopy(DASHBOARDS["operator"])
    del missing["schemaVersion"]
    lines += typed("missing_key", missing)
    errors = found(lines)
    assert len(errors) == 4
    for text in ("gridPosition", "not assignable to type 'number'", '"colourful"', "'schemaVersion' is missing"):
        assert any(text in error for error in errors), (text, errors)
