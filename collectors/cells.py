"""Parsing of a file's cells: texts, numbers and times in all their spellings.

Add here another spelling of a number or a time that has only one possible meaning. Keep out the roles of columns
(`sample_files`) and the meaning of values (SQL).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from collectors import runs
from collectors.samples import END_US, FIRST_US, OBSERVED_AT
from collectors.source_errors import shown

# What reads cells quotes them with this.
__all__ = ["shown"]

TimeUnit = Literal["s", "ms", "us", "ns"]

US_PER = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0, "ns": 1e-3}
_PER_US = {"s": 1e-6, "ms": 1e-3, "us": 1.0, "ns": 1e3}
NO_TIME = np.iinfo(np.int64).min
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$|^\s*[+-]?(?i:nan|inf|infinity)\s*$"
# Words for "no measurement". nvidia-smi writes its reasons in brackets.
_NO_MEASUREMENT = r"^\s*(\[.*\]|(?i:n/?a|null|none|nil|unknown|error|err!|not (supported|available))|[-–—]+|)\s*$"
_ISO = pa.timestamp("ns", "UTC")
_OFFSET = r":.*(Z|[+-]\d\d(:?\d\d)?)$"
_ISO_TEXT = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?)?(Z|[+-]\d\d(:?\d\d)?)$"
# Year first with slashes, as nvidia-smi writes it, has one meaning only; 07/08/2026 has two and is not read.
_SLASHES = r"^(\d{4})/(\d\d)/(\d\d)"


def is_text(column: pa.Array) -> bool:
    """Whether the cells are text, of which numbers and times have to be made."""
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def cell(column: pa.Array, row: int) -> object:
    """A cell for a message."""
    try:
        return column[row].as_py()
    except (ValueError, OverflowError):
        return f"a {column.type} that is no time"


# --- texts ------------------------------------------------------------------------------------------------------------


def distinct(rows: pa.RecordBatch, columns: Sequence[str]) -> tuple[np.ndarray, list[tuple[str | None, ...]]]:
    """A code per row (n,) and, per code, the texts of `columns` as a tuple (None for null)."""
    if not columns:
        return np.zeros(len(rows), np.int64), [()]
    encoded = [_text_dictionary(rows.column(column)) for column in columns]
    texts = [[*column.dictionary.to_pylist(), None] for column in encoded]
    numbers = [
        pc.fill_null(column.indices, len(column.dictionary)).to_numpy(zero_copy_only=False) for column in encoded
    ]
    heads = runs.heads(*numbers)
    codes, keys = _combined([column[heads].astype(np.int64) for column in numbers], texts)
    return np.repeat(codes, np.diff(heads, append=len(rows))), keys


def _combined(
    numbers: Sequence[np.ndarray], texts: Sequence[list[str | None]]
) -> tuple[np.ndarray, list[tuple[str | None, ...]]]:
    """A code per row (n,) and, per code, its texts in all columns: each column has a number per row (n,) and the texts
    of its numbers."""
    codes, keys = numbers[0], list[tuple[str | None, ...]]((text,) for text in texts[0])
    for mine, own in zip(numbers[1:], texts[1:], strict=True):
        both = pa.array(codes * len(own) + mine).dictionary_encode()
        codes = both.indices.to_numpy().astype(np.int64)
        keys = [(*keys[pair // len(own)], own[pair % len(own)]) for pair in both.dictionary.to_pylist()]
    return codes, keys


def _text_dictionary(column: pa.Array) -> pa.DictionaryArray:
    if pa.types.is_map(column.type):
        column = _map_text(column)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if not pa.types.is_string(column.dictionary.type):
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.string()))
    return column


def _map_text(column: pa.MapArray) -> pa.DictionaryArray:
    """The distinct maps as JSON text. Rows are compared by joined text; only one row of each text is decoded."""
    entries = pc.binary_join_element_wise(
        column.keys.cast(pa.string()), column.items.cast(pa.string()), "\x1f", null_handling="replace"
    )
    rows = pa.ListArray.from_arrays(column.offsets, entries)
    encoded = pc.fill_null(pc.binary_join(rows, "\x1e"), "").dictionary_encode()
    codes = encoded.indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    texts = [orjson.dumps(dict(column[int(row)].as_py() or ())).decode() for row in first]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(texts, pa.string()))


# --- numbers ----------------------------------------------------------------------------------------------------------


def numbers(column: pa.Array, unit: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Values (n,) float64 and which are present (n,); text that is no number is present as NaN.

    `unit` is what the cells may carry behind their number.
    """
    if is_text(column):
        try:
            values = column.cast(pa.float64())
        except pa.ArrowInvalid:
            cleaned = _bare(column, unit)
            values = pc.if_else(pc.match_substring_regex(cleaned, _NUMBER), cleaned, "NaN").cast(pa.float64())
    else:
        values = column.cast(pa.float64(), safe=False)
    is_present = values.is_valid().to_numpy(zero_copy_only=False)
    return pc.fill_null(values, np.nan).to_numpy(), is_present


def numbers_and_texts(column: pa.Array, unit: str | None = None) -> tuple[bool, str | None]:
    """Whether a text column holds a number, and its first cell that is neither a number nor a word for none."""
    cleaned = pc.drop_null(_bare(column, unit))
    is_number = pc.match_substring_regex(cleaned, _NUMBER)
    if pc.any(is_number).as_py():
        return True, None
    is_odd = pc.invert(pc.match_substring_regex(cleaned, _NO_MEASUREMENT))
    first = pc.index(is_odd, value=True).as_py()
    return False, None if first < 0 else cleaned[first].as_py()


def _bare(column: pa.Array, unit: str | None) -> pa.Array:
    cleaned = pc.ascii_ltrim(pc.ascii_trim_whitespace(column), "+")
    return cleaned if unit is None else pc.replace_substring_regex(cleaned, rf"([0-9.])\s*{re.escape(unit)}$", r"\1")


# --- times ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TimeForm:
    """How a file writes its times: as numbers of a `unit`, since the epoch or, where it is stated, since `starts_us`;
    texts without an offset are those of clocks in `zone` (an IANA name)."""

    unit: TimeUnit | None = None
    zone: str = "UTC"
    starts_us: int | None = None


def times_us(column: pa.Array, form: TimeForm) -> np.ndarray:
    """Microseconds since the epoch (n,) int64, NO_TIME where there is none of this century to be read.

    Timestamps, ISO text (its date may have slashes), or numbers of the form's unit. A time that the clocks of the zone
    had twice, or never, is none. TypeError for numbers without a unit.
    """
    if pa.types.is_timestamp(column.type):
        # By its own unit first: Arrow's cast of a time that does not fit turns it into another one.
        per_us = _PER_US[column.type.unit]
        counts = pc.fill_null(column.cast(pa.int64()), NO_TIME).to_numpy()
        is_time = (counts >= FIRST_US * per_us) & (counts < END_US * per_us)
        stamps: np.ndarray = np.where(is_time, counts, 0)
        stamps = stamps // int(per_us) if per_us > 1 else stamps * int(1 / per_us)
        found = np.where(is_time, stamps, NO_TIME)
        return found if column.type.tz is not None else _of_zone(found, form.zone)
    if form.unit is not None:
        values, _ = numbers(column)
        found_us = np.rint(values * US_PER[form.unit]) + (form.starts_us or 0)
        is_time = (found_us >= FIRST_US) & (found_us < END_US)
        return np.where(is_time, np.where(is_time, found_us, 0).astype(np.int64), NO_TIME)
    if not is_text(column):
        raise TypeError(f"{column.type} without a unit is no time")
    try:
        times, is_naive = column.cast(_ISO), None
    except pa.ArrowInvalid:
        trimmed = pc.replace_substring_regex(pc.ascii_trim_whitespace(column), _SLASHES, r"\1-\2-\3")
        has_offset = pc.match_substring_regex(trimmed, _OFFSET)
        with_offset = pc.if_else(has_offset, trimmed, pc.binary_join_element_wise(trimmed, "Z", ""))
        looks_right = pc.match_substring_regex(with_offset, _ISO_TEXT)
        times = _cast_where_possible(pc.if_else(looks_right, with_offset, pa.scalar(None, pa.string())))
        is_naive = pc.fill_null(pc.invert(has_offset), False).to_numpy(zero_copy_only=False)
    whole_us = pc.floor_temporal(times, unit="microsecond").cast(OBSERVED_AT).cast(pa.int64())
    found = pc.fill_null(whole_us, NO_TIME).to_numpy()
    found = np.where((found >= FIRST_US) & (found < END_US), found, NO_TIME)
    return found if is_naive is None else np.where(is_naive, _of_zone(found, form.zone), found)


def _of_zone(naive_us: np.ndarray, zone: str) -> np.ndarray:
    """The moments at which the clocks of a zone showed these times; NO_TIME where they did so twice, or never."""
    is_time = naive_us != NO_TIME
    if zone == "UTC" or not is_time.any():
        return naive_us
    shown = pa.array(np.where(is_time, naive_us, FIRST_US), pa.timestamp("us"))
    either = [
        pc.assume_timezone(shown, zone, ambiguous=side, nonexistent=side).cast(pa.int64()).to_numpy()
        for side in ("earliest", "latest")
    ]
    return np.where(is_time & (either[0] == either[1]), either[0], NO_TIME)


def expected_time(first: object, unit: TimeUnit | None) -> str:
    """What a time should look like and which key helps, for whoever mapped a column of `first` and its like."""
    is_numeric = isinstance(first, str) and re.match(_NUMBER, first) is not None
    if unit is not None:
        return (
            f"expected a number of {unit} since 1970-01-01T00:00:00Z, because the fleet file has time_unit: {unit}."
            " Correct time_unit, or remove it if the column holds text such as 2026-07-18T15:52:43Z"
        )
    if is_numeric:
        return "expected text such as 2026-07-18T15:52:43Z. For numbers since 1970, add time_unit: s, ms, us or ns"
    return (
        "expected text such as 2026-07-18T15:52:43.787Z, 2026-07-18 15:52:43+02:00 or 2026/07/18 15:52:43.787"
        " (UTC where it has no offset), or numbers with time_unit: s, ms, us or ns."
        " Correct `time` in the fleet file, or write the times so"
    )


def _cast_where_possible(column: pa.Array) -> pa.Array:
    """Times, with null for what only the calendar refuses, such as 30 February; found by halving."""
    try:
        return column.cast(_ISO)
    except pa.ArrowInvalid:
        if len(column) == 1:
            return pa.nulls(1, _ISO)
        half = len(column) // 2
        return pa.concat_arrays([_cast_where_possible(column[:half]), _cast_where_possible(column[half:])])
