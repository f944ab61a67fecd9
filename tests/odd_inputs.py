"""Odd inputs of readers: mutations of real-looking ones, drawn from a seeded `random.Random`.

Plain functions: a test draws a seed, or a Random, and gives it here. Add what a file, an object, a cell may
hold that no author of a reader thinks of. Keep out what a reader should make of it: that is in the tests.
"""

from __future__ import annotations

import gzip
import json
from random import Random
from typing import Any


class Raw(str):
    """JSON text that is written as it is: NaN, 400 digits, or a key twice, which no Python value becomes."""


DEEP = 3_000  # deeper than Python may recurse
LONG = 10_000  # characters
NUMBERS: tuple[Any, ...] = (
    0, -0.0, -1, -5.5, 0.5, 1e-320, 1e17, 9e12, 1e300, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), 1_790_856_000,
    Raw("1" * 400), Raw("1" * 5_000), Raw("1e999"), Raw("-1e999"), Raw("NaN"), Raw("Infinity"), Raw("-Infinity"),
)  # fmt: skip
TIMES = (
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-02-30T00:00:00Z", "2026-10-01T25:00:00Z",
    "1969-12-31T23:59:59Z", "2500-01-01T00:00:00Z", "2026-10-01T12:00:00.123456789123Z", "2026-W40-4", "20261001",
    "2026-10-01T12:00:00+99:99", "-1", "1790856000", "1790856000000000000", "yesterday",
)  # fmt: skip
TEXTS = (
    "", " ", "NaN", "nan", "inf", "-Infinity", "1e999", "1" * 400, "1" * 5_000, "1_000", "0x1F", "1,5", "-5.5", "+7",
    "\u0967\u0968", "\u00b2", "\x00", "a\x00b", "\x1b[31mred", "\r", "\n", "\t", "\u202emirrored", "\U0001f525",
    "\ufeff", '"', "'", '""', "a,b", ";", "=cmd|'/c calc'!A1", "'; drop table raw.requests; --", "<script>", "null",
    "true", "x" * LONG, "\u00e9" * LONG, "tp0", "1c.3g.40gb", "N/A",
)  # fmt: skip
CONTAINERS: tuple[Any, ...] = (
    None, True, False, [], {}, [[]], [None], {"": None}, {"value": None}, {"value": -1, "unit": "ms"},
    {"value": Raw("NaN")},
    Raw("[" * DEEP + "]" * DEEP), Raw('{"a":' * DEEP + "1" + "}" * DEEP), Raw("[" * 900 + "]" * 900),
)  # fmt: skip
BYTES = (
    b"\x00",
    b"\xff",
    b"\xfe\xff",
    b"\x1f\x8b",
    b"\xed\xa0\x80",
    b"\n",
    b"\r",
    b"\r\n",
    b'"',
    b",",
    b"{",
    b"}",
    b"[",
)


def odd_value(random: Random) -> Any:
    """A JSON value that its field should not hold, or may hold, as it happens."""
    return random.choice(random.choice((NUMBERS, TIMES, TEXTS, CONTAINERS)))


def odd_cell(random: Random) -> str:
    """The text of a CSV cell."""
    value = random.choice(random.choice((NUMBERS, TIMES, TEXTS)))
    return value if isinstance(value, str) else str(value)


def json_text(value: Any) -> str:
    """JSON of a value in which some parts are Raw."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {json_text(held)}" for name, held in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(json_text, value)) + "]"
    return json.dumps(value)


def odd_object(random: Random, held: Any, changes: int = 2) -> Any:
    """A copy of a JSON value of which up to `changes` parts, however deep, are odd, missing, renamed or there twice."""
    for _ in range(random.randint(1, changes)):
        held = _changed(random, held)
    return held


def _changed(random: Random, held: Any) -> Any:
    if isinstance(held, Raw) or not held or not isinstance(held, dict | list) or random.random() < 0.1:
        return odd_value(random)
    if isinstance(held, list):
        nth = random.randrange(len(held))
        return [*held[:nth], _changed(random, held[nth]), *held[nth + 1 :]]
    name = random.choice(sorted(held))
    how = random.random()
    if how < 0.1:
        return {key: value for key, value in held.items() if key != name}
    if how < 0.15:
        return {key if key != name else odd_cell(random): value for key, value in held.items()}
    if how < 0.2:
        both = json_text(held)[:-1]
        return Raw(f"{both}, {json.dumps(name)}: {json_text(odd_value(random))}}}")
    # Half of the time the field itself, else something inside it.
    inside = how < 0.6 and isinstance(held[name], dict | list)
    return {**held, name: _changed(random, held[name]) if inside else odd_value(random)}


def odd_rows(random: Random, rows: list[list[str]], changes: int = 3) -> list[list[str]]:
    """A copy of a table of cells (the header is a row) with odd, missing and additional cells, and rows twice."""
    rows = [list(row) for row in rows]
    for _ in range(random.randint(1, changes)):
        row = random.choice(rows) if random.random() < 0.15 else random.choice(rows[1:] or rows)
        if not row:
            continue
        nth, how = random.randrange(len(row)), random.random()
        if how < 0.7:
            row[nth] = odd_cell(random)
        elif how < 0.8:
            del row[nth]
        elif how < 0.9:
            row.insert(nth, odd_cell(random))
        else:
            rows.insert(random.randrange(1, len(rows) + 1), list(row))
    return rows


def csv_text(random: Random, rows: list[list[str]]) -> str:
    """CSV of a table; a cell in ten is quoted or not as it should not be."""

    def cell(text: str) -> str:
        is_quoted = any(one in text for one in ',"\r\n')
        escaped = text.replace('"', '""')
        return f'"{escaped}"' if is_quoted != (random.random() < 0.02) else text

    return "".join(",".join(map(cell, row)) + random.choice(("\n", "\n", "\n", "\r\n")) for row in rows)


def odd_bytes(random: Random, held: bytes, changes: int = 4) -> bytes:
    """A copy of a file's bytes that was flipped, cut, repeated, or into which something was put."""
    for _ in range(random.randint(1, changes)):
        if not held:
            return random.choice(BYTES)
        at, how = random.randrange(len(held)), random.random()
        if how < 0.3:
            held = held[:at] + bytes([held[at] ^ 1 << random.randrange(8)]) + held[at + 1 :]
        elif how < 0.45:
            held = held[:at]
        elif how < 0.6:
            held = held[:at] + held[at + random.randint(1, 64) :]
        elif how < 0.75:
            held = held[:at] + random.choice(BYTES) + held[at:]
        elif how < 0.9:
            held = held[:at] + held[max(0, at - random.randint(1, 200)) : at] * random.randint(1, 3) + held[at:]
        else:
            odd = random.choice(random.choice((NUMBERS, TIMES, TEXTS)))
            held = held[:at] + str(odd).encode("utf-8", "replace") + held[at:]
    return held


def odd_gzip(random: Random, held: bytes) -> bytes:
    """A gzipped file of these bytes that was damaged, cut or has something behind it; or a whole one."""
    packed = gzip.compress(held, mtime=0)
    how = random.random()
    if how < 0.2:
        return packed
    if how < 0.5:
        return packed[: random.randrange(len(packed))]
    if how < 0.6:
        return packed + random.choice((b"\x00" * 9, b"garbage", packed[:7]))
    return odd_bytes(random, packed, 2)
