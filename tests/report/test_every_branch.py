"""Every branch of every query of a reader runs on rows: what DuckDB refuses, it refuses only once a row reaches it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from pipelines.command_line import advice_headline, headline, model_headline, month_headline
from pipelines.publishing.workbook.questions import QUESTIONS
from pipelines.report import figures, page
from pipelines.warehouse import database
from tests.query_branches import without_rows
from tests.report import every_branch

SQL = Path(figures.__file__).parent / "sql"
QUERIES = {
    **{f"report/sql/{path.name}": path.read_text(encoding="utf-8") for path in sorted(SQL.glob("*.sql"))},
    **{f"workbook {question.sheet}": question.query for question in QUESTIONS},
    **{
        f"{module.__name__} {name}": value
        for module in (headline, advice_headline, model_headline, month_headline)
        for name, value in vars(module).items()
        if isinstance(value, str) and value.strip().startswith(("select", "with"))
    },
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return every_branch.write(tmp_path_factory.mktemp("branches"))


@pytest.fixture(scope="module")
def published(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(database.connect(path, read_only=True)) as connection:
        yield connection


@pytest.fixture(scope="module")
def of_one_scope(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """The same without its server: some queries name the scope of a meter only where there are two."""
    copied = tmp_path_factory.mktemp("scope") / path.name
    shutil.copyfile(path, copied)
    with closing(database.connect(copied)) as connection:
        connection.execute("delete from marts.model_daily where meter_scope = 'node'")
        yield connection


@pytest.mark.parametrize("name", QUERIES)
def test_every_branch_of_a_query_has_rows(
    published: duckdb.DuckDBPyConnection, of_one_scope: duckdb.DuckDBPyConnection, name: str
) -> None:
    missing = without_rows(published, QUERIES[name])
    assert [branch for branch in without_rows(of_one_scope, QUERIES[name]) if branch in missing] == []


def test_every_figure_is_drawn_of_them(path: Path) -> None:
    made = page.page(path)
    found = [figure for contents in page.SECTIONS.values() for figure in contents]
    assert [figure.query for figure in found if f'id="{figure.query.replace("_", "-")}"' not in made] == []
    assert [figure.query for figure in found if figure.empty and figure.empty in made] == []


def test_a_branch_without_a_row_is_named() -> None:
    query = """
        with held as (select 1 as n union all select 2 where false)
        select case n when 1 then 'one' when 2 then 'two' else 'many' end as word from held
    """
    with database.connect(":memory:") as connection:
        assert without_rows(connection, query) == ["arm 2 of a union of 2", "when (n = 2)", "else 'many'"]
        assert without_rows(connection, "select 1 where false") == ["the whole query"]
