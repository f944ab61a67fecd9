"""The page of every key, which `make docs` and `wattledger help` show: docs/fleet_file.md, which is written by hand,
and after it the models with the texts of `key_meanings.yml`.

Add here what the page shows of every key. Keep out what single keys mean: key_meanings.yml.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pipelines.fleet.fleet_keys import Fleet
from pipelines.fleet.fleet_schema import NOT_KEYS, docstring, fleet_schema, meaning, meanings, parts_named
from pipelines.fleet.places import PROJECT

PATH: Path = PROJECT / "docs" / "fleet_file.md"
_TABLE = "| key | what it holds | default | meaning |\n|---|---|---|---|"
_TYPES = {
    "string": "text",
    "number": "number",
    "integer": "whole number",
    "boolean": "true or false",
    "object": "a mapping",
    "null": "",
}
_BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}


def page() -> str:
    """The page as Markdown."""
    return "\n\n".join([PATH.read_text(encoding="utf-8").rstrip(), *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    schema = fleet_schema()
    shown: dict[type[BaseModel], str] = {}
    yield "## The file itself"
    yield _table(Fleet, schema, shown)
    for key, field in Fleet.model_fields.items():
        parts = list(parts_named(field.annotation))
        if key not in NOT_KEYS and (parts or key in meanings()["examples"]):
            yield f"## `{key}`"
            yield meaning(Fleet, key)
            if key in meanings()["examples"]:
                yield _example(key)
            for part in parts:
                yield from _of_part(part, _path(key, field), schema, shown)


def _of_part(
    part: type[BaseModel], path: str, schema: dict[str, Any], shown: dict[type[BaseModel], str], of_kind: str = ""
) -> Iterator[str]:
    """A part with its keys, and then the parts in it; one that was shown before is named where it is used. `of_kind`:
    of which kind the part around it is."""
    if part in shown:
        return
    kind = part.model_fields.get("kind")
    kinds = schema["$defs"][part.__name__]["properties"]["kind"] if kind is not None else None
    if kinds and ("const" in kinds or len(kinds.get("enum", [])) in (2, 3)):
        of_kind = f" of kind {_shape(kinds, '')}"
    shown[part] = path
    if path not in Fleet.model_fields:  # the key's own heading is there
        yield f"### `{path}`{of_kind}"
    yield docstring(part)
    yield _table(part, schema, shown)
    for key, field in part.model_fields.items():
        for one in parts_named(field.annotation):
            yield from _of_part(one, f"{path}.{_path(key, field)}", schema, shown, of_kind)


def _path(key: str, field: FieldInfo) -> str:
    text = str(field.annotation)
    return f"{key}[]" if "tuple[" in text or "list[" in text else key


def _table(part: type[BaseModel], schema: dict[str, Any], shown: dict[type[BaseModel], str]) -> str:
    properties = (schema if part is Fleet else schema["$defs"][part.__name__])["properties"]
    rows = []
    for key, field in part.model_fields.items():
        if part is Fleet and key in NOT_KEYS:
            continue
        inside = next(parts_named(field.annotation), None)
        where = shown.get(inside, "") if inside is not None else ""
        held = _shape(properties[key], where)
        rows.append(f"| `{key}` | {held} | {_default(field)} | {_cell(meaning(part, key))} |")
    return "\n".join([_TABLE, *rows])


def _shape(of_key: dict[str, Any], where: str) -> str:
    """What a key holds, in words."""
    match of_key:
        case {"const": only}:
            found = f"`{only}`"
        case {"enum": several}:
            found = ", ".join(f"`{one}`" for one in several)
        case {"$ref": _} | {"oneOf": _}:
            found = f"as `{where}`" if where else "a mapping, below"
        case {"anyOf": several}:
            found = ", ".join(filter(None, (_shape(one, where) for one in several)))
        case {"type": "array", "items": {"$ref": _} | {"oneOf": _}}:
            found = f"a list, as `{where}`" if where else "a list, below"
        case {"type": "array", "items": {"type": _} as items}:
            found = f"a list of {_shape(items, where)}"
        case {"type": "array"}:
            found = "a list"
        case {"format": "date"}:
            found = "a date"
        case {"format": "date-time"}:
            found = "a time with its zone"
        case _:
            bounds = [f"{word} {of_key[name]:g}" for name, word in _BOUNDS.items() if name in of_key]
            found = " ".join([_TYPES.get(str(of_key.get("type")), "a value"), *bounds])
    return found


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**needed**"
    default = field.get_default(call_default_factory=True)
    if default is None or isinstance(default, BaseModel) or default in ((), {}, ""):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, float):
        return f"`{default:g}`"
    return f"`{list(default) if isinstance(default, tuple) else default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _example(key: str) -> str:
    return f"```yaml\n{meanings()['examples'][key].rstrip()}\n```"
