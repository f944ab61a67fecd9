"""No cell of a CSV file is run by a spreadsheet, and every other text is as it was reported."""

from __future__ import annotations

import csv
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.fleet.places import DEFAULT_FLEET
from pipelines.publishing import publication
from pipelines.publishing.spreadsheet_cells import harmless, harmless_column
from tests.books import Book, demo_fleet, on
from tests.publishing.test_focus import found_by_validator

DDE = "=cmd|'/c calc'!A1"


@pytest.mark.parametrize(
    "text",
    [
        DDE,
        "=1+1",
        "＝1+1",
        '=HYPERLINK("http://x")',
        "\t=1",
        "\tname",
        "\rname",
        "\nname",
        "@SUM(1)",
        "+cmd|' /c calc'!A0",
        "-2+3+cmd|' /c calc'!A0",
        "-Sheet2!A1",
        "＠SUM（1）",
        "＋SUM(1)",
        "－A!1",
        # Spaces and characters that are not seen: a program may cut them off.
        " =1+1",
        "\u3000＝1",
        "\ufeff=1",
        "\u200b@SUM(1)",
        "\x00=1",
        # An apostrophe that was reported is kept apart from the one that is put in front.
        "'=1+1",
        "''@SUM(1)",
    ],
)
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(text: str) -> None:
    assert harmless(text) == f"'{text}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "'",
        " ",
        "-1.5",
        "-1,234.50",
        "+1",
        "-2+3",
        "@cf/meta/llama-3.1-8b-instruct",
        "@team",
        "-",
        "a=1",
        "model (v2)",
        "gpt-oss-120b!",
        "x|y",
        "'quoted'",
        "' @cf/meta/llama",
        "🙂 مرحبا",
        '{"tenant": "=1"}',
    ],
)
def test_every_other_text_stays(text: str) -> None:
    assert harmless(text) == text


def given_back(cell: str) -> str:
    """What was reported, from a cell: the rule of docs/connect.md."""
    reported = cell[1:]
    return reported if cell.startswith("'") and harmless(reported) == cell else cell


HARD = st.text(st.sampled_from("='＝+-@＋＠(|!\t\r\n \u3000\ufeffa1"), max_size=6)


@given(HARD | st.text())
@example("'=1")
@example("''=1")
def test_the_text_comes_back_and_no_two_texts_become_one(text: str) -> None:
    assert given_back(harmless(text)) == text


@given(HARD | st.text())
def test_no_cell_begins_like_a_formula(text: str) -> None:
    cell = harmless(text)
    assert not cell.startswith(("=", "＝", "\t", "\r", "\n"))
    assert not cell.strip(" \u3000\ufeff").startswith(("=", "＝"))
    assert not (cell.startswith(("+", "-", "@", "＋", "－", "＠")) and any(one in cell for one in "(|!"))


def test_a_column_is_guarded_as_its_texts_are() -> None:
    texts = [DDE, None, "a", "a", "", "@cf/x", None, "=1"]
    assert harmless_column(pa.array(texts)).to_pylist() == [
        f"'{DDE}",
        None,
        "a",
        "a",
        "",
        "@cf/x",
        None,
        "'=1",
    ]
    assert harmless_column(pa.chunked_array([pa.array([None], pa.string()), pa.array(["=1"])])).to_pylist() == [
        None,
        "'=1",
    ]
    assert harmless_column(pa.array([], pa.string())).to_pylist() == []


# The demo's models, renamed: what an operator could find in a served model's name.
RENAMED = {"gpt-oss-120b": DDE, "gemma-4-31B": "@cf/meta/llama", "Kimi-K2.5": "\t=1+1", "MiniMax-M2.5": "-minimax"}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a publication of one day, whose models have such names."""
    folder = tmp_path_factory.mktemp("renamed")
    models = [
        {**one, "name": RENAMED[one["name"]], "aliases": [*one["aliases"], one["name"]]}
        if one["name"] in RENAMED
        else one
        for one in yaml.safe_load(DEFAULT_FLEET.read_text(encoding="utf-8"))["models"]
    ]
    book = Book.of(demo_fleet(folder, on("10-06"), on("10-07"), models=models), folder / "data")
    book.run()
    assert publication.publish(book.fleet, on("10-06"), on("10-07")) is not None
    return book.fleet.published / "latest"


def cells_of(published: Path) -> list[dict[str, str]]:
    (file,) = published.glob("focus/*.csv")
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.rest
def test_no_cell_of_the_focus_file_begins_like_a_formula(published: Path) -> None:
    rows = cells_of(published)
    cells = [cell for row in rows for cell in row.values()]
    assert [cell for cell in cells if cell.startswith(("=", "＝", "\t", "\r", "\n"))] == []
    assert {row["x_Model"] for row in rows} >= {f"'{DDE}", "@cf/meta/llama", "'\t=1+1", "-minimax"}


@pytest.mark.rest
def test_the_parquet_file_has_the_names_as_they_are(published: Path) -> None:
    (file,) = published.glob("parquet/marts/focus_cost_and_usage.parquet")
    found = duckdb.sql(f"select distinct \"x_Model\" from '{file}'").fetchall()
    assert {model for (model,) in found} >= set(RENAMED.values())
    cells = {row["x_Model"] for row in cells_of(published)}
    assert {given_back(cell) for cell in cells} == {model or "" for (model,) in found}


@pytest.mark.rest
@pytest.mark.needs("focus")
def test_the_validator_finds_no_more_in_a_file_with_such_names(published: Path, tmp_path: Path) -> None:
    """As of the demo itself (`test_focus`)."""
    (file,) = published.glob("focus/*.csv")
    assert found_by_validator(file, tmp_path) == (
        {"total": 578, "passed": 136, "failed": 1, "skipped": 441},
        {"InvoiceId-C-005-C"},
    )
