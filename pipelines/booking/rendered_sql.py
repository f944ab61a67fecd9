"""SQL as dbt rendered it in an earlier run, given to this one: what it has rendered once it does not render again.

dbt parses, compiles and renders the template of each model anew in each process. What comes out is a function of the
project and of the variables, and from night to night only the dates among these differ. So the text is kept once for
each project, database and set of variables, with holes where the dates go. Add here what else a text may depend on.
Keep out hooks and materializations, which stay dbt's, and how dbt is run (`dbt_run`).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dbt.contracts.graph.manifest import Manifest

# What differs from run to run. Templates write these variables as they are, and compute nothing with them. A value is
# found in a text by itself, so it must be as long as a date.
HOLES, SHORTEST = ("start_date", "end_date", "closed_until_us"), len("2026-10-01")
# Which of its dates no run has asked for is a matter of one run.
OF_ONE_RUN = "unasked_dates"
# dbt takes a text with any of these for a template.
TEMPLATE = re.compile(r"{[{%#]|[#}%]}")
# What a macro asks the warehouse, the environment or the clock with: its text may be another one tomorrow.
ASKS = re.compile(
    r"\b(run_query|statement|env_var|get_relation|load_relation|load_cached_relation|get_columns_in_relation"
    r"|run_started_at|invocation_id|invocation_args_dict)\b|\bmodules\."
)


class RenderedSql:
    """A copy of a parsed project, in which models and data tests have the SQL that is kept of them."""

    def __init__(self, parsed: Manifest, folder: Path, variables: Mapping[str, Any], database: str) -> None:
        """`folder` has what is kept of this project alone; `database` is what SQL calls the warehouse. `parsed` stays
        as it is."""
        self.manifest = copied(parsed)
        self._parsed = parsed
        self._values = {name: str(variables[name]) for name in HOLES if name in variables}
        others = {name: value for name, value in variables.items() if name not in HOLES}
        self._key = json.dumps([database, sorted(self._values), others], sort_keys=True)
        self._path = folder / f"{hashlib.blake2b(self._key.encode(), digest_size=16).hexdigest()}.json"
        self._kept: dict[str, str] = {}
        self._is_of_one_run = OF_ONE_RUN in variables
        if self._is_of_one_run or not self._path.exists():
            return
        # What a machine that went down left of a file is written anew.
        with contextlib.suppress(ValueError):
            self._kept = json.loads(self._path.read_text(encoding="utf-8"))
        texts = self._kept
        for hole, value in self._values.items():
            texts = {name: text.replace(_mark(hole), value) for name, text in texts.items()}
        for name, text in texts.items():
            self.manifest.nodes[name].raw_code = text

    def keep(self) -> None:
        """Keep what dbt has rendered of the copy and was not kept before."""
        texts = {name: text for name, text in self._rendered().items() if name not in self._kept}
        if not texts or self._is_of_one_run or not self._has_holes():
            return
        for hole, value in self._values.items():
            texts = {name: text.replace(value, _mark(hole)) for name, text in texts.items()}
        # A process of tomorrow's project removes the folder of today's.
        with contextlib.suppress(FileNotFoundError):
            began = self._path.with_suffix(f".{os.getpid()}")
            began.write_text(json.dumps(self._kept | texts), encoding="utf-8")
            began.replace(self._path)

    def _rendered(self) -> dict[str, str]:
        """The SQL of each node that dbt has compiled and would compile to the same tomorrow."""
        macros = self._parsed.macros
        asking = {name for name, macro in macros.items() if ASKS.search(macro.macro_sql)}
        callers: dict[str, set[str]] = {}
        for name, macro in macros.items():
            for called in macro.depends_on.macros:
                callers.setdefault(called, set()).add(name)
        waiting = list(asking)
        while waiting:
            more = callers.get(waiting.pop(), set()) - asking
            asking |= more
            waiting += more
        nodes: list[Any] = [node for node in self.manifest.nodes.values() if getattr(node, "compiled", False)]
        return {
            node.unique_id: node.compiled_code
            for node in nodes
            if node.config.materialized in ("table", "view", "incremental", "test")
            and not TEMPLATE.search(node.compiled_code)
            and not ASKS.search(self._parsed.nodes[node.unique_id].raw_code)
            and asking.isdisjoint(self._parsed.nodes[node.unique_id].depends_on.macros)
        }

    def _has_holes(self) -> bool:
        """Whether each value is found where its variable is, and nowhere else."""
        values = set(self._values.values())
        nodes: list[Any] = list(self._parsed.nodes.values())
        templates = [macro.macro_sql for macro in self._parsed.macros.values()] + [node.raw_code for node in nodes]
        return (
            len(values) == len(self._values)
            and all(len(value) >= SHORTEST for value in values)
            and not any(value in template for value in values for template in (*templates, self._key))
        )


def copied(parsed: Manifest) -> Manifest:
    """The parsed project with nodes of its own: dbt notes on a node what it has compiled, and what it has called."""
    # `copy.copy` gives some of dbt's lookups to the wrong field.
    manifest = dataclasses.replace(parsed, nodes={name: copy.copy(node) for name, node in parsed.nodes.items()})
    nodes: list[Any] = list(manifest.nodes.values())
    for node in nodes:
        node.depends_on = copy.deepcopy(node.depends_on)
        if node.resource_type != "seed":
            node.extra_ctes = []
    return manifest


def _mark(hole: str) -> str:
    return f"\x1f{hole}\x1f"
