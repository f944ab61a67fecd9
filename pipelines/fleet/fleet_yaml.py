"""The text of a fleet file as plain values, or what makes it no YAML that can be read.

Add here what a file may not do whatever its keys mean. Keep out keys and values: those are in `fleet_keys`.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.resolver import Resolver

from pipelines.fleet.fleet_errors import SHOWN_CHARACTERS, FleetError

# A fleet file needs six levels. Its longest lists are assignments: a million values are 100,000 of them.
MAX_DEPTH = 32
MAX_VALUES = 1_000_000
_TEXT, _MERGE, _SEQUENCE, _MAPPING = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "merge", "seq", "map"))
_BETWEEN = (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentEndEvent)


def read(path: Path) -> Any:
    """What the file holds. FleetError, with one problem in one line, when it cannot be read or is no YAML."""
    try:
        # Windows' editors write a byte order mark; its line ends are read as any others.
        text = path.read_text(encoding="utf-8-sig")
        return _Builder(text).value()
    except OSError as refusal:
        expected = "expected a fleet file (one YAML; fleets/README.md shows how to write one)"
        raise FleetError(path, [f"cannot be read: {refusal.strerror}, {expected}"]) from refusal
    except yaml.MarkedYAMLError as refusal:
        raise FleetError(path, [f"is not YAML: {_where(refusal, text)}"]) from refusal
    except UnicodeDecodeError as refusal:
        line = refusal.object[: refusal.start].count(b"\n") + 1
        wrong = f"byte 0x{refusal.object[refusal.start]:02x} in line {line}"
        raise FleetError(path, [f"is not UTF-8 text ({wrong}): save it again with the encoding UTF-8"]) from refusal
    except yaml.YAMLError as refusal:
        raise FleetError(path, [f"is not YAML: {' '.join(str(refusal).split())}"]) from refusal


def _where(refusal: yaml.MarkedYAMLError, text: str) -> str:
    """Line, column and problem; YAML's own text takes four lines."""
    mark = refusal.problem_mark or refusal.context_mark
    line = next(islice(text.splitlines(), mark.line, None), "") if mark is not None else ""
    if mark is not None and "\t" in line[: len(line) - len(line.lstrip())]:
        return f"line {mark.line + 1} begins with a tab, expected spaces: YAML indents by spaces alone"
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return f"{place}{refusal.problem or refusal.context}"


class _Builder:
    """Plain values from the events of a YAML text, as yaml.safe_load makes them, but ten times as fast.

    It refuses what plain YAML would take: a key that is in a mapping twice (the last one would silently count), nesting
    without limit, and aliases that multiply (they would take Python's stack, or all memory).
    """

    def __init__(self, text: str) -> None:
        # libyaml's parser, where PyYAML was built with it.
        self._events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self._resolver, self._constructor = Resolver(), SafeConstructor()
        self._scalars: dict[tuple[str, tuple[bool, bool]], Any] = {}
        self._anchors: dict[str, tuple[Any, int] | None] = {}  # value and its number of values; None while it is read
        self._depth = self._values = 0

    def value(self) -> Any:
        """The only document of the text; None where there is none."""
        found, documents = None, 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise ComposerError(None, None, "a second document, expected one", event.start_mark)
            elif not isinstance(event, _BETWEEN):
                found = self._node(event)
        return found

    def _node(self, event: yaml.Event) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        before = self._values
        self._count(1, event)
        anchor = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        else:
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise ComposerError(
                    None, None, f"nested more than {MAX_DEPTH} levels deep, expected six", event.start_mark
                )
            value = self._sequence(event) if isinstance(event, yaml.SequenceStartEvent) else self._mapping(event)
            self._depth -= 1
        if anchor is not None:
            self._anchors[anchor] = (value, self._values - before)
        return value

    def _count(self, values: int, event: yaml.Event) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise ComposerError(
                None, None, f"more than {MAX_VALUES:,} values, with aliases written out", event.start_mark
            )

    def _alias(self, event: yaml.AliasEvent) -> Any:
        if event.anchor not in self._anchors:
            raise ComposerError(None, None, f"no anchor {event.anchor!r} before this alias", event.start_mark)
        held = self._anchors[event.anchor]
        if held is None:
            raise ComposerError(None, None, "an alias inside of what it is the name of", event.start_mark)
        value, values = held
        self._count(values, event)
        return value

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        key = (event.value, event.implicit)
        if event.tag is None and key in self._scalars:
            return self._scalars[key]
        tag = event.tag or self._resolver.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag == _TEXT:
            value = event.value
        elif tag == _MERGE:
            value = _Merge
        else:
            value = self._constructed(tag, event)
        if event.tag is None:
            self._scalars[key] = value
        return value

    def _constructed(self, tag: str, event: yaml.ScalarEvent) -> Any:
        make = SafeConstructor.yaml_constructors.get(tag)
        if make is None:
            raise ConstructorError(None, None, f"unknown tag {tag!r}", event.start_mark)
        try:
            return make(self._constructor, yaml.ScalarNode(tag, event.value, event.start_mark))
        except ValueError as refusal:  # 2026-13-01 looks like a date, but is not one
            got = f"got {event.value[:SHOWN_CHARACTERS]!r}, {refusal}"
            raise ConstructorError(None, None, got, event.start_mark) from None

    def _sequence(self, start: yaml.SequenceStartEvent) -> list[Any]:
        _check_tag(start)
        found = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            found.append(self._node(event))
        return found

    def _mapping(self, start: yaml.MappingStartEvent) -> dict[Any, Any]:
        _check_tag(start)
        found: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event)
            value = self._node(next(self._events))
            if key is _Merge:
                for held in value if isinstance(value, list) else [value]:
                    if not isinstance(held, dict):
                        raise ConstructorError(None, None, "expected a mapping behind <<", event.start_mark)
                    merged = held | merged
            elif isinstance(key, list | dict):
                raise ConstructorError(None, None, "a key that is a list or a mapping", event.start_mark)
            elif key in found:
                raise ConstructorError(None, None, f"the key {key!r} is in one mapping twice", event.start_mark)
            else:
                found[key] = value
        return merged | found


class _Merge:
    """The key `<<`: what its mapping holds belongs to the mapping around it."""


def _check_tag(event: yaml.CollectionStartEvent) -> None:
    if event.tag not in (None, "!", _SEQUENCE, _MAPPING):
        raise ConstructorError(None, None, f"unknown tag {event.tag!r}", event.start_mark)
