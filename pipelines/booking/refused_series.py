"""Series with a value that a model cannot take: found by DuckDB's message, refused, and listed in raw.refused_series.

Staging reads outside text so that no label and no sample can stop a model. This is the net below it: what still does
costs its own series, and not the fleet. A refusal holds for one booking: the next one tries every series again, because
a mended exporter or a newer version should need no command; a value that fails again costs one more build.

Add here the words in which an engine reports a value. Keep out how a value is read: that is `dbt_project`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb

from pipelines.booking.dbt_results import is_error
from pipelines.warehouse import database, statements

logger = logging.getLogger(__name__)

# A build that fails shows one value, and is over soon. Three kinds of odd values that staging lets through in one
# booking are more than were ever seen.
BUILDS = 4

# The words in which DuckDB and Spark report a text, and a number, that a type cannot hold.
_TEXTS = [
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"Could not convert string '(?P<value>.*)' to (?P<type>\w+(?:\(\d+,\d+\))?)",
        r'Could not convert string "(?P<value>.*)" to (?P<type>\w+(?:\(\d+,\d+\))?)',
        r'invalid (?P<type>timestamp|date|time) field format: "(?P<value>.*)", expected format',
        r'(?P<type>timestamp|date|time) field value out of range: "(?P<value>.*)"',
        r"The value '(?P<value>.*)' of the type \"STRING\" cannot be cast to \"(?P<type>\w+(?:\(\d+,\d+\))?)",
    )
]
_NUMBER = r"(?P<value>-?\d[\d.]*(?:[eE][-+]?\d+)?)"
_NUMBERS = [
    re.compile(pattern)
    for pattern in (
        rf"with value {_NUMBER} can't be cast because the value is out of range for the destination type (?P<type>\w+)",
        rf"[Cc]ould not cast value {_NUMBER} to (?P<type>\w+(?:\(\d+,\d+\))?)",
        rf"[Ff]ailed to cast decimal value {_NUMBER} to type (?P<type>\w+)",
        rf"Overflow in \w+ of \S+ \({_NUMBER} ",
        rf"out of range: {_NUMBER}",
        rf"Interval value {_NUMBER} \w+ out of range",
        rf"The value {_NUMBER}[DLS]* of the type \"[\w(),]+\" cannot be cast to \"(?P<type>\w+(?:\(\d+,\d+\))?)",
    )
]
# A smaller number fits every type of the models, so it is not what a message complains about.
_SMALLEST = 2.0**31
# Seconds become microseconds, and an exact number millionths, before they are cast.
_SCALES = (1.0, 1e6)
_LIMITS = {"INT32": 2.0**31, "INT64": 2.0**63, "INT128": 2.0**127, "INT": 2.0**31, "BIGINT": 2.0**63}


@dataclass(frozen=True)
class Value:
    """What a message complains about: a text or a number, and the type that cannot hold it."""

    text: str
    type: str | None
    is_number: bool


def value_of(message: str) -> Value | None:
    """The value that an engine's message names; None where it names none."""
    for patterns, is_number in ((_TEXTS, False), (_NUMBERS, True)):
        for pattern in patterns:
            if found := pattern.search(message):
                return Value(found["value"], found.groupdict().get("type"), is_number)
    return None


def forget(connection: duckdb.DuckDBPyConnection) -> None:
    """Try every series again."""
    connection.execute("delete from raw.refused_series").fetchall()


def refuse(
    connection: duckdb.DuckDBPyConnection, errors: Sequence[tuple[str, str]], first: date, end: date, run_id: str
) -> int:
    """Refuse the series behind these errors (model, message) of a booking of [first, end); returns how many were not
    refused before.

    A build shows one value only. So every series is refused whose label of the same meaning has the same shape, or
    whose samples of the same metric have the same size.
    """
    before = _count(connection)
    for model, message in errors:
        value = value_of(message)
        if value is None:
            continue
        find = _by_sample if value.is_number else _by_label
        try:
            found = list(find(connection, value, first, end))
        except duckdb.Error as refusal:  # the model's own error is the one to report
            logger.warning("the series behind %r of %s was not found: %s", value.text, model, refusal)
            continue
        for series_id, label, held in found:
            connection.execute(
                statements.read(__file__, "refuse_series"),
                {
                    "series_id": series_id,
                    "label": label,
                    "value": held,
                    "model": model,
                    "message": " ".join(message.split()),
                    "run_id": run_id,
                },
            ).fetchall()
    return _count(connection) - before


def built(warehouse: Path, first: date, end: date, run_id: str, build: Callable[[], list[Any]]) -> list[Any]:
    """dbt's results of building [first, end) with every series; or of the last of BUILDS builds, each without the
    series whose values the builds before could not take."""
    with database.connect(warehouse) as connection:
        forget(connection)
    for _ in range(BUILDS - 1):
        results = build()
        # A data test that cannot run keeps nothing from readers, so it refuses nothing.
        models = [one for one in results if one.node.resource_type == "model"]
        errors = [(one.node.name, one.message or "") for one in models if is_error(one)]
        if not errors:
            return results
        with database.connect(warehouse) as connection:
            refused = refuse(connection, errors, first, end, run_id)
        if not refused:
            return results
        logger.warning("%d series refused: a model cannot take a value of theirs; booking again without them", refused)
    return build()


def _by_label(
    connection: duckdb.DuckDBPyConnection, value: Value, first: date, end: date
) -> Iterator[tuple[int, str, str]]:
    """(series, label, value) of the series with a label that holds the text, and of those that are like it."""
    del first, end  # a label is read whatever dates its series has samples of
    if not value.text:
        return  # a label without a value is none, so this is a part of one
    readable = f"try_cast(labels.value as {value.type}) is not null" if value.type else "false"
    query = statements.read(__file__, "series_by_label").replace("$is_readable", readable)
    yield from connection.execute(query, {"text": value.text}).fetchall()


def _by_sample(
    connection: duckdb.DuckDBPyConnection, value: Value, first: date, end: date
) -> Iterator[tuple[int, None, str]]:
    """(series, None, value) of the series with such a sample, or one that is further out."""
    stated = float(value.text)
    for scale in _SCALES:
        sample = stated / scale
        if abs(sample) < _SMALLEST:
            return
        limit = min(_limit(value.type) / scale, abs(sample))
        days = {"start": first - timedelta(days=1), "end": end + timedelta(days=1)}
        parameters = {**days, "sample": sample, "limit": limit}
        found = connection.execute(statements.read(__file__, "series_by_sample"), parameters).fetchall()
        if found:
            yield from ((series_id, None, held) for series_id, held in found)
            return


def _limit(kind: str | None) -> float:
    """The smallest number that a type cannot hold; infinite where it is not known."""
    digits = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind or "")
    if digits:
        return 10.0 ** (int(digits[1]) - int(digits[2]))
    return _LIMITS.get(kind or "", float("inf"))


def _count(connection: duckdb.DuckDBPyConnection) -> int:
    return int(connection.execute("select count(*) from raw.refused_series").fetchall()[0][0])
