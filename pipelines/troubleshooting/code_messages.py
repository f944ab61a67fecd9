"""The messages that a module of the code may print, read from its source: a placeholder is where a value comes in.

Add here another form in which the code writes a message. Keep out which modules' messages a page shows: sections.yml.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

# A shorter text is a word or a key, and no message.
_LEAST_WORDS = 3
_WORDS = re.compile(r"(?<![<\w])[A-Za-z][\w'-]*(?![\w>])")
# What is printed as `key: got X, expected Y`, and what takes a whole message.
_FINDING = "Finding"
_ERROR = re.compile(r"\w*(Doubt|Error|Failure|Lost|Shrink|Damaged|Missing)$")
# What of a function only writes a value in another way.
_SHOWING = ("printable", "repr", "shown", "str", "_shown", "map", "join", "masked")
# Placeholders that a reader would not understand: numbers, and calls that only change how a value is written.
_PLAIN = {
    **dict.fromkeys(["len", "abs", "number", "round", "float", "count", "copies", "total_seconds", "many"], "N"),
    **dict.fromkeys(
        ["decode", "removesuffix", "split", "splitlines", "get", "sorted", "timedelta", "object", "upper", "repr"], "…"
    ),
    **dict.fromkeys(["unexplained", "strerror", "damage"], "error"),
    "fspath": "path",
    "isoformat": "time",
    "kwh": "N kWh",
    "plain_reason": "reason",
    "read_as": "value",
    "shown": "place",
    "shown_variable": "variable",
    "url_without_secrets": "url",
}
_CONSTANT = re.compile(r"_?[A-Z][A-Z_]+$")
_TEXTS = ast.Constant | ast.JoinedStr | ast.IfExp | ast.BinOp


def messages(place: str) -> list[str]:
    """The messages that `package.module` raises or finds; of `package.module:name` also those that this function
    returns or yields, or this constant's text. In the order of the code."""
    module, _, name = place.partition(":")
    tree = _tree(module)
    found: dict[str, None] = {}
    for function in sorted(_functions(tree), key=lambda one: one.lineno):
        if not name or function.name == name:
            found |= dict.fromkeys(_of_function(_Scope(module, _texts_of(function)), function, bool(name)))
    if not found and name:
        scope = _Scope(module, {})
        held = _constant(module, name)
        found = {} if held is None else {_text(held, scope): None}
    if not found:
        raise LookupError(f"{place} has no message: correct it in sections.yml")
    return [*found]


class _Scope(NamedTuple):
    """Where a text is: its module, and the texts that names have in its function, each with the line."""

    module: str
    names: dict[str, list[tuple[int, ast.expr]]]


@cache
def _tree(module: str) -> ast.Module:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise LookupError(f"there is no module {module}: correct it in sections.yml")
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))


def _texts_of(function: ast.FunctionDef) -> dict[str, list[tuple[int, ast.expr]]]:
    found: dict[str, list[tuple[int, ast.expr]]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for one, value in pairs:
                found.setdefault(_name(one), []).append((node.lineno, value))
    return found


def _of_function(scope: _Scope, function: ast.FunctionDef, with_returned: bool) -> Iterator[str]:
    values = _values(function, with_returned)
    for value in sorted(values, key=lambda one: (one.lineno, one.col_offset)):
        text = " ".join(_message(value, scope).split())
        if len(_WORDS.findall(text)) >= _LEAST_WORDS:
            yield text


def _values(function: ast.FunctionDef, with_returned: bool) -> Iterator[ast.expr]:
    """What makes messages, and the texts that a function returns or yields."""
    for node in ast.walk(function):
        match node:
            case ast.Raise(exc=ast.Call() as made):
                yield made
            case ast.Call(func=called) if _name(called) == _FINDING or _ERROR.match(_name(called)):
                yield node
            case ast.Return(value=returned) | ast.Yield(value=returned) if with_returned:
                if isinstance(returned, ast.JoinedStr | ast.Constant | ast.IfExp | ast.Call):
                    yield returned
            case ast.ListComp(elt=ast.JoinedStr() as listed) if with_returned:
                yield listed


def _message(value: ast.expr, scope: _Scope) -> str:
    if not isinstance(value, ast.Call):
        return _text(value, scope)
    given = [arg for one in value.args for arg in (one.elts if isinstance(one, ast.List) else [one])]
    texts = [_text(one, scope) for one in given]
    if _name(value.func) == _FINDING:
        key, got, *expected = texts
        return f"{key}: got {got}, expected {expected[0]}" if expected else f"{key}: {got}"
    # Of a SourceError the last one is the reason; a file or an address before it is shown with it.
    return next((text for text in reversed(texts) if _WORDS.search(text)), "")


def _text(value: ast.expr, scope: _Scope) -> str:
    match value:
        case ast.Constant(value=str() | int() | float() as held):
            text = str(held)
        case ast.JoinedStr(values=parts):
            text = "".join(_text(part, scope) for part in parts)
        case ast.FormattedValue(value=inner, conversion=conversion):
            quote = "'" if conversion == ord("r") else ""
            text = f"{quote}{_text(inner, scope)}{quote}"
        case ast.BinOp(left=left, op=ast.Add(), right=right) if _has_text(value):
            text = _text(left, scope) + _text(right, scope)
        # The first of two texts, and a text that is cut at a length.
        case ast.IfExp(body=inner) | ast.Subscript(value=inner, slice=ast.Slice()):
            text = _text(inner, scope)
        case ast.Name(id=name) if (known := _held(scope, name, value.lineno)) is not None:
            text = _text(known, scope)
        case ast.Call(func=ast.Attribute(attr="join"), args=[ast.List(elts=lines)]):
            text = " ".join(_text(line, scope) for line in lines if not isinstance(line, ast.Starred))
        case ast.Call(func=called, args=[ast.Constant() | ast.JoinedStr() as given]) if _name(called) == "_refusal":
            text = _inlined(scope, _name(called), _text(given, scope))
        case _:
            name = _placeholder(value)
            text = f"<{_PLAIN.get(name, name)}>"
    return text


def _has_text(value: ast.expr) -> bool:
    """Whether a sum is one of texts, and not of numbers or dates."""
    return any(
        isinstance(one, ast.JoinedStr) or (isinstance(one, ast.Constant) and isinstance(one.value, str))
        for one in ast.walk(value)
    )


def _held(scope: _Scope, name: str, line: int) -> ast.expr | None:
    """The text that a name has at a line: that of the last assignment before it, or the module's constant."""
    before = [value for at, value in scope.names.get(name, []) if at < line]
    if before:
        # A number that a function begins to count with is not the one that is printed.
        is_number = isinstance(before[-1], ast.Constant) and not isinstance(before[-1].value, str)
        return before[-1] if isinstance(before[-1], _TEXTS) and not is_number else None
    held = _constant(scope.module, name) if _CONSTANT.match(name) else None
    return held if isinstance(held, _TEXTS) else None


def _constant(module: str, name: str) -> ast.expr | None:
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and name in map(_name, node.targets):
            return node.value
        if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]:
            return _constant(node.module, name)
    return None


def _inlined(scope: _Scope, name: str, given: str) -> str:
    """What a function of the module that only returns a text makes of the text that it is given."""
    function = next(one for one in _functions(_tree(scope.module)) if one.name == name)
    (made,) = (one.value for one in function.body if isinstance(one, ast.Return) and one.value is not None)
    return _text(made, _Scope(scope.module, {function.args.args[-1].arg: [(0, ast.Constant(value=given))]}))


def _placeholder(value: ast.expr) -> str:
    """The code's own name of what comes in."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_").lower()
        case ast.Call(func=called, args=[first, *_]) if _name(called) in _SHOWING:
            return _placeholder(first)
        case ast.Call(func=called):
            return _name(called).strip("_").lower()
        case ast.Subscript(value=inner) | ast.Starred(value=inner) | ast.UnaryOp(operand=inner):
            return _placeholder(inner)
        case ast.BinOp(left=left):
            return _placeholder(left)
    return "…"


def _name(called: ast.expr) -> str:
    match called:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
