"""What became of advice, in five weeks of which every watt was planted (`changing_weeks`)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.publishing import month_closing
from tests.books import Book
from tests.ledger.advice.changing_weeks import run_weeks

pytestmark = pytest.mark.long

KWH_OF_WATT = 0.73 * 1.2  # of a month of 730 hours, at PUE 1.2
NEWEST = (
    "select * from published.measured_changes"
    " qualify row_number() over (partition by change_id order by measured_at desc) = 1"
)
# Watts that each change saves, as they were planted: two boards of 90 W that are free at 50; one of 100 W that is left
# at 50, as the work moves; 60 W of the power limit.
SAVED_WATTS = {"llm/spare": 80, "llm/pair": 50, "llm/mail": 60}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    return run_weeks(tmp_path_factory.mktemp("weeks"))


def published(book: Book, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(book.fleet.snapshot), read_only=True) as connection:
        return connection.execute(query).fetchall()


def test_three_changes_are_found_and_no_other(book: Book) -> None:
    """A second board for half of each day is no change, nor is one date on which a board is not held."""
    found = book.query(f"select deployment, what, started_on::varchar, changed_on::varchar, gpus_before, gpus_after,"
        f" days_before, days_after from ({NEWEST}) order by deployment")  # fmt: skip
    assert found == [
        ("llm/mail", "power_cap", "2026-09-21", "2026-09-21", 2, 2, 21, 14),
        ("llm/pair", "fewer_replicas", "2026-09-21", "2026-09-21", 2, 1, 21, 14),
        # Eleven dates since the one on which it held one board.
        ("llm/spare", "off", "2026-09-21", "2026-09-21", 2, 0, 11, 14),
    ]


def test_what_each_saved_is_what_was_planted(book: Book) -> None:
    found = book.query(f"select deployment, saving_watts, saving_kwh_month, saving_low, saving_high from ({NEWEST})")
    assert {deployment for deployment, *_ in found} == SAVED_WATTS.keys()
    for deployment, watts, kwh, low, high in found:
        planted = SAVED_WATTS[deployment] * KWH_OF_WATT
        assert low < planted < high, deployment
        assert high - low < 0.35 * planted, deployment
        assert watts == pytest.approx(SAVED_WATTS[deployment], abs=2)
        assert kwh == pytest.approx(watts * KWH_OF_WATT)


def test_mail_served_more_and_a_plain_difference_would_hide_it(book: Book) -> None:
    """15 tokens a second in the mean, then 22.5: 8 J × 7.5 = 60 W more, and 60 W less by the limit."""
    ((before, after),) = book.query(
        "select sum(energy_joules) filter (where date < date '2026-09-21')::double / (21 * 86400),"
        " sum(energy_joules) filter (where date >= date '2026-09-21')::double / (14 * 86400)"
        " from marts.model_daily where deployment = 'llm/mail'"
    )
    assert before == pytest.approx(after, abs=5)


def test_what_became_of_the_advice(book: Book) -> None:
    query = (
        "select deployment, advice, outcome, first_advised_on::varchar, last_advised_on::varchar, is_promise_held,"
        " queued_ratio_before, queued_ratio_after from finance.advice_score order by deployment"
    )
    expected = [
        ("llm/mail", None, "not_advised", None, None, None, 0, 0),
        # In half of the intervals requests wait: whatever it saves, it went wrong.
        ("llm/pair", "fewer_replicas", "gone_wrong", "2026-09-06", "2026-09-20", True, 0, 0.5),
        ("llm/spare", "spin_down", "realised", "2026-09-06", "2026-09-20", True, 0, None),
    ]
    assert published(book, query) == expected
    assert book.query(query) == expected


def test_money_is_realised_where_it_left_the_bill(book: Book) -> None:
    """kWh at 0.1 USD. The boards that were left stay at the site, and are paid on."""
    found = published(
        book,
        "select measured_kwh_per_month, realised_energy_usd_per_month, realised_accelerator_usd_per_month"
        " from finance.advice_score order by deployment",
    )
    for kwh, energy_usd, accelerator_usd in found:
        assert energy_usd == pytest.approx(0.1 * kwh)
        assert accelerator_usd == 0


def test_advice_of_earlier_weeks_survives_a_lost_warehouse(book: Book, tmp_path: Path) -> None:
    """It is in each publication, and comes back from there; the same evening's advice is not there twice."""
    query = "select recommendation_id, as_of_date, kind, deployment from published.advice_given order by all"
    given = book.query(query)
    # Five evenings of two kinds of advice, until it was followed.
    assert len(given) == 6
    assert published(book, query) == given
    lost = book.copy(tmp_path)
    with lost.connection() as connection:
        connection.execute("delete from published.advice_given; delete from published.measured_changes")
        month_closing.take_back(lost.fleet, connection)
    assert lost.query(query) == given
    assert lost.query("select count(*) from published.measured_changes") == [(6,)]
    shutil.rmtree(lost.fleet.root)
