"""Text as HTML: escaped names, numbers with their digits, and tables that a screen reader can read.

Add here how a value is written on the page. Keep out what is written: that is `figures` and `sentences`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from html import escape
from typing import Any

from collectors.samples import printable

UNKNOWN = '<span class="unknown">unknown</span>'
LABEL_CHARACTERS = 48  # of a name in a legend
BAR_CHARACTERS = 44  # of a name above a bar: what fits on a phone
ABSENT = '<abbr title="does not apply">–</abbr>'
NAME_CHARACTERS = 80  # of a name in a table or a sentence; the whole name is in its title
LONG = 30  # characters of a text that may take several lines of its cell
SHOWN_ROWS = 200  # of a table: the others are in the published tables
TEXT, NAME, RATIO, YES_NO, MONEY = -1, -2, -3, -4, -5  # instead of digits after the point

# Names that the marts use for what has no model, and how a reader calls it.
RESERVED = {
    "__unallocated__": "no model (free accelerators)",
    "__unknown__": "model unknown",
    "__remainder__": "remainder",
    "__unused_commitment__": "unused commitment",
    "__unmetered__": "accelerators without a meter",
}


def text(value: object) -> str:
    """Any text, safe inside an element and inside a quoted attribute; control characters become visible escapes."""
    return escape(printable(str(value)), quote=True)


def shortened(name: str, characters: int) -> str:
    """A name with at most this many characters, as plain text."""
    shown = RESERVED.get(name, printable(name))
    return shown if len(shown) <= characters else f"{shown[: characters - 1]}…"


def label(name: str, characters: int = LABEL_CHARACTERS) -> str:
    """A name for a chart: short, escaped, and kept apart from the direction of the text around it."""
    return f"\u2068{escape(shortened(name, characters), quote=True)}\u2069"


def named(name: str) -> str:
    """A name in a sentence or a table. A long one is cut; its whole text is in the title."""
    shown = shortened(name, NAME_CHARACTERS)
    title = f' title="{text(name)}"' if shown.endswith("…") or name in RESERVED else ""
    return f"<bdi{title}>{escape(shown, quote=True)}</bdi>"


def number(value: Any, digits: int) -> str:
    """A number with its digits and separated thousands, or `unknown`; one with digits has three significant ones."""
    if value is None:
        return UNKNOWN
    size = abs(float(value))
    while digits and size >= 10 ** (5 - digits):
        digits -= 1
    while digits and 0 < size < 10 ** (2 - digits) and digits < 6:
        digits += 1
    return f"{value:,.{digits}f}".replace("-", "−")


def ratio(value: Any) -> str:
    """A share of one as percent, or `unknown`; what is not quite 0 or 1 is never shown as that."""
    if value is None:
        return UNKNOWN
    if 0 < abs(value) < 0.001:
        return "&lt; 0.1 %" if value > 0 else "&gt; −0.1 %"
    if 0.9995 < value < 1:
        return "&gt; 99.9 %"
    return f"{100 * value:,.1f} %".replace("-", "−")


def cell(value: Any, digits: int) -> str:
    """A value as a table shows it. NULL is `unknown`, never 0; the empty text, which does not apply, is a dash."""
    if value is None:
        return UNKNOWN
    if value == "":
        return ABSENT
    if digits in _FORMS:
        return _FORMS[digits](value)
    return number(value, digits)


def as_text(value: Any) -> str:
    """Text, a date, or a time in UTC to the minute."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    return value.isoformat() if isinstance(value, date) else text(value)


_FORMS: dict[int, Callable[[Any], str]] = {
    TEXT: as_text,
    NAME: lambda value: named(str(value)),
    RATIO: ratio,
    MONEY: lambda value: f"{value + 0.0:,.2f}".replace("-0.00", "0.00").replace("-", "−"),
    YES_NO: lambda value: "yes" if value else "no",
}


UNITS = "%|points|USD|kWh|kg|g|J|W|GPUs?|million|dates?"
_UNIT = re.compile(rf"(?<=\d) (?=(?:{UNITS})\b|%)|(?<=[▲▼]) (?=[+−])")
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d(?: \d\d:\d\d)?\b")
_LEFT_ALONE = re.compile(r"(<pre\b.*?</pre>|<svg\b.*?</svg>|<[^>]*>)", re.DOTALL)


def table(caption: str, columns: Mapping[str, int], rows: Sequence[Sequence[Any]]) -> str:
    """Rows under their columns: name to digits, TEXT, NAME, RATIO, YES_NO or MONEY. The first one names its row.

    `caption` and the names of the columns are plain text.
    """
    heads = "".join(f'<th scope="col"{_aligned(digits)}>{escape(name)}</th>' for name, digits in columns.items())
    lines = []
    for row in rows[:SHOWN_ROWS]:
        first, *rest = zip(row, columns.values(), columns, strict=True)
        # The label is shown where a phone has no room for the columns.
        cells = "".join(
            f'<td data-label="{escape(name, quote=True)}"{_style(value, digits)}>{cell(value, digits)}</td>'
            for value, digits, name in rest
        )
        lines.append(f'<tr><th scope="row"{_style(*first[:2])}>{cell(*first[:2])}</th>{cells}</tr>')
    more = len(rows) - SHOWN_ROWS
    note = f"<p>… and {more:,} more rows: the query gives them all.</p>" if more > 0 else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {escape(caption, quote=True)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        f"{note}"
    )


def unbroken(html: str) -> str:
    """The same HTML, where no line ends inside a date or between a number and its unit. Queries and charts stay
    as they are."""
    pieces = _LEFT_ALONE.split(html)
    pieces[::2] = [_DATE.sub(r"<time>\g<0></time>", _UNIT.sub("\u00a0", piece)) for piece in pieces[::2]]
    return "".join(pieces)


def opened(summary: str, contents: str) -> str:
    """Contents that a reader opens with a click or a key."""
    return f"<details><summary>{escape(summary)}</summary>{contents}</details>"


def _style(value: Any, digits: int) -> str:
    is_long = digits in (TEXT, NAME) and len(str(value)) > LONG
    return ' class="long"' if is_long else _aligned(digits)


def _aligned(digits: int) -> str:
    return "" if digits in (TEXT, NAME, YES_NO) else ' class="n"'
