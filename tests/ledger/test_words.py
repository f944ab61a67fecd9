"""Columns with a closed set of words: each has its words in its mart's yml, and a row with another one is found."""

from __future__ import annotations

import re
import typing
from datetime import date
from pathlib import Path

import pytest
import yaml

from pipelines.fleet.fleet_keys import Role
from pipelines.fleet.places import PROJECT
from tests.books import Book, demo_fleet, on
from tests.models import MODELS, finance, finance_entries, mart_entries, marts

FILES = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in mart_entries()}
MARTS = [mart for file in FILES.values() for mart in file["models"]]
# Name -> text of what more than one mart has.
FINANCE = [entry for path in finance_entries() for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["models"]]
SHARED = dict(re.findall(r"{% docs (\w+) %}\n(.*)\n{% enddocs %}", (MODELS / "columns.md").read_text(encoding="utf-8")))
TEST = PROJECT / "dbt_project/tests/words_of_the_book_are_known.sql"
# By their names they hold a word, and it is not one of a closed set.
OPEN = {
    "carbon_basis": "holds a year",
    "lifecycle_basis": "holds a year",
}
CLOSED = re.compile(
    r"^(state|role|phase|account|pool_to_scale|cost_part|energy_source)$|_(basis|method|code|class|scope)$"
)


def words() -> dict[tuple[str, str], list[str | None]]:
    """(mart, column) -> the words that it may hold."""
    return {
        (mart["name"], column["name"]): column["config"]["meta"]["words"]
        for mart in MARTS
        for column in mart["columns"]
        if "words" in column.get("config", {}).get("meta", {})
    }


def test_every_column_of_words_lists_them() -> None:
    named = {
        (mart["name"], column["name"])
        for mart in MARTS
        for column in mart["columns"]
        if column["data_type"] == "string" and CLOSED.search(column["name"]) and column["name"] not in OPEN
    }
    assert named - words().keys() == set()


def text(column: dict) -> str:
    """What a column's description reads like in the database."""
    return re.sub(r"{{ doc\('(\w+)'\) }}", lambda found: SHARED[found[1]], column["description"])


def test_every_mart_has_a_file_of_its_own_beside_its_sql() -> None:
    assert sorted(mart["name"] for mart in MARTS) == [path.stem for path in marts()]
    assert [mart["name"] for mart in FINANCE] == [path.stem for path in finance()]


def test_a_text_is_written_once() -> None:
    """In the one mart that has such a column, or in columns.md."""
    written = [column["description"] for mart in (*MARTS, *FINANCE) for column in mart["columns"]]
    named = [name for description in written for name in re.findall(r"doc\('(\w+)'\)", description)]
    assert {name for name in SHARED if named.count(name) < 2} == set()
    texts = [description for description in written if "{{" not in description] + list(SHARED.values())
    assert sorted({description for description in texts if texts.count(description) > 1}) == []


def test_null_is_allowed_where_the_description_says_what_it_means() -> None:
    """ "A column whose description does not explain NULL is never NULL" (columns.md)."""
    has_null = {(mart["name"], column["name"]): "NULL" in text(column) for mart in MARTS for column in mart["columns"]}
    assert {key: None in found for key, found in words().items()} == {key: has_null[key] for key in words()}


def test_the_one_test_looks_at_every_mart_with_words() -> None:
    looked_at = re.findall(r"ref\('(\w+)'\)", TEST.read_text(encoding="utf-8"))
    assert sorted(looked_at) == sorted({mart for mart, _ in words()})


def test_the_fleet_file_accepts_the_roles_of_the_book() -> None:
    assert set(typing.get_args(Role)) == set(words()["energy_ledger", "role"])


# --- in a book --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    folder = tmp_path_factory.mktemp("words")
    book = Book.of(demo_fleet(folder, on("10-20"), on("10-22")), folder / "data")
    book.run()
    return book


def strange(book: Book, first: date, last: date) -> list[tuple]:
    """The rows that the test returns for the dates; none where it holds. It warns, and never fails."""
    (result,) = book.dbt("test", "--select", TEST.stem, dates=(first, last))
    rows = book.query(result.node.compiled_code)
    assert result.status == ("warn" if rows else "pass")
    return sorted(rows)


def test_an_undocumented_word_is_found_with_its_row(book: Book, tmp_path: Path) -> None:
    assert strange(book, on("10-20"), on("10-22")) == []
    broken = book.copy(tmp_path)
    with broken.connection() as connection:
        of_an_hour = "date = '2026-10-21' and model = 'Kimi-K2.5' and hour(interval_start_at) = 7"
        board = f"meter = (select min(meter) from marts.energy_ledger where {of_an_hour})"
        connection.execute(f"update marts.energy_ledger set state = 'dozing' where {of_an_hour} and {board}")
        # NULL: idle_basis may be, attribution_method may not; slo_capacity is made anew by every run.
        connection.execute(f"update marts.energy_ledger set idle_basis = null where {of_an_hour}")
        connection.execute("update marts.token_ledger set token_class = null where date = '2026-10-20'")
        connection.execute("update marts.slo_capacity set capacity_basis = 'hearsay' where model = 'gemma-4-31B'")
    states = "active, parked, asleep, unallocated, unknown"
    classes = "input, cached_input, computed_input, output"
    bases = "requests_within_slo, histogram_within_slo, highest_observed"
    ledger, capacity, tokens = strange(broken, on("10-20"), on("10-22"))
    assert capacity == (
        *("slo_capacity", "capacity_basis", "hearsay", bases, 1),
        "site west, deployment llm-teaching/gemma-4-31B, model gemma-4-31B",
    )
    assert ledger[:5] == ("energy_ledger", "state", "dozing", states, 12)
    assert ledger[5].startswith("date 2026-10-21, interval_start_at 2026-10-21 07:00:00+00, site west, meter GPU-")
    assert tokens[:4] == ("token_ledger", "token_class", "NULL", classes)
    # A run of the other date finds its own rows, and those of marts that every run computes whole.
    assert [row[0] for row in strange(broken, on("10-20"), on("10-21"))] == ["slo_capacity", "token_ledger"]
