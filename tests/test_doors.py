"""Doors open one way. Read from the imports themselves, so that a lint that nobody runs is not the only guard."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.fleet import PROJECT

COLLECTORS = sorted((PROJECT / "collectors").rglob("*.py"))
PIPELINES = sorted((PROJECT / "pipelines").rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at any depth of its code, and every name that it takes from one."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def leads_to(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def test_collectors_know_sources_only() -> None:
    closed = ("pipelines", "tests", "bench", "dagster", "dagster_dbt", "dbt", "duckdb", "great_expectations", "pandas")
    through = {(p.name, m) for p in COLLECTORS for m in imports(p) for room in closed if leads_to(m, room)}
    assert through == set()


def test_nothing_imports_the_definitions() -> None:
    product = [path for path in COLLECTORS + PIPELINES if path.name != "definitions.py"]
    assert [path.name for path in product for m in imports(path) if leads_to(m, "pipelines.definitions")] == []


def test_nothing_of_the_product_imports_tests() -> None:
    assert [path.name for path in COLLECTORS + PIPELINES for m in imports(path) if leads_to(m, "tests")] == []


def test_analysis_is_pure() -> None:
    closed = ("dagster", "dagster_dbt", "dbt", "duckdb", "great_expectations", "pipelines.warehouse", "collectors")
    files = sorted((PROJECT / "pipelines" / "analysis").rglob("*.py"))
    assert files
    assert {(p.name, m) for p in files for m in imports(p) for room in closed if leads_to(m, room)} == set()


def test_only_the_asset_modules_and_the_command_line_know_dagster() -> None:
    knowing = {path.name for path in PIPELINES for m in imports(path) if leads_to(m, "dagster")}
    assert knowing == {
        "__main__.py",
        "alarms.py",
        "checks.py",
        "consolidation.py",
        "curves.py",
        "house.py",
        "instance.py",
        "invariants.py",
        "keys.py",
        "ledger.py",
        "publication.py",
        "requests.py",
        "right_sizing.py",
        "stale_dates.py",
        "telemetry.py",
    }


@pytest.mark.parametrize("path", COLLECTORS + PIPELINES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_files_are_short_and_say_what_belongs_in_them(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 400
    assert ast.get_docstring(ast.parse(text))


def test_importing_collectors_imports_nothing_heavy() -> None:
    program = "import sys, collectors; print(sorted({'pyarrow', 'numpy', 'duckdb', 'dagster'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_judging_a_fleet_file_does_not_wait_for_dagster() -> None:
    program = (
        "import sys, pipelines.__main__; print(sorted({'dagster', 'dbt', 'great_expectations'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
