"""Writes the package `wattledger_agent` from the checkout's `collectors`: what the agent needs, under its own name.

Hatchling calls it for the wheel and for the source distribution, which then has the written package. Which modules are
in it follows from their imports. Keep out what the agent does: that is in `collectors`.
"""

from __future__ import annotations

import ast
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "wattledger_agent"
SOURCES = "collectors"
COMMAND = f"{SOURCES}.__main__"
# What lies beside the sources, in the package: how metrics and labels are called, and the licence.
SEEDS = ("metric_catalog.csv", "metric_spellings.csv", "label_catalog.csv", "exporter_labels.csv")
BESIDE = (*(f"dbt_project/seeds/{name}" for name in SEEDS), "LICENSE")


class AgentPackage(BuildHookInterface[Any]):
    """The package in whatever is built. A source distribution has it, and a wheel of that takes it from there."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Have the package's files included."""
        self._written: Path | None = None
        if not (Path(self.root) / PACKAGE).is_dir():
            self._written = Path(tempfile.mkdtemp())
            write_package(Path(self.root).parent, self._written / PACKAGE)
            build_data["force_include"][str(self._written / PACKAGE)] = PACKAGE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was written for this build."""
        if self._written is not None:
            shutil.rmtree(self._written)


def write_package(checkout: Path, package: Path) -> None:
    """Write the modules that the agent's command leads to, and what lies beside them."""
    for source in modules(checkout):
        written = package / source.relative_to(checkout / SOURCES)
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(renamed(source.read_text(encoding="utf-8")), encoding="utf-8")
    for name in BESIDE:
        shutil.copyfile(checkout / name, package / Path(name).name)


def modules(checkout: Path) -> set[Path]:
    """The files of the command, of all that it imports at any depth, and of the packages that these are in."""
    found: set[Path] = set()
    waiting = [COMMAND]
    while waiting:
        name = waiting.pop()
        path = checkout / name.replace(".", "/")
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if file in found or not file.is_file():  # a name that is imported from a module is no module
            continue
        found.add(file)
        waiting.append(name.rpartition(".")[0])
        for _, module, names in imports(file.read_text(encoding="utf-8")):
            waiting += [module, *(f"{module}.{one}" for one in names)]
    return found


def imports(text: str) -> list[tuple[int, str, list[str]]]:
    """Of each import from the sources: its line (from 0), the module, and the names that are taken from it."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == SOURCES:
            found.append((node.lineno - 1, node.module, [alias.name for alias in node.names]))
        elif isinstance(node, ast.Import) and any(alias.name.split(".")[0] == SOURCES for alias in node.names):
            raise ValueError(f"write `from {SOURCES} import …`: a module's own name cannot be changed ({node.names})")
    return found


def renamed(text: str) -> str:
    """A module's text whose imports from the sources are imports from the package."""
    lines = text.split("\n")
    for line, _, _ in imports(text):
        lines[line] = lines[line].replace(f"from {SOURCES}", f"from {PACKAGE}", 1)
    return "\n".join(lines)
