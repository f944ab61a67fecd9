"""The parts of a message about a wrong fleet file: the key, the value and what was expected.

Add a sentence here when pydantic's own would not help. Keep out the rules themselves: they are in `fleet_keys` and
`sources`.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from collectors.cells import shown
from collectors.samples import printable, url_without_secrets

SHOWN_CHARACTERS = 60
_UNSET = re.compile(r"environment variable \w+ is not set")
_SECRET_KEYS = frozenset({"auth", "tls"})
_COMMA = re.compile(r"-?\d+,\d+")
_PYDANTIC_OPENING = re.compile(r"^(Value error, |Input should be |Input should |String should |\w+ should )")


class FleetError(Exception):
    """The fleet file is wrong. `problems` has one line per mistake; a single one is the whole message."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        self.path = path
        self.problems = problems = [printable(line) for line in problems]
        several = [f"{path}: {len(problems)} problems", *(f"  {line}" for line in problems)]
        super().__init__(f"{path}: {problems[0]}" if len(problems) == 1 else "\n".join(several))


def problems(wrong: ValidationError, raw: dict[str, Any], model: type[BaseModel]) -> list[str]:
    """One line per mistake, in the file's order: key, value, expectation. A variable that is not set is one mistake,
    however many keys use it."""
    lines: dict[str, str] = {}
    others = Counter[str]()
    for error in wrong.errors(include_url=False):
        line = _line(error, raw, model)
        unset = _UNSET.search(line)
        mistake = unset[0] if unset else line
        others[mistake] += mistake in lines
        lines.setdefault(mistake, line)
    return [
        f"{line} ({others[mistake]} more keys use it)" if others[mistake] else line for mistake, line in lines.items()
    ]


def _line(error: Any, raw: Any, model: type[BaseModel]) -> str:
    key, loc, candidates = _walk(error["loc"], raw, model)
    kind, message = error["type"], error["msg"]
    if kind == "extra_forbidden":
        known = sorted({name for candidate in candidates for name in candidate.model_fields} - {"path", "root"})
        near = difflib.get_close_matches(str(loc), known, n=1)
        # Without the value: a misspelt key may hold a secret.
        hint = f", did you mean {near[0]!r}?" if near else f", expected one of {', '.join(known)}"
        return f"{key}: unknown key{hint}"
    if kind == "missing":
        return f"{key}: missing, expected {_description(candidates, loc)}"
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        expected = error.get("ctx", {}).get("expected_tags", "'prometheus', 'files', 'spool', 'synthetic'")
        got = error.get("ctx", {}).get("tag")
        return f"{key}.kind: {'missing' if got is None else f'got {_shown(got)}'}, expected one of {expected}"
    if message.endswith("timezone info"):
        message = "a time with its zone, such as 2026-10-01T00:00:00Z"
    if otherwise := _read_otherwise(error, key, raw, model):
        return otherwise
    expectation = _PYDANTIC_OPENING.sub("", message)
    if isinstance(error["input"], dict | list | BaseModel) or _may_hold_a_secret(error):
        return f"{key}: {_expected(expectation)}"
    return f"{key}: got {_shown(error['input'])}, {_expected(expectation)}"


def _read_otherwise(error: Any, key: str, raw: Any, model: type[BaseModel]) -> str | None:
    """The line of a value that YAML reads otherwise than it was meant; None of any other."""
    kind, value, loc = error["type"], error["input"], error["loc"]
    if kind == "invalid_key" or (loc[-1:] == ("[key]",) and not isinstance(value, str)):
        return _wrong_key(loc if kind == "invalid_key" else loc[:-1], raw, model)
    if kind in ("float_type", "int_type") and _COMMA.fullmatch(str(value)):
        return f"{key}: got {value!r}, expected a number with a decimal point: {value.replace(',', '.')}"
    if kind == "string_type" and isinstance(value, bool):
        typed, where = ("ON" if value else "NO"), f"{loc[-1]}: " if isinstance(loc[-1], str) else ""
        read_as = str(value).lower()
        return f'{key}: got {read_as}, expected text: YAML reads {typed} as {read_as}, so quote it: {where}"{typed}"'
    if kind == "string_type" and isinstance(value, int | float) and not _may_hold_a_secret(error):
        return f'{key}: got {value}, expected text: quote it, "{value}"'
    return None


def _wrong_key(loc: tuple[Any, ...], raw: Any, model: type[BaseModel]) -> str:
    """A key that is no text. Behind a number it is what follows a decimal comma: of 2,1 YAML makes the value 2 and the
    key 1."""
    *places, wrong = loc
    holder = raw
    for part in places:
        if not isinstance(holder, dict) or part in holder:  # the kind of a source is in no mapping
            holder = holder[part]
    keys = list(holder)
    before = keys[keys.index(wrong) - 1]
    if isinstance(before, str) and isinstance(holder[before], int | float) and holder[wrong] is None:
        key = _walk((*places, before), raw, model)[0]
        return (
            f"{key}: got {holder[before]} and, after a comma, {wrong}, expected a number with a decimal point, such as"
            " 2.1: in YAML a comma ends the value"
        )
    return f'{_walk(tuple(places), raw, model)[0]}: got the key {wrong}, expected text: quote it, "{wrong}"'


def _may_hold_a_secret(error: Any) -> bool:
    """Whether someone may have put a secret itself where the file names the variable that holds one.

    The keys `auth`, `tls` and those that end with `_env` are shown without their values; so is a URL that is none.
    """
    keys = [part for part in error["loc"] if isinstance(part, str)]
    if any(key in _SECRET_KEYS or key.endswith("_env") for key in keys):
        return True
    return keys[-1:] == ["url"] and "://" not in str(error["input"])


def _expected(expectation: str) -> str:
    is_whole = "expected" in expectation or expectation.startswith(("must", "environment"))
    return expectation if is_whole else f"expected {expectation}"


def _shown(value: Any) -> str:
    if isinstance(value, str) and "://" in value:
        value = url_without_secrets(value)
    text = repr(value) if isinstance(value, str | int | float | bool | type(None)) else str(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _walk(loc: tuple[Any, ...], raw: Any, model: type[BaseModel]) -> tuple[str, Any, list[type[BaseModel]]]:
    """The key as a person would write it, its last part, and the models that could hold that last part."""
    key, before, candidates, holders = "", None, [model], [model]
    for part in loc:
        if isinstance(part, int):
            raw = raw[part] if isinstance(raw, list) and part < len(raw) else None
            named = raw.get("name") or raw.get("window_id") if isinstance(raw, dict) else None
            key += f"[{named if isinstance(named, str) else part}]"
            before = part
            continue
        if isinstance(before, int) and any(part in _tags(c) for c in candidates):
            candidates = [c for c in candidates if part in _tags(c)]  # the kind of a source, not a key of the file
            before = part
            continue
        fields = [c.model_fields[part] for c in candidates if part in c.model_fields]
        holders = candidates
        candidates = [found for field in fields for found in _models(field.annotation)]
        raw = raw.get(part) if isinstance(raw, dict) else None
        key += f".{part}" if key else str(part)
        before = part
    return key, loc[-1] if loc else "", holders


def _tags(model: type[BaseModel]) -> tuple[str, ...]:
    field = model.model_fields.get("kind")
    return typing.get_args(field.annotation) if field else ()


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models(argument)


def _description(candidates: list[type[BaseModel]], name: Any) -> str:
    for candidate in candidates:
        field = candidate.model_fields.get(str(name))
        if field is not None:
            annotation = field.annotation
            parts = next(_models(annotation), None)
            if parts is not None:
                return f"{{{', '.join(parts.model_fields)}}}"
            return getattr(annotation, "__name__", str(annotation)).replace("str", "text").replace("float", "a number")
    return "a value"


def mistake_of_a_row(wrong: ValidationError) -> str:
    """The first mistake of a file's row: column, value, expectation."""
    error = wrong.errors(include_url=False)[0]
    key = ".".join(str(part) for part in error["loc"])
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        return f"{key}: missing, expected a value"
    if message.endswith("timezone info"):
        message = "expected a time with its zone, such as 2026-10-01T00:00:00Z"
    return f"{key}: got {shown(error['input'])}, {message[0].lower()}{message[1:]}" if key else message
