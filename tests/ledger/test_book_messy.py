"""An ordinary cluster's mess on a real Prometheus: joules and tokens of each model are what was planted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests import messy
from tests.books import LEDGER, Book
from tests.planted import DAY
from tests.servers import openmetrics, prometheus_with_history

NEEDED_BY = {"book": ("prometheus",)}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Book]:
    folder = tmp_path_factory.mktemp("messy")
    (folder / "server").mkdir()
    with prometheus_with_history(folder / "server", openmetrics(messy.series())) as url:
        source = {"name": "cluster", "kind": "prometheus", "url": url, "interval_seconds": 60, "site": "west"}
        book = Book.of(messy.fleet(folder, source), folder / "data")
        book.run()
    yield book


def test_joules_of_each_model_and_scope(book: Book) -> None:
    held = book.query("select model, meter_scope, sum(energy_joules) from marts.energy_ledger group by all")
    assert {(model, scope): float(joules) for model, scope, joules in held} == pytest.approx(messy.JOULES, rel=1e-9)


def test_the_host_of_the_node_is_measured_while_its_boards_report(book: Book) -> None:
    held = book.query("select sum(host_overhead_joules) from marts.energy_ledger where node = 'n3'")
    assert float(held[0][0]) == pytest.approx(messy.ZETA_HOST_JOULES, rel=1e-6)


def test_tokens_of_each_model(book: Book) -> None:
    held = book.query("select model, token_class, sum(tokens) from marts.token_ledger group by all")
    booked_tokens = {(model, token_class): float(tokens) for model, token_class, tokens in held}
    assert booked_tokens == pytest.approx(messy.TOKENS, rel=1e-9)


def test_an_engine_without_scrapes_was_not_idle(book: Book) -> None:
    ((known, active, ratio),) = book.query(
        "select sum(known_seconds)::double, sum(active_seconds)::double, max(idle_time_ratio)"
        " from marts.model_daily where model = 'eta' and date = ?",
        [DAY],
    )
    assert (known, active, ratio) == (22 * 3600, 22 * 3600, 0)


def test_everything_balances_and_every_series_has_an_outcome(book: Book) -> None:
    assert book.failed_tests() == set()
    copies = book.query(
        "select count(*) from marts.series_daily where engine = 'llm/alpha-0' and outcome = 'redundant'"
    )
    assert copies == [(2 * 2 * messy.DAYS,)]


@pytest.mark.long
def test_any_order_of_landing_and_booking_gives_the_same_book(book: Book, tmp_path: Path) -> None:
    """Day two first; then day one beside it."""
    expected = book.hashes()
    for name, order in {"backward": (1, 0), "forward": (0, 1)}.items():
        folder = tmp_path / name
        (folder / "server").mkdir(parents=True)
        with prometheus_with_history(folder / "server", openmetrics(messy.series())) as url:
            source = {"name": "cluster", "kind": "prometheus", "url": url, "interval_seconds": 60, "site": "west"}
            other = Book.of(messy.fleet(folder, source), folder / "data", marts=LEDGER)
            for number in order:
                day = DAY + timedelta(days=number)
                other.run(day, day + timedelta(days=1))
        found = other.hashes()
        assert {mart: found[mart] for mart in LEDGER} == {mart: expected[mart] for mart in LEDGER}, name
