"""The workbook of a publication: a sheet per question, with formulas for totals and ratios that a reader can follow.

Add here how a sheet looks. Keep out which questions there are: that is `questions`.

Formulas are written with the value that they have, so that a preview, or a program that does not calculate, shows it.
A text is stored as a text whatever it begins with.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import xlsxwriter
from xlsxwriter.utility import xl_col_to_name

from collectors.samples import printable
from pipelines.publishing.parts import Parts
from pipelines.publishing.spreadsheet_cells import FORMULA_BEGINS
from pipelines.publishing.workbook.columns import Column, Question
from pipelines.publishing.workbook.questions import QUESTIONS
from pipelines.warehouse import database

# Rows of a sheet before the rest is added up in one row.
SHOWN_ROWS = 1000
# Excel's own limit is 32,767 characters, far more than a cell shows.
TEXT_CHARACTERS = 1000
TOTAL, HEADING, FIRST = 2, 3, 4  # rows, from 0
# Width of a column in characters; a heading has as many lines as its words need, each so many points high.
LEAST_WIDTH, MOST_WIDTH = 11, 36
LINE_POINTS = 15
A4 = 9  # as Excel numbers paper
_ABOUT = "About"
_RULES = (
    "An empty cell is unknown, never 0. A total adds what is known.",
    "A ratio is a sum over a sum. Its formula uses the two columns beside it.",
    "Numbers here have 15 digits; the tables of the publication have all.",
)

Row = Sequence[Any]


def write(snapshot: Path, path: Path, fleet: str, is_synthetic: bool, parts: Parts) -> None:
    """Write the workbook of the published snapshot at `path`. OSError where the disk refuses.

    A question whose tables or columns are not in the snapshot (dates that were booked by an older version) has the
    reason in its sheet. So has one whose sheet cannot be written, which is a line of `parts`, too; without any workbook
    there is such a line, and no file.
    """
    written = parts.attempt("workbook", lambda: _written(snapshot, fleet, is_synthetic, parts), lambda _: None)
    if written is not None:
        path.write_bytes(written)


def _written(snapshot: Path, fleet: str, is_synthetic: bool, parts: Parts) -> bytes:
    """The file. A sheet that fails may be half written by then: the file is made again without it."""
    reasons: dict[str, str] = {}
    while True:
        before = len(reasons)
        made = _made(snapshot, fleet, is_synthetic, parts, reasons)
        if len(reasons) == before:
            return made


def _made(snapshot: Path, fleet: str, is_synthetic: bool, parts: Parts, reasons: dict[str, str]) -> bytes:
    """The file with a reason in place of each sheet of `reasons`; adds those that fail now."""
    made = io.BytesIO()
    name = printable(fleet)
    label = "SYNTHETIC telemetry: nothing here was measured" if is_synthetic else "measured telemetry"
    with (
        database.connect(snapshot, read_only=True) as connection,
        xlsxwriter.Workbook(made, {"in_memory": True, "nan_inf_to_errors": True}) as book,
    ):
        published = connection.execute(
            "select publication_id, published_at, held_back_dates from published.publication"
        ).fetchall()[0]
        period = _period(connection)
        book.set_properties({"title": f"Wattledger: {name}", "created": published[1]})
        styles = _Styles(book)
        asked = [question for question in QUESTIONS if _is_asked(connection, question)]
        _write_about(book, styles, [name, label, period, *published], asked)
        for question in asked:
            sheet = _Sheet(book.add_worksheet(question.sheet), styles, question)
            if question.sheet in reasons:
                sheet.write_reason(f"The {reasons[question.sheet]}")
                continue
            parts.attempt(
                f"sheet {question.sheet} of the workbook (query in pipelines/publishing/workbook)",
                partial(sheet.write, connection, f"{name}, {period}: {label}. Publication {published[0]}"),
                partial(reasons.__setitem__, question.sheet),
            )
    return made.getvalue()


class _Styles:
    """The formats of cells, each made once."""

    def __init__(self, book: Any) -> None:
        self._book = book
        self._made: dict[tuple[tuple[str, Any], ...], Any] = {}

    def get(self, **properties: Any) -> Any:
        key = tuple(sorted(properties.items()))
        if key not in self._made:
            self._made[key] = self._book.add_format(properties)
        return self._made[key]


def _is_asked(connection: duckdb.DuckDBPyConnection, question: Question) -> bool:
    if not question.only_if:
        return True
    try:
        return connection.execute(question.only_if).fetchall() == [(True,)]
    except (duckdb.CatalogException, duckdb.BinderException):  # a publication of an older version
        return False


def _write_about(book: Any, styles: _Styles, facts: Sequence[Any], asked: Sequence[Question]) -> None:
    sheet = book.add_worksheet(_ABOUT)
    sheet.set_column(0, 0, 18)
    sheet.set_column(1, 1, 90)
    bold = styles.get(bold=True)
    names = ("fleet", "telemetry", "booked dates", "publication", "published at", "held-back dates")
    sheet.set_paper(A4)
    sheet.fit_to_pages(1, 0)
    for place, (name, value) in enumerate(zip(names, facts, strict=True)):
        sheet.write_string(place, 0, name, bold)
        _write_text(sheet, styles, place, 1, _text(value) or "none")
    place = len(names) + 1
    for rule in _RULES:
        sheet.write_string(place, 1, rule)
        place += 1
    place += 1
    sheet.write_string(place, 0, "sheet", bold)
    sheet.write_string(place, 1, "answers", bold)
    for question in asked:
        place += 1
        sheet.write_url(place, 0, f"internal:'{question.sheet}'!A1", string=question.sheet)
        sheet.write_string(place, 1, question.asks)


class _Sheet:
    """The sheet of a question while it is written: question, note, totals, headings, rows."""

    def __init__(self, sheet: Any, styles: _Styles, question: Question) -> None:
        self._sheet = sheet
        self._styles = styles
        self._question = question
        self._columns = question.columns
        self._last = FIRST
        self._lines = 1  # of the headings
        self._widths: list[int] = []

    def write(self, connection: duckdb.DuckDBPyConnection, label: str) -> None:
        """Ask the question and write the answer."""
        question = self._question
        try:
            rows = connection.execute(question.query).fetchall()
        except (duckdb.CatalogException, duckdb.BinderException) as missing:
            self.write_reason(f"This publication cannot answer it: {' '.join(str(missing).split())}")
            return
        self._write_question()
        is_one_scope = question.scope is None or len({row[question.scope] for row in rows}) <= 1
        lines = [_values(self._columns, row) for row in rows[:SHOWN_ROWS]]
        note = f"{label}. Tables: {question.tables}. {question.note}".rstrip()
        if rest := rows[SHOWN_ROWS:]:
            lines.append(_values(self._columns, _summed(self._columns, rest, is_one_scope)))
            note += f" The {SHOWN_ROWS:,} first of {len(rows):,} rows; the last row is the sum of all others."
        self._last = FIRST + len(lines) - 1
        self._lay_out()
        totals = _totals(self._columns, lines, is_one_scope)
        if any(total is not None for total in totals):
            self._sheet.write_string(TOTAL, 0, "total", self._styles.get(bold=True))
        for place, column in enumerate(self._columns):
            self._write_heading(place, [*(line[place] for line in lines), totals[place]])
            if totals[place] is not None:
                self._write_total(place, column, totals[place])
        self._write_note(note)
        for at, line in enumerate(lines, FIRST):
            for place, column in enumerate(self._columns):
                if column.of is not None:
                    self._write_ratio(at, place, column.of, line, totals)
                else:
                    self._write_value(at, place, line[place])
        self._sheet.freeze_panes(FIRST, 1)
        if not lines:
            self._sheet.write_string(FIRST, 0, question.if_empty)
        else:
            self._sheet.autofilter(HEADING, 0, self._last, len(self._columns) - 1)

    def _write_note(self, note: str) -> None:
        """Over all columns, in as many lines as it needs: a line that runs on would make the page as wide."""
        style = self._styles.get(text_wrap=True, valign="top")
        self._sheet.merge_range(1, 0, 1, len(self._widths) - 1, "", style)
        self._sheet.write_string(1, 0, note, style)
        self._sheet.set_row(1, LINE_POINTS * len(textwrap.wrap(note, sum(self._widths))) + 3)

    def _lay_out(self) -> None:
        """On paper: across, one page wide, the headings on each page."""
        self._sheet.set_landscape()
        self._sheet.set_paper(A4)
        self._sheet.fit_to_pages(1, 0)
        self._sheet.repeat_rows(TOTAL, HEADING)
        self._sheet.set_row(0, 22)
        self._sheet.set_footer("&L&A&R&P / &N")

    def write_reason(self, line: str) -> None:
        """Write the question and why there is no answer."""
        self._write_question()
        _write_text(self._sheet, self._styles, 1, 0, line)

    def _write_question(self) -> None:
        self._sheet.write_string(0, 0, self._question.asks, self._styles.get(bold=True, font_size=14))

    def _write_heading(self, place: int, values: Sequence[Any]) -> None:
        heading = self._columns[place].heading
        column = self._columns[place]
        align = "left" if column.digits is None else "right"
        style = self._styles.get(bold=True, text_wrap=True, valign="top", bottom=1, align=align, **self._apart(place))
        self._sheet.write_string(HEADING, place, heading, style)
        words = max(map(len, heading.split()))
        shown = [len(_as_shown(value, column)) for value in values]
        # Two more for the button of the filter, which covers the end of the heading.
        width = min(MOST_WIDTH, max([LEAST_WIDTH, words + 2, *(length + 2 for length in shown)]))
        self._sheet.set_column(place, place, width)
        self._widths.append(width)
        self._lines = max(self._lines, len(textwrap.wrap(heading, width - 2)))
        self._sheet.set_row(HEADING, LINE_POINTS * self._lines + 3)

    def _write_total(self, place: int, column: Column, value: float) -> None:
        if column.of is None or column.is_difference:
            formula = self._sum(place)
        else:
            formula = column.formula(self._sum(column.of), self._sum(column.of if column.by is None else column.by))
        style = self._styles.get(bold=True, num_format=column.number_format)
        self._sheet.write_formula(TOTAL, place, f"={formula}", style, value)

    def _sum(self, place: int) -> str:
        name = xl_col_to_name(place)
        # Of the rows that the filter shows.
        return f"SUBTOTAL(9,{name}{FIRST + 1}:{name}{self._last + 1})"

    def _write_ratio(self, at: int, place: int, numerator: int, line: Row, totals: Sequence[Any]) -> None:
        """A formula of two cells of the row, or of a cell and its column's total; empty where one is unknown."""
        column, value = self._columns[place], line[place]
        of = f"{xl_col_to_name(numerator)}{at + 1}"
        if column.by is None:
            by = f"{xl_col_to_name(numerator)}${TOTAL + 1}"
            value = column.computed(line[numerator], totals[numerator])
        else:
            by = f"{xl_col_to_name(column.by)}{at + 1}"
        formula = f'=IF(COUNT({of},{by})=2,IFERROR({column.formula(of, by)},""),"")'
        style = self._styles.get(num_format=column.number_format)
        self._sheet.write_formula(at, place, formula, style, "" if value is None else value)

    def _write_value(self, at: int, place: int, value: Any) -> None:
        if value is None:
            return
        if isinstance(value, bool):
            self._sheet.write_string(at, place, "yes" if value else "no", self._styles.get(**self._apart(place)))
        elif isinstance(value, int | float):
            style = self._styles.get(num_format=self._columns[place].number_format)
            self._sheet.write_number(at, place, value, style)
        elif isinstance(value, date):
            is_month = self._columns[place].heading == "month"
            style = self._styles.get(
                num_format="yyyy-mm" if is_month else "yyyy-mm-dd", align="left", **self._apart(place)
            )
            self._sheet.write_datetime(at, place, value, style)
        else:
            _write_text(self._sheet, self._styles, at, place, str(value), **self._apart(place))

    def _apart(self, place: int) -> dict[str, Any]:
        """How a text keeps away from the number on its left, which ends where the text begins."""
        is_beside = place > 0 and self._columns[place].digits is None and self._columns[place - 1].digits is not None
        return {"indent": 1} if is_beside else {}


# --- values -----------------------------------------------------------------------------------------------------------


def _values(columns: Sequence[Column], row: Row) -> list[Any]:
    """A row of a query with the values of the columns that have a formula put in their places; shares come later."""
    given = iter(row)
    line: list[Any] = [None if column.is_computed else next(given) for column in columns]
    line = [float(value) if isinstance(value, Decimal) else value for value in line]
    for place, column in enumerate(columns):
        if column.is_computed and column.of is not None:
            line[place] = column.computed(line[column.of], None if column.by is None else line[column.by])
    return line


def _period(connection: duckdb.DuckDBPyConnection) -> str:
    """The dates that the publication has."""
    try:
        first, last = connection.execute("select min(date), max(date) from marts.model_daily").fetchall()[0]
    except duckdb.CatalogException:
        return "no date is booked"
    return f"{first} to {last}" if first else "no date is booked"


def _as_shown(value: Any, column: Column) -> str:
    """A value as its cell shows it, for the width of the column."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{100 * value:.1f}%" if column.is_percent else f"{value:,.{column.digits or 0}f}"
    return str(value)


def _summed(columns: Sequence[Column], rows: Sequence[Row], is_one_scope: bool) -> list[Any]:
    """One row for many: sums of what can be added, and a text in the first column."""
    stored = [column for column in columns if not column.is_computed]
    summed: list[Any] = [
        _sum([row[place] for row in rows]) if column.is_added(is_one_scope) else None
        for place, column in enumerate(stored)
    ]
    return [f"… and {len(rows):,} more", *summed[1:]]


def _totals(columns: Sequence[Column], lines: Sequence[Row], is_one_scope: bool) -> list[Any]:
    totals: list[Any] = [
        _sum([line[place] for line in lines]) if column.is_added(is_one_scope) else None
        for place, column in enumerate(columns)
    ]
    for place, column in enumerate(columns):
        if column.is_computed and column.of is not None and not column.is_difference:
            totals[place] = column.computed(totals[column.of], None if column.by is None else totals[column.by])
    return totals


def _sum(values: Sequence[Any]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) if known else None


def _write_text(sheet: Any, styles: _Styles, at: int, place: int, value: str, **looks: Any) -> None:
    """A text as a text. Where it would be a formula if it were typed, Excel shows it with an apostrophe when edited."""
    text = printable(value)
    if len(text) > TEXT_CHARACTERS:
        text = text[: TEXT_CHARACTERS - 1] + "…"
    if text.startswith(FORMULA_BEGINS):
        looks["quote_prefix"] = True
    sheet.write_string(at, place, text, styles.get(**looks) if looks else None)


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return str(value or "")
