"""dbt's templates, compiled once per process, and before a process forks.

dbt compiles each template anew in each of its runs: a sixth of booking a few rows. Importing `tests.loaded` does it for
all of the project's. Keep out what a template gives.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from dbt_common.clients.jinja import MacroFuzzEnvironment, get_template

from pipelines.booking import dbt_run
from pipelines.fleet.places import DBT_PROJECT


@cache
def compile_once() -> None:
    """From now on, a template that this process has compiled is not compiled again."""
    compile_template, known = MacroFuzzEnvironment.compile, dict[tuple[object, ...], Any]()

    def compile_or_recall(self: MacroFuzzEnvironment, source: Any, *more: Any, **named: Any) -> Any:
        if not isinstance(source, str):
            return compile_template(self, source, *more, **named)
        key = (type(self), source, more, *sorted(named.items()))
        if key not in known:
            known[key] = compile_template(self, source, *more, **named)
        return known[key]

    MacroFuzzEnvironment.compile = compile_or_recall


def compile_all() -> None:
    """Parse the dbt project and compile its macros and models."""
    compile_once()
    manifest = dbt_run._parsed(DBT_PROJECT, DBT_PROJECT / "target")
    for macro in manifest.macros.values():
        get_template(macro.macro_sql, {}, node=macro)
    for node in manifest.nodes.values():
        if node.resource_type == "model":
            get_template(node.raw_code, {}, node=node)
