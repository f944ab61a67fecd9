"""Every face of two fleets shows the same figures: terminal, report, dashboards, and the workbook as LibreOffice
calculates it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path

import duckdb
import openpyxl
import pytest

from pipelines.command_line.headline import headline
from pipelines.fleet.fleet_file import Fleet
from pipelines.named_figures import dictionary
from pipelines.publishing.publication_manifest import REPORT, WORKBOOK
from pipelines.warehouse import database
from tests.bi import faces
from tests.bi.dashboard_faces import BOARDS, dashboards
from tests.bi.faces import Shown
from tests.books import Book
from tests.finance.two_months import run_nights

OCTOBER = date(2026, 10, 1)
NEEDED_BY = {"shown": ("libreoffice",)}


@pytest.fixture(scope="module", params=["demo", "two_months"])
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    if request.param == "demo":
        book: tuple[Book, str] = request.getfixturevalue("four_weeks")
        return book[0].fleet
    return run_nights(tmp_path_factory.mktemp("months")).fleet


@pytest.fixture
def published(fleet: Fleet) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(database.connect(fleet.snapshot, read_only=True)) as connection:
        yield connection


@pytest.fixture(scope="module")
def shown(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> list[Shown]:
    calculated = faces.recalculated(fleet.published.resolve() / WORKBOOK, tmp_path_factory.mktemp("office"))
    page = (fleet.published / REPORT).read_text(encoding="utf-8")
    return [
        *faces.terminal(headline(fleet)),
        *faces.report(page, OCTOBER),
        *faces.workbook(calculated),
        *dashboards(fleet.snapshot, OCTOBER),
    ]


def test_every_face_shows_the_figures_of_the_publication(
    published: duckdb.DuckDBPyConnection, shown: list[Shown]
) -> None:
    assert faces.differences(published, shown) == []
    seen = Counter((one.face.partition(" ")[0], one.figure.name) for one in shown)
    of_months = {"closed_cost_usd", "known_cost_usd", "idle_cost_ratio", "facility_energy_kwh"}
    of_tokens = {"joules_per_output_token", "idle_energy_ratio", "output_tokens"}
    assert {name for face, name in seen if face == "terminal"} >= of_months | of_tokens - {"output_tokens"}
    assert {name for face, name in seen if face == "report"} >= of_months | of_tokens
    assert {name for face, name in seen if face == "workbook"} >= of_months | of_tokens - {"idle_energy_ratio"}
    assert {name for face, name in seen if face == "dashboard"} >= of_months | of_tokens


def test_a_heading_is_of_one_figure() -> None:
    headings = Counter(heading for figure in dictionary.figures().values() for heading in figure.headings)
    assert [heading for heading, count in headings.items() if count > 1] == []


def test_a_planted_difference_is_found_on_the_terminal(fleet: Fleet, published: duckdb.DuckDBPyConnection) -> None:
    printed = headline(fleet)
    ((usd,),) = published.execute("select sum(known_cost_usd) from finance.cost where month = '2026-10-01'").fetchall()
    other = printed.replace(f"{usd:,.2f}", f"{float(usd) + 0.02:,.2f}")
    assert faces.differences(published, list(faces.terminal(printed))) == []
    (first, *_) = faces.differences(published, list(faces.terminal(other)))
    assert first.startswith("terminal: USD ")


def test_a_planted_difference_is_found_in_the_report(fleet: Fleet, published: duckdb.DuckDBPyConnection) -> None:
    page = (fleet.published / REPORT).read_text(encoding="utf-8")
    ((usd,),) = published.execute("select sum(idle_cost_usd) from finance.cost where month = '2026-10-01'").fetchall()
    assert f"{usd:,.2f}" in page
    other = page.replace(f"{usd:,.2f}", f"{float(usd) + 0.02:,.2f}")
    (line,) = faces.differences(published, list(faces.report(other, OCTOBER)))
    assert line.startswith("report: idle USD of {'month': datetime.date(2026, 10, 1)}")


def test_a_planted_difference_is_found_on_a_dashboard(fleet: Fleet, published: duckdb.DuckDBPyConnection) -> None:
    """A panel that has another column under the figure's name."""
    shown = json.dumps(BOARDS)
    other = shown.replace('sum(idle_cost_usd) as \\"Idle cost, USD', 'sum(usage_cost_usd) as \\"Idle cost, USD')
    assert other != shown
    found = faces.differences(published, list(dashboards(fleet.snapshot, OCTOBER, json.loads(other))))
    assert {line.partition(" of {")[0] for line in found} == {"dashboard finance: idle USD"}


@pytest.mark.needs("libreoffice")
def test_a_planted_difference_is_found_in_the_workbook(
    fleet: Fleet, published: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """A formula that divides by another column: only what calculates it can find that."""
    book = openpyxl.load_workbook(fleet.published / WORKBOOK)
    sheet = book["Output tokens"]
    (place,) = (cell for cell in sheet[4] if cell.value == "USD per million output tokens, all parts")
    cell = sheet.cell(5, place.column)
    assert "D5/C5" in cell.value
    cell.value = cell.value.replace("D5", "E5")
    book.save(tmp_path / WORKBOOK)
    calculated = faces.recalculated(tmp_path / WORKBOOK, tmp_path / "office")
    (line,) = faces.differences(published, list(faces.workbook(calculated)))
    assert line.startswith("workbook Output tokens: USD per million output tokens, all parts of ")
