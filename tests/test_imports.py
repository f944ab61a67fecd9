"""The import rules of the packages, read from the imports themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pipelines.fleet.places import PROJECT

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


def test_no_two_modules_of_tests_have_one_name() -> None:
    # pytest imports them by their names alone: it collects nothing of the second.
    names = Counter(path.stem for path in (PROJECT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


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
    closed = (
        "dagster",
        "dagster_dbt",
        "dbt",
        "duckdb",
        "great_expectations",
        "pipelines.warehouse.database",
        "collectors",
    )
    files = sorted((PROJECT / "pipelines" / "analysis").rglob("*.py"))
    assert files
    assert {(p.name, m) for p in files for m in imports(p) for room in closed if leads_to(m, room)} == set()


# What each package of `pipelines` may import of the others. No circle is possible: each names only those above it.
PACKAGES = {
    "process_exit": set(),
    "analysis": set(),
    "fleet": set(),
    "warehouse": {"fleet"},
    "landing": {"fleet", "warehouse"},
    "named_figures": {"fleet", "warehouse"},
    "publishing": {"analysis", "fleet", "warehouse", "named_figures"},
    "booking": {"fleet", "warehouse", "publishing"},
    "alarming": {"fleet", "warehouse", "booking"},
    "spark": {"fleet", "warehouse", "landing", "booking"},
    "advice": {"analysis", "fleet", "warehouse", "publishing"},
    "receipts": {"fleet", "warehouse", "named_figures"},
    "report": {"fleet", "warehouse", "analysis", "publishing", "named_figures", "receipts"},
    "upkeep": {"fleet", "warehouse", "landing", "publishing", "receipts"},
    "code_location": {
        "fleet",
        "warehouse",
        "landing",
        "booking",
        "alarming",
        "spark",
        "advice",
        "publishing",
        "report",
        "receipts",
        "upkeep",
    },
    "today": {"fleet", "warehouse", "landing", "booking", "named_figures"},
    "troubleshooting": {"fleet", "warehouse", "landing", "publishing", "booking", "upkeep"},
    "discovery": {"fleet", "warehouse", "today", "named_figures"},
    "serving": {"fleet", "warehouse", "publishing", "report", "upkeep", "code_location", "today", "named_figures"},
    "command_line": {
        "fleet",
        "warehouse",
        "analysis",
        "publishing",
        "named_figures",
        "booking",
        "alarming",
        "report",
        "receipts",
        "upkeep",
        "code_location",
        "today",
        "discovery",
        "serving",
        "troubleshooting",
    },
    "definitions": {"code_location"},
    "__main__": {"process_exit", "command_line"},
}


def package_of(path: Path) -> str:
    inside = path.relative_to(PROJECT / "pipelines")
    return inside.parts[0].removesuffix(".py")


def test_packages_import_in_one_direction() -> None:
    found: dict[str, set[str]] = {name: set() for name in PACKAGES}
    for path in PIPELINES:
        if path != PROJECT / "pipelines" / "__init__.py":
            named = {
                module.split(".")[1] for module in imports(path) if leads_to(module, "pipelines") and "." in module
            }
            found[package_of(path)] |= named - {package_of(path)}
    assert found == PACKAGES
    above: set[str] = set()
    for name, imported in PACKAGES.items():
        assert imported <= above, name
        above.add(name)


def test_no_two_modules_have_the_same_name() -> None:
    """A folder of `publishing` is for one place or format: there it is a part of the name, as in `postgresql.asset`."""
    publishing = PROJECT / "pipelines" / "publishing"
    names = [
        f"{path.parent.name}.{path.stem}" if path.parent.parent == publishing else path.stem
        for path in COLLECTORS + PIPELINES
        if path.stem not in ("__init__", "__main__")
    ]
    names += [path.parent.name for path in COLLECTORS + PIPELINES if path.stem == "__init__"]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


def test_folders_have_room() -> None:
    """A folder with more files has more than one idea."""
    folders = {path.parent for path in COLLECTORS + PIPELINES}
    folders |= {path.parent for folder in folders for path in folder.rglob("*.sql")}
    sizes = {
        str(folder.relative_to(PROJECT)): sum(1 for one in folder.iterdir() if one.is_file()) for folder in folders
    }
    assert {folder: files for folder, files in sizes.items() if files > 25} == {}


def test_no_import_goes_around_in_a_circle() -> None:
    modules = {".".join(path.relative_to(PROJECT).with_suffix("").parts): path for path in COLLECTORS + PIPELINES}
    graph = {name: imports(path) & set(modules) - {name} for name, path in modules.items()}
    while leaves := {name for name, imported in graph.items() if not imported & set(graph)}:
        graph = {name: imported for name, imported in graph.items() if name not in leaves}
    assert graph == {}


def test_only_asset_modules_and_the_run_know_dagster() -> None:
    knowing = {
        str(path.relative_to(PROJECT / "pipelines"))
        for path in PIPELINES
        for module in imports(path)
        if leads_to(module, "dagster")
    }
    assert knowing == {
        "advice/advice_score.py",
        "advice/consolidation_table.py",
        "advice/cost_forecasts.py",
        "advice/efficiency_fits.py",
        "advice/right_sizing_table.py",
        "advice/sleep_table.py",
        "alarming/run_outcome.py",
        "alarming/run_sensors.py",
        "booking/alarms.py",
        "booking/checks.py",
        "booking/fleet_file_check.py",
        "booking/invariants.py",
        "booking/dbt_results.py",
        "booking/ledger.py",
        "booking/ledger_translator.py",
        "booking/stale_settings.py",
        "code_location.py",
        "command_line/instance.py",
        "command_line/run.py",
        "command_line/upkeep_commands/doctor_command.py",
        "command_line/upkeep_commands/prune_command.py",
        "landing/bill_assets.py",
        "landing/window_assets.py",
        "landing/request_assets.py",
        "landing/telemetry_assets.py",
        "publishing/object_store/asset.py",
        "publishing/parts.py",
        "publishing/postgresql/asset.py",
        "publishing/publication.py",
        "receipts/receipt_asset.py",
        "report/fleet_report.py",
        "spark/ledger_on_spark.py",
        "upkeep/pruning.py",
        "upkeep/dagster_history.py",
        "upkeep/event_log.py",
        "upkeep/upkeep_asset.py",
        "warehouse/asset_keys.py",
        "warehouse/partitions.py",
    }


# Each optional part is one folder, and who else may import it.
OPTIONAL = {
    "pipelines.spark": {"pipelines/code_location.py"},
    "pipelines.publishing.postgresql": {"pipelines/code_location.py"},
    "pipelines.publishing.object_store": {"pipelines/code_location.py"},
    "pipelines.publishing.focus": {
        "pipelines/publishing/month_closing.py",
        "pipelines/publishing/publication.py",
        "pipelines/publishing/restoring.py",
    },
}
# The packages that they need, and where alone these are imported.
PACKAGES_OF_PARTS = {
    "pyspark": "pipelines/spark",
    "deltalake": "pipelines/publishing/object_store",
    "xlsxwriter": "pipelines/publishing/workbook",
    "adbc_driver_manager": "collectors/protocols/postgresql_driver.py",
    "adbc_driver_postgresql": "collectors/protocols/postgresql_driver.py",
}


def importing(module: str) -> set[str]:
    """The files that import a module, or anything in it."""
    files = COLLECTORS + PIPELINES
    return {str(p.relative_to(PROJECT)) for p in files if any(leads_to(m, module) for m in imports(p))}


@pytest.mark.parametrize("part", OPTIONAL)
def test_an_optional_part_is_a_folder_that_the_rest_does_not_know(part: str) -> None:
    folder = f"{part.replace('.', '/')}/"
    assert (PROJECT / folder).is_dir()
    assert {path for path in importing(part) if not path.startswith(folder)} == OPTIONAL[part]


def test_what_an_optional_part_needs_is_imported_there_alone() -> None:
    found = {package: importing(package) for package in PACKAGES_OF_PARTS}
    assert {package for package, files in found.items() if not files} == set()
    assert {
        (package, path) for package, files in found.items() for path in files
        if not path.startswith(PACKAGES_OF_PARTS[package])
    } == set()  # fmt: skip


@pytest.mark.rest
def test_a_fleet_without_optional_parts_loads_where_their_packages_are_missing() -> None:
    program = (
        "import sys; packages = ('pyspark', 'deltalake', 'adbc_driver_manager', 'adbc_driver_postgresql');"
        " sys.modules.update(dict.fromkeys(packages));"
        " from pipelines.code_location import definitions_of, fleet_of_environment;"
        " definitions_of(fleet_of_environment());"
        f" parts = {tuple(part for part in OPTIONAL if part != 'pipelines.publishing.focus')};"
        " print(sorted(name for name in sys.modules if name.startswith(parts)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_files_are_short_and_state_what_belongs_in_them() -> None:
    texts = {str(path.relative_to(PROJECT)): path.read_text(encoding="utf-8") for path in COLLECTORS + PIPELINES}
    lines = {path: len(text.splitlines()) for path, text in texts.items()}
    assert {path: count for path, count in lines.items() if count >= 400} == {}
    assert [path for path, text in texts.items() if not ast.get_docstring(ast.parse(text))] == []


def test_importing_collectors_imports_nothing_heavy() -> None:
    program = "import sys, collectors; print(sorted({'pyarrow', 'numpy', 'duckdb', 'dagster'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_checking_a_fleet_file_does_not_wait_for_dagster() -> None:
    program = (
        "import sys, pipelines.__main__; print(sorted({'dagster', 'dbt', 'great_expectations'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
