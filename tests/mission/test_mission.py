"""The rows of mission.yaml as tests; `make mission` prints them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pipelines.fleet.places import PROJECT
from tests.books import Book
from tests.mission.fleets import mlperf, planted
from tests.mission.table import Row, answered, is_right, plain, rows

# A row that another suite's test answers is asked by `make mission` and by that suite.
ASKED_HERE = [row for row in rows() if not row.asked_by]


def needs(row: Row) -> list[pytest.MarkDecorator]:
    """The marks of what a row needs."""
    return [pytest.mark.needs(*row.needs)] if row.needs else []


@pytest.fixture(scope="module")
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """A fleet by its name, booked when the first row asks it."""
    made: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in made:
            if name == "demo":
                made[name] = request.getfixturevalue("four_weeks")[0]
            else:
                made[name] = {"planted": planted, "mlperf": mlperf}[name](tmp_path_factory.mktemp(name))
        return made[name]

    return of


@pytest.mark.parametrize("row", [pytest.param(row, id=row.question, marks=needs(row)) for row in ASKED_HERE])
def test_the_answer_is_the_one_worked_out_by_hand(row: Row, fleet: Callable[[str], Book]) -> None:
    assert row.answer, "an empty answer is always right"
    got = plain(answered(row, fleet(row.fleet)))
    if row.expected_wrong_until:
        assert not is_right(row, got), f"{row.question} is right now: remove expected_wrong_until"
    else:
        assert is_right(row, got), f"{row.question}\nexpected {row.answer}\ngot      {got}\n{row.working}"


@pytest.mark.parametrize("row", [row for row in rows() if row.asked_by], ids=lambda row: row.question)
def test_what_another_suite_answers_is_there(row: Row) -> None:
    file, _, name = row.asked_by.partition("::")
    assert f"def {name}(" in (PROJECT / file).read_text(encoding="utf-8")
