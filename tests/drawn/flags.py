"""What the checks of a book name: alarms, data tests that warn, and invariants, by the cell that a row is about.

Keep out whether a flag was due: that is `verdicts`.
"""

from __future__ import annotations

import re
from collections import defaultdict

import duckdb

from pipelines.booking.alarms import ALARMS, ask
from tests.books import Book

# Not a check but a row of doubts: the tokens of its engine may be more.
LOWER_BOUND = "doubts.unseen_tokens"
CELL = re.compile(r"\bc\d+\b")
# About the whole booking, or about what all drawn cells are: four hours of a day, at a site without its own factors.
NOT_ABOUT_A_CELL = {
    "sources_speak",
    "hours_of_a_landed_zone_have_their_own_factor",
    "energy_of_a_zone_has_a_factor",
    "costs_are_usual",
    "complete_months_agree_with_their_bills",
}


def flags(book: Book) -> dict[str, set[str]]:
    """Cell -> the names of the checks that name it."""
    found: dict[str, set[str]] = defaultdict(set)

    def add(check: str, rows: list[tuple[object, ...]]) -> None:
        for row in rows:
            for cell in CELL.findall(" ".join(map(str, row))):
                found[cell].add(check)

    compiled = book.dbt("compile", "--select", "test_type:singular")
    tests = {one.node.name: one.node.compiled_code for one in compiled}
    with book.connection() as connection:
        for alarm in ALARMS:
            if alarm.name not in NOT_ABOUT_A_CELL:
                add(alarm.name, ask(connection, alarm, "test")[1])
        for name, sql in tests.items():
            if name not in NOT_ABOUT_A_CELL:
                try:
                    add(name, connection.execute(sql).fetchall())
                except duckdb.CatalogException:  # reads a mart that this book has not made
                    continue
    add(LOWER_BOUND, book.query("select entity from marts.doubts where reason = 'unseen_tokens'"))
    for name, broken in book.broken().items():
        add(name, [(str(one),) for one in broken])
    return dict(found)
