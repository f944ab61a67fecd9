"""The JSON Schema of a fleet file, by which editors check it and explain its keys: models, and `key_meanings.yml`.

Add here what an editor needs beside the models' own schema. Keep out rules that take several parts or today's date:
`wattledger check` has those.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from pipelines.fleet.fleet_keys import Fleet

MEANINGS = Path(__file__).with_name("key_meanings.yml")
# Keys that `load_fleet` fills in itself.
NOT_KEYS = frozenset({"path", "root"})


def fleet_schema() -> dict[str, Any]:
    """The schema, of JSON Schema's draft 2020-12."""
    schema = Fleet.model_json_schema()
    parts = {part.__name__: part for part in parts_of_the_file()}
    described = {"Fleet": schema, **schema["$defs"]}
    for name, found in described.items():
        part = parts[name]
        found["description"] = docstring(part)
        for key in NOT_KEYS & found["properties"].keys() if part is Fleet else ():
            del found["properties"][key]
        for key, of_key in found["properties"].items():
            of_key["description"] = meaning(part, key)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Wattledger fleet file"}


@cache
def meanings() -> dict[str, Any]:
    """The file of texts: what each key means, and an example of each key of the file."""
    held: dict[str, Any] = yaml.safe_load(MEANINGS.read_text(encoding="utf-8"))
    return held


def meaning(part: type[BaseModel], key: str) -> str:
    """What a key of a part means: its own text, that of the part it inherits from, or that of all keys of the name.
    KeyError where there is none."""
    texts = meanings()["keys"]
    named = next((f"{one.__name__}.{key}" for one in part.__mro__ if f"{one.__name__}.{key}" in texts), key)
    text: str = texts[named]
    return text


def parts_of_the_file() -> list[type[BaseModel]]:
    """The file's parts, each once, in the order in which its keys name them."""
    return list(dict.fromkeys(_parts(Fleet)))


def parts_named(annotation: Any) -> Iterator[type[BaseModel]]:
    """The parts that a key may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from parts_named(argument)


def docstring(part: type[BaseModel]) -> str:
    """What a part is, in one line."""
    return " ".join((part.__doc__ or "").split())


def _parts(part: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield part
    for field in part.model_fields.values():
        for one in parts_named(field.annotation):
            yield from _parts(one)
