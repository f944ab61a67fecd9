"""What a trial asks of the dbt project of a tree, in a process of its own there: `python changed_sql.py WORD …`.

`digest` declares the digest of the tree's SQL in same_figures.yml, so that no test fails because SQL changed at all.
`units FILE …` runs dbt's unit tests of the models that these files of SQL make or are used by, and prints the names of
those that fail. `graph` prints which nodes each file makes or changes, and the parents of each node.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

# The tree's code, not that of the checkout which this file is of.
sys.path[0] = str(Path.cwd())

from pipelines.booking.dbt_run import run_dbt  # noqa: E402
from pipelines.booking.project import prepared_project  # noqa: E402
from pipelines.fleet.places import DBT_PROJECT  # noqa: E402
from pipelines.warehouse.contracts import SAME_FIGURES, contracts_of  # noqa: E402
from tests.books import empty_warehouse  # noqa: E402


def manifest() -> dict[str, Any]:
    return json.loads(prepared_project().manifest_path.read_text(encoding="utf-8"))


def declare_digest() -> None:
    path = DBT_PROJECT / SAME_FIGURES
    text = path.read_text(encoding="utf-8")
    (before,) = re.findall(r"^formulas: (\w+)$", text, re.MULTILINE)
    today = contracts_of(prepared_project().manifest_path, DBT_PROJECT).formulas
    if today != before:
        text = text.replace(f"formulas: {before}", f"formulas: {today}").replace("same_as: [", f"same_as: [{before}, ")
        path.write_text(text.replace(", ]", "]"), encoding="utf-8")
        prepared_project()


def changed_nodes(parsed: dict[str, Any]) -> dict[str, list[str]]:
    """File -> the nodes that it makes; of a file of macros, the nodes that use one of them."""
    macros = {key: macro for key, macro in parsed["macros"].items() if macro["package_name"] == "wattledger"}

    def used(keys: list[str], reached: set[str]) -> set[str]:
        for key in keys:
            if key in macros and key not in reached:
                reached.add(key)
                dispatched = [
                    f"macro.wattledger.{way}__{macros[key]['name']}" for way in ("duckdb", "default", "spark")
                ]
                used([*macros[key]["depends_on"]["macros"], *dispatched], reached)
        return reached

    nodes_of: dict[str, list[str]] = {}
    for key, node in parsed["nodes"].items():
        nodes_of.setdefault(f"dbt_project/{node['original_file_path']}", []).append(key)
        for macro in used(node.get("depends_on", {}).get("macros", []), set()):
            nodes_of.setdefault(f"dbt_project/{macros[macro]['original_file_path']}", []).append(key)
    return {file: sorted(set(keys)) for file, keys in nodes_of.items()}


def failed_units(files: list[str]) -> list[str]:
    parsed = manifest()
    nodes_of = changed_nodes(parsed)
    models = {key for file in files for key in nodes_of.get(file, [])}
    names = [test["name"] for test in parsed["unit_tests"].values() if models.intersection(test["depends_on"]["nodes"])]
    if not names:
        return []
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder, "warehouse.duckdb")
        shutil.copyfile(empty_warehouse(), warehouse)
        dates = {"start_date": "1970-01-01", "end_date": "1970-01-02"}
        words = ["test", "--select", *names]
        results = run_dbt(words, dates, {"WATTLEDGER_WAREHOUSE": str(warehouse)}, Path(folder))
    return [result.node.name for result in results if result.status != "pass"]


if __name__ == "__main__":
    word, answer, *files = sys.argv[1:]
    if word == "digest":
        declare_digest()
    elif word == "units":
        Path(answer).write_text(json.dumps(failed_units(files)), encoding="utf-8")
    elif word == "graph":
        parsed = manifest()
        graph = {"nodes_of": changed_nodes(parsed), "parents": parsed["parent_map"]}
        Path(answer).write_text(json.dumps(graph), encoding="utf-8")
    # dbt's threads and DuckDB's may hold the process.
    sys.stdout.flush()
    os._exit(0)
