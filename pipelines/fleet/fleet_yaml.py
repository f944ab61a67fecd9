"""The text of a fleet file as plain values, or what makes it no YAML that can be read.

Add here what a file may not do whatever its keys mean. Keep out keys and values: those are in `fleet_file`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pipelines.fleet.fleet_errors import SHOWN_CHARACTERS, FleetError

# A fleet file needs six levels. Its longest lists are assignments: a million values are 100,000 of them.
MAX_DEPTH = 32
MAX_NODES = 1_000_000


def read(path: Path) -> Any:
    """What the file holds. FleetError, with one problem in one line, when it cannot be read or is no YAML."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 (it is a SafeLoader)
    except OSError as refusal:
        expected = "expected a fleet file (one YAML; fleets/README.md says how to write one)"
        raise FleetError(path, [f"cannot be read: {refusal.strerror}, {expected}"]) from refusal
    except yaml.MarkedYAMLError as refusal:
        raise FleetError(path, [f"is not YAML: {_where(refusal)}"]) from refusal
    except (yaml.YAMLError, UnicodeDecodeError) as refusal:
        raise FleetError(path, [f"is not YAML: {' '.join(str(refusal).split())}"]) from refusal


def _where(refusal: yaml.MarkedYAMLError) -> str:
    """Line, column and problem; YAML's own text takes four lines."""
    mark = refusal.problem_mark or refusal.context_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return f"{place}{refusal.problem or refusal.context}"


class _Loader(yaml.SafeLoader):
    """Refuses what plain YAML would take: a key that stands twice (it would silently keep the last), nesting without
    end and aliases that multiply (they would take Python's stack, or all memory)."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = self._nodes = 0
        self._sizes: dict[int, int] = {}  # per node: how many nodes it holds, with its aliases written out

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # the stubs leave its types out
        is_alias, before = self.check_event(yaml.AliasEvent), self._nodes
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(
                None, None, f"nested more than {MAX_DEPTH} levels deep, expected six", mark
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        if is_alias and id(node) not in self._sizes:
            raise yaml.composer.ComposerError(None, None, "an alias inside of what it stands for", mark)
        self._nodes += self._sizes[id(node)] if is_alias else 1
        if self._nodes > MAX_NODES:
            raise yaml.composer.ComposerError(
                None, None, f"more than {MAX_NODES:,} values, with aliases written out", mark
            )
        if not is_alias:
            self._sizes[id(node)] = self._nodes - before
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as refusal:  # 2026-13-01 looks like a date and is none
            got = f"got {node.value[:SHOWN_CHARACTERS]!r}, {refusal}"
            raise yaml.constructor.ConstructorError(None, None, got, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        for i, key in enumerate(keys):
            if key in keys[:i]:
                mark = node.value[i][0].start_mark
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", mark)
        return super().construct_mapping(node, deep)
