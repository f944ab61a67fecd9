"""No module and no class of a dependency is changed: what the project needs of them they offer."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest

from pipelines.fleet.places import PROJECT

OWN = {"collectors", "pipelines", "bench", "tests"}
SOURCES = [path for folder in ("collectors", "pipelines", "bench") for path in sorted((PROJECT / folder).rglob("*.py"))]


def imported(tree: ast.AST) -> set[str]:
    """The names under which a file has modules, classes and functions of dependencies."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            if node.module.partition(".")[0] not in OWN | sys.stdlib_module_names:
                found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] not in OWN | sys.stdlib_module_names:
                    found.add(alias.asname or alias.name.partition(".")[0])
    return found


def root(node: ast.expr) -> str | None:
    """`a` of `a.b.c`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def patches(source: str) -> Iterator[str]:
    """Each statement that sets or deletes an attribute of what was imported."""
    tree = ast.parse(source)
    names = imported(tree)
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = [one for one in node.targets if isinstance(one, ast.Attribute)]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            targets = [node.target]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("setattr", "delattr"):
            targets = node.args[:1]
        if any(root(target) in names for target in targets):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_nothing_of_a_dependency_is_changed() -> None:
    found = {path.relative_to(PROJECT).as_posix(): list(patches(path.read_text(encoding="utf-8"))) for path in SOURCES}
    assert found
    assert {path: statements for path, statements in found.items() if statements} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import dagster\ndagster.run = None",
        "from dagster._core import storage\nsetattr(storage, 'create_engine', engine_of)",
        "from dbt.compilation import Compiler as C\nC.compile.cache = {}",
        "import dbt.events as events\ndel events.LEVEL",
    ],
)
def test_a_patch_is_found(source: str) -> None:
    assert len(list(patches(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nsys.excepthook = print",
        "from pipelines.fleet import fleet_file\nfleet_file.DEFAULT = 1",
        "import duckdb\nconnection = duckdb.connect()\nconnection.name = 'a'",
        "import dagster as dg\n@dg.asset\ndef a(): pass\na.tags = {}",
    ],
)
def test_what_is_the_projects_own_may_change(source: str) -> None:
    assert list(patches(source)) == []
