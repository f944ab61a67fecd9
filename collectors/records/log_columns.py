"""Lines of a request log as columns, many at a time: what each value becomes where all are plain.

A block of lines is read whole or not at all. Where one value is not plainly what its column holds (another type,
another place, out of range, a time without an offset), `NotPlain` sends the block to the reader of rows, which knows
every case and counts what it refuses. So the two never differ, and a usual log is read several times as fast. Add here
the plain form of a value. Keep out the rules themselves (`request_records`) and the places of one kind of log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from collectors.records.askers import Askers
from collectors.records.request_records import MOST_SECONDS, MOST_TOKENS, MOST_USD, PER_SECOND, TEXT_CHARACTERS
from collectors.records.usage import CACHE_READ, CACHE_WRITTEN
from collectors.samples import END_US, FIRST_US

TIME = pa.timestamp("us", "UTC")
_NONE = type(None)
# Whole numbers and fractions are numbers both; of one column only one of them is plain.
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64()}

Lines = list[dict[str, Any]]


class NotPlain(Exception):
    """A block in which a value needs the reader of rows."""


def objects(lines: Sequence[bytes]) -> Lines:
    """The objects of JSON lines."""
    try:
        held = [orjson.loads(line) for line in lines]
    except orjson.JSONDecodeError as reason:
        raise NotPlain(str(reason)) from None
    return _objects(held, "a line")


def at(held: Lines, place: str, lines: Sequence[bytes]) -> list[Any]:
    """What each object has at a place: a key, or a dotted path of objects."""
    *above, last = place.split(".")
    for part in above:
        held = _objects([one.get(part) or {} for one in held], place)
    values = [one.get(last) for one in held]
    if None in values:
        # A dot of a path may be part of a key, in any line: `"usage.input_tokens": 5`.
        keys = [f'"{part}.'.encode() for part in above or [last]] + ([f'"{place}"'.encode()] if above else [])
        if any(key in line for line in lines for key in keys):
            raise NotPlain(f"something is at {place} in another form")
    return values


def column(values: list[Any]) -> pa.Array | None:
    """Values of one type; None where there are none at all."""
    kinds = set(map(type, values)) - {_NONE}
    if not kinds:
        return None
    if len(kinds) > 1 or (kind := kinds.pop()) not in _TYPES:
        raise NotPlain("a column has values of several types, or of another")
    try:
        return pa.array(values, _TYPES[kind])
    except (pa.ArrowException, OverflowError) as reason:
        raise NotPlain(str(reason)) from None


def _objects(held: list[Any], what: str) -> Lines:
    if set(map(type, held)) != {dict}:
        raise NotPlain(f"{what} is not an object")
    return held


# --- values -----------------------------------------------------------------------------------------------------------


def _plain(is_so: pa.Array, what: str) -> None:
    if pc.min(is_so).as_py() is False:
        raise NotPlain(what)


def _within(values: pa.Array, low: float, high: float, what: str) -> None:
    # A whole bound beyond 2^53 is no double to Arrow.
    least, most = (float(edge) if pa.types.is_floating(values.type) else edge for edge in (low, high))
    _plain(pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most)), what)


def texts(values: pa.Array) -> pa.Array:
    """Names; an empty one is none."""
    if pa.types.is_floating(values.type):
        raise NotPlain("a text is a number with a fraction")
    written = pc.cast(values, pa.string())
    _plain(pc.less_equal(pc.utf8_length(written), TEXT_CHARACTERS), "a text is long")
    return pc.if_else(pc.equal(written, ""), pa.scalar(None, pa.string()), written)


def of_each(values: pa.Array, make: Callable[[str | None], Any], kind: pa.DataType) -> pa.Array:
    """What a function makes of each of the different values."""
    encoded = pc.dictionary_encode(values)
    made = pa.array([make(one) for one in encoded.dictionary.to_pylist()], kind)
    return pc.take(made, encoded.indices)


def tenants(
    askers: Askers, names: pa.Array | None, users: pa.Array | None, otherwise: pa.Array | None = None
) -> pa.Array:
    """Who asked, of columns of which one at least is there."""
    if users is None and otherwise is None and names is not None:
        return of_each(names, askers.tenant, pa.string())
    count = next(len(column) for column in (names, users, otherwise) if column is not None)
    nothing: list[str | None] = [None] * count
    given_names = [nothing if column is None else column.to_pylist() for column in (names, users, otherwise)]
    made: dict[tuple[str | None, ...], str | None] = {}
    for asked in zip(*given_names, strict=True):
        if asked not in made:
            made[asked] = askers.tenant(*asked)
    return pa.array([made[asked] for asked in zip(*given_names, strict=True)], pa.string())


def instants(values: pa.Array, unit: str, zone: str = "UTC") -> pa.Array:
    """Times as numbers of a unit, or as texts: all with an offset, or all in UTC without one."""
    if pa.types.is_string(values.type):
        try:
            times = pc.cast(values, TIME)
        except pa.ArrowInvalid:
            if zone != "UTC":
                raise
            times = pc.assume_timezone(pc.cast(values, pa.timestamp("us")), "UTC")
    else:
        per_second = PER_SECOND[unit]
        _within(values, 0, END_US // 1_000_000 * per_second, "a time")
        if pa.types.is_integer(values.type):
            whole = per_second < 1_000_000
            factor = 1_000_000 // per_second if whole else per_second // 1_000_000
            at = pc.multiply(values, factor) if whole else pc.divide(values, factor)
        else:
            at = pc.cast(pc.round(pc.multiply(values, 1_000_000 / per_second), round_mode="half_to_even"), pa.int64())
        times = pc.cast(at, TIME)
    _within(pc.cast(times, pa.int64()), FIRST_US, END_US - 1, "a time")
    return times


def durations(values: pa.Array, per_second: float = 1.0) -> pa.Array:
    """Seconds of numbers that count `per_second` of them."""
    _numbers(values)
    _within(values, 0, MOST_SECONDS * per_second, "a duration")
    return pc.divide(pc.cast(values, pa.float64()), per_second)


def dollars(values: pa.Array) -> pa.Array:
    """What was spent."""
    _numbers(values)
    _within(values, 0, MOST_USD, "a spend")
    return pc.cast(values, pa.float64())


def after(times: pa.Array, seconds: pa.Array) -> pa.Array:
    """Times so many seconds later, in whole microseconds."""
    later = pc.cast(pc.round(pc.multiply(seconds, 1e6), round_mode="half_to_even"), pa.int64())
    return pc.cast(pc.add(pc.cast(times, pa.int64()), later), TIME)


def lasted(start: pa.Array, end: pa.Array) -> pa.Array:
    """Seconds between two times."""
    took = pc.subtract(pc.cast(end, pa.int64()), pc.cast(start, pa.int64()))
    _within(took, 0, MOST_SECONDS * 1_000_000, "a duration")
    return pc.divide(pc.cast(took, pa.float64()), 1e6)


def chat_tokens(usages: list[Any]) -> dict[str, pa.Array]:
    """The token columns of OpenAI's `usage` objects, as `usage.usage_tokens` has them; a request without one has
    none."""
    held = _objects([{} if one is None else one for one in usages], "a usage")
    if any(one.get("prompt_tokens") is None for one, given in zip(held, usages, strict=True) if given is not None):
        raise NotPlain("a usage is not a chat's")
    asked, made = counts(held, "prompt_tokens"), counts(held, "completion_tokens")
    of = parts(held)
    adds_up(held, asked, made, of)
    return checked(asked, made, *of)


def adds_up(held: Lines, asked: pa.Array, made: pa.Array, of: tuple[pa.Array, ...]) -> None:
    """Of lines whose total is another than input and output, its reader decides what is within what; of those with
    parts and none, the other lines."""
    total = counts(held, "total_tokens")
    _plain(pc.equal(total, pc.add(asked, made)), "a total is not the sum of both")
    for part in of:
        _plain(pc.or_(pc.is_valid(total), pc.equal(pc.coalesce(part, 0), 0)), "a line with parts has no total")


def parts(held: Lines) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Of usage objects with chat's details: tokens that were read from a cache, that were written to one, and that were
    reasoning."""
    details = [_details(one.get("prompt_tokens_details")) for one in held]
    read, written = (
        pc.coalesce(*(counts(of, name) for of in (details, held) for name in names))
        for names in (CACHE_READ, CACHE_WRITTEN)
    )
    out = [_details(one.get("completion_tokens_details")) for one in held]
    return read, written, counts(out, "reasoning_tokens")


def checked(
    asked: pa.Array, made: pa.Array, read: pa.Array, written: pa.Array, reasoning: pa.Array
) -> dict[str, pa.Array]:
    """The token columns of requests whose input includes its cached parts, as `checked_tokens` has them."""
    none = pa.scalar(0, pa.int64())
    _plain(pc.less_equal(pc.add(pc.coalesce(read, none), pc.coalesce(written, none)), asked), "a part of the input")
    _plain(pc.less_equal(pc.coalesce(reasoning, none), made), "a part of the output")
    is_known = pc.or_(pc.is_valid(asked), pc.is_valid(made))
    return {
        "input_tokens": asked,
        "cached_input_tokens": read,
        "cache_write_input_tokens": written,
        "output_tokens": made,
        "reasoning_output_tokens": reasoning,
        "tokens_basis": pc.if_else(is_known, "reported", pa.scalar(None, pa.string())),
    }


def _details(held: Any) -> dict[str, Any]:
    return held if isinstance(held, dict) else {}


def counts(held: Lines, name: str) -> pa.Array:
    """Counts of tokens by name."""
    found = column([one.get(name) for one in held])
    if found is None:
        return pa.nulls(len(held), pa.int64())
    if not pa.types.is_integer(found.type):
        raise NotPlain("a count of tokens is not a whole number")
    _within(found, 0, MOST_TOKENS, "a count of tokens")
    return found


def _numbers(values: pa.Array) -> None:
    if pa.types.is_string(values.type):
        raise NotPlain("a number is a text")
