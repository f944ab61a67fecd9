"""What the faces of a publication show: each number under the name of a headline figure, with what it is of.

Terminal, report and workbook are read as a person reads them: by the heading of a column, and the month, model, team or
site of a row. Add here how another face is read. Keep out what a figure should be: its query on the publication.
"""

from __future__ import annotations

import re
import subprocess
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import duckdb
import openpyxl

from pipelines.named_figures import choices, dictionary
from pipelines.named_figures.choices import Choice
from pipelines.named_figures.dictionary import HeadlineFigure
from tests import optional

HEADINGS = {heading: figure for figure in dictionary.figures().values() for heading in figure.headings}
# Columns that state what a row is of; a row with any other text in it is of something that no figure is compared by.
KEYS = {"month": "month", "model": "model", "team": "team", "payer": "payer", "site": "site", "meter": "scope"}
FREE_TEXT = {"status", "all prices known", "currency", "in doubt", "in doubt on some date"}
# The report's tables without a month are of the newest dates.
NEWEST_DATES = 28


@dataclass(frozen=True)
class Shown:
    """A number of a face. `digits` of it are shown after the point; None: all of them."""

    face: str
    heading: str
    of: tuple[tuple[str, Any], ...]
    value: float
    digits: int | None = None

    @property
    def figure(self) -> HeadlineFigure:
        return HEADINGS[self.heading]


# --- the faces --------------------------------------------------------------------------------------------------------


def terminal(printed: str) -> Iterator[Shown]:
    """The tables of `make run`: a line of dashes under the headings gives the columns their places."""
    lines = printed.splitlines()
    for at, line in enumerate(lines[1:], 1):
        if not re.fullmatch(r"-+(  -+)*", line):
            continue
        spans = [found.span() for found in re.finditer("-+", line)]
        rows = []
        for below in lines[at + 1 :]:
            if not below.strip() or below.startswith("  "):
                break
            rows.append(_cells(below, spans))
        yield from of_table("terminal", _cells(lines[at - 1], spans), rows)


def _cells(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    return [line[start:end].strip() for start, end in spans]


class _Tables(HTMLParser):
    """The tables of a page, and its tiles: name and value."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.tiles: list[tuple[str, str, str]] = []  # section, name, value
        self._section = ""
        self._text: list[str] = []
        self._what = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "section":
            self._section = dict(attributes).get("id") or ""
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th", "span"):
            self._text = []
            self._what = dict(attributes).get("class") or ""

    def handle_endtag(self, tag: str) -> None:
        text = "".join(self._text).replace("\N{NO-BREAK SPACE}", " ").strip()
        if tag in ("td", "th") and self.tables and self.tables[-1]:
            self.tables[-1][-1].append(text)
        elif tag == "span" and self._what == "what":
            self.tiles.append((self._section, text, ""))
        elif tag == "span" and self._what == "value" and self.tiles:
            self.tiles[-1] = (*self.tiles[-1][:2], text)

    def handle_data(self, data: str) -> None:
        self._text.append(data)


def report(page: str, month: date) -> Iterator[Shown]:
    """The tables of the page, and the tiles of its month."""
    read = _Tables()
    read.feed(page)
    for headings, *rows in read.tables:
        # Who pays is of the newest month, what has no month of the newest dates.
        period = ("month", month) if "payer" in headings else ("dates", NEWEST_DATES)
        for one in of_table("report", headings, rows):
            yield one if "month" in dict(one.of) else replace(one, of=(*one.of, period))
    for section, heading, value in read.tiles:
        number = _number(value.split(" ")[0])
        if section == "months" and heading in HEADINGS and number is not None:
            yield Shown("report", heading, (("month", month),), *number)


def workbook(path: Path) -> Iterator[Shown]:
    """The sheets of the workbook, with the values that its formulas have."""
    with closing(openpyxl.load_workbook(path, data_only=True)) as book:
        for sheet in book.worksheets[1:]:
            rows = [[_plain(cell) for cell in row] for row in sheet.iter_rows(min_row=4, values_only=True)]
            if rows and rows[0][0]:
                yield from of_table(f"workbook {sheet.title}", [str(one or "") for one in rows[0]], rows[1:])


def _plain(cell: Any) -> Any:
    return cell.date() if isinstance(cell, datetime) else cell


def recalculated(path: Path, folder: Path) -> Path:
    """The workbook with its formulas calculated by LibreOffice: the values that it came with are taken out before."""
    office = str(optional.required("libreoffice")[0])
    bare = folder / "bare" / path.name
    bare.parent.mkdir(parents=True)
    with zipfile.ZipFile(path) as given, zipfile.ZipFile(bare, "w", zipfile.ZIP_DEFLATED) as taken:
        for name in given.namelist():
            content = given.read(name)
            if name.startswith("xl/worksheets/"):
                content = re.sub(rb"(</f>)<v>[^<]*</v>", rb"\1", content)
            taken.writestr(name, content)
    subprocess.run(
        [office, f"-env:UserInstallation=file://{folder}/office", "--headless", "--convert-to", "xlsx", "--outdir",
            str(folder), str(bare)],
        check=True, capture_output=True, timeout=180,
    )  # fmt: skip
    return folder / path.name


def of_table(face: str, headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[Shown]:
    """The numbers under a figure's heading, of rows without a text in any other column."""
    figures = [place for place, heading in enumerate(headings) if heading in HEADINGS]
    keys = {place: KEYS[heading] for place, heading in enumerate(headings) if heading in KEYS}
    if not figures or not keys:
        return
    for row in rows:
        others = [
            heading
            for place, heading in enumerate(headings)
            if place not in keys and place not in figures and heading not in FREE_TEXT and _is_text(row[place])
        ]
        if others:
            continue
        of = tuple(sorted((key, _key(key, row[place])) for place, key in keys.items() if row[place] not in ("", None)))
        for place in figures:
            number = _number(row[place])
            if number is not None:
                yield Shown(face, headings[place], of, *number)


def _is_text(cell: Any) -> bool:
    return cell not in (None, "", "–") and not isinstance(cell, bool) and _number(cell) is None


def _key(key: str, cell: Any) -> Any:
    if key != "month" or isinstance(cell, date):
        return cell
    return date.fromisoformat(f"{cell}-01")


def _number(cell: Any) -> tuple[float, int | None] | None:
    """A number and the digits of it after the point; None where the cell has none."""
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, int | float | Decimal):
        return float(cell), None
    text = str(cell).removeprefix("≥").strip()
    percent = text.endswith("%")
    found = re.fullmatch(r"-?[\d,]+(?:\.(\d+))?", text.removesuffix("%").strip())
    if found is None:
        return None
    value, digits = float(found[0].replace(",", "")), len(found[1] or "")
    return (value / 100, digits + 2) if percent else (value, digits)


# --- against the publication ------------------------------------------------------------------------------------------

# A table of payers is one of chargeback, whose payers are the requests' teams.
_PAID = {"known_cost_usd", "closed_cost_usd", "usage_cost_usd", "output_tokens"}
_MILLIONS = {"million output tokens", "output tokens (million)", "Output tokens, million"}


def differences(connection: duckdb.DuckDBPyConnection, shown: Sequence[Shown]) -> list[str]:
    """The numbers that are not those of the publication, a line each."""
    found = []
    for one in shown:
        expected = _expected(connection, one)
        if expected is None or not _is_same(one, expected):
            found.append(f"{one.face}: {one.heading} of {dict(one.of)}: {one.value}, expected {expected}")
    return found


def _is_same(one: Shown, expected: float) -> bool:
    # The report shows five digits, and never fewer than a whole number has.
    rounding = 0.5001 * 10**-one.digits if one.digits is not None else 0
    # Schema finance rounds kilograms of a row to a milligram.
    return abs(one.value - expected) <= max(rounding, 1e-9 * abs(expected), 2e-6)


def _expected(connection: duckdb.DuckDBPyConnection, one: Shown) -> float | None:
    figure, of = one.figure, dict(one.of)
    if "dates" in of:
        return _of_dates(connection, one)
    table = figure.table
    if "payer" in of and figure.name in _PAID:
        table = "finance.chargeback"
    query = f"select {_formula(figure)} from {table} where {_condition(table, of, figure)}"
    ((value,),) = connection.execute(query).fetchall()
    if value is None:
        return None
    return float(value) / 1e6 if one.heading in _MILLIONS else float(value)


def _of_dates(connection: duckdb.DuckDBPyConnection, one: Shown) -> float | None:
    """The same of the newest dates: the tables of dates have the columns of those of months."""
    of = dict(one.of)
    dates = f"date > (select max(date) from marts.fleet_daily) - {of['dates']}"
    model = Choice(date.min, model=_model(of.get("model"))).condition("marts.model_daily", has_month=False)
    tokens = f"select sum(output_tokens)::double from marts.model_daily where {dates} and {model}"
    cost = f"select sum(cost_usd)::double from marts.cost_daily where basis = 'fully_loaded' and {dates} and {model}"
    queries = {
        "known_cost_usd": cost,
        "known_cost_usd_per_output_mtok": f"select 1e6 * ({cost}) / ({tokens})",
        "location_kgco2e": f"select sum(location_gco2e) / 1000 from marts.model_daily where {dates} and {model}",
    }
    query = queries.get(
        one.figure.name, f"select {_formula(one.figure)} from marts.model_daily where {dates} and {model}"
    )
    ((value,),) = connection.execute(query).fetchall()
    if value is None:
        return None
    return float(value) / 1e6 if one.heading in _MILLIONS else float(value)


def _formula(figure: HeadlineFigure) -> str:
    if figure.denominator is None:
        return f"sum({figure.numerator})::double"
    return f"sum({figure.numerator})::double / sum({figure.denominator})::double * {figure.factor}"


def _condition(table: str, of: Mapping[str, Any], figure: HeadlineFigure) -> str:
    month = of.get("month")
    choice = Choice(month or date.min, of.get("payer") or of.get("team"), _model(of.get("model")), of.get("site"))
    condition = choice.condition(table, has_month=month is not None)
    if of.get("scope") and table == "marts.model_monthly":
        condition += f" and meter_scope = '{of['scope']}'"
    return f"{condition} and {figure.only_with} > 0" if figure.only_with else condition


def _model(name: str | None) -> str | None:
    """What schema finance calls a model that the terminal names as the marts do."""
    names = {mart: plain for plain, marts in choices.NAMES_OF_MARTS.items() for mart in marts}
    names |= {"no model (free accelerators)": "Free accelerators"}
    return names.get(name or "", name) if name != "fleet" else None
