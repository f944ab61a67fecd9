"""The table of limits in SECURITY.md has the constants of the code: each row its value, and each MOST_… a row."""

from __future__ import annotations

import ast
import importlib
import re
from functools import reduce
from pathlib import Path

from pipelines.fleet.places import PROJECT

UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}


def rows() -> list[tuple[str, str]]:
    """What each row states, and the constant that it names."""
    section = (PROJECT / "SECURITY.md").read_text("utf-8").partition("## Limits\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(at_most, name.strip("`")) for _, _, at_most, _, name in cells]


def constant(name: str) -> float:
    """The value of `package.module.NAME` or `package.module.NAME.field`."""
    module, *attributes = re.split(r"\.(?=[A-Z])", name)
    first, *fields = attributes[0].split(".")
    return float(reduce(getattr, fields, getattr(importlib.import_module(module), first)))


def test_each_limit_is_as_it_is_in_the_code() -> None:
    other = []
    for stated, name in rows():
        number, unit = re.match(r"([\d,]+) ?(\w*)", stated).groups()  # type: ignore[union-attr]
        if constant(name) != int(number.replace(",", "")) * UNITS.get(unit, 1):
            other.append((name, constant(name), stated))
    assert other == []


def test_no_limit_of_what_takes_bytes_from_others_is_missing() -> None:
    named = {name for _, name in rows()}
    modules = {name.rpartition(".")[0] for name in named}
    paths = {path for folder in ("", "devices", "protocols") for path in (PROJECT / "collectors" / folder).glob("*.py")}
    paths |= {path for module in modules if (path := PROJECT / f"{module.replace('.', '/')}.py").is_file()}
    assert len(paths) > 30
    assert sorted(_limits_of(paths) - named) == []


def _limits_of(paths: set[Path]) -> set[str]:
    found = set()
    for path in paths:
        module = ".".join(path.relative_to(PROJECT).with_suffix("").parts)
        for statement in ast.parse(path.read_text("utf-8")).body:
            if isinstance(statement, ast.Assign):
                names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
                found |= {f"{module}.{name}" for name in names if name.startswith(("MOST_", "MAX_"))}
    return found
