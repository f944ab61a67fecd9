"""Counters that begin on a page that was read before, and what looks alike: labels that change, scraping that begins.

LiteLLM has a series per key, which is born with the key's first request. A sample a minute, at half past, from half an
hour before midnight to 23:59:30; the key `always` moves 60 tokens a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.planted import HOURS, START_TIME, Samples, Series, moment
from tests.shapes import Seen, Shape, shape

TOKENS = "litellm_output_tokens_metric_total"
EARLY, LATE, NOON = -1_800, 24 * HOURS, 12 * HOURS
# From midnight to 23:59:30, at a token a second.
ALWAYS = LATE - 30


def counted(
    first: float, last: float, start: float, per_second: float = 1, silent: tuple[float, float] = (0, 0)
) -> Samples:
    """`start` at the first scrape from `first` on, then so many a second."""
    seconds = range(int(first) + 30, int(last), 60)
    return [
        (moment(second), start + per_second * (second - seconds[0]))
        for second in seconds
        if not silent[0] <= second < silent[1]
    ]


def key(gateway: str, alias: str, samples: Samples, **labels: str) -> Series:
    asked = {"model": gateway, "requested_model": gateway, "api_key_alias": alias, **labels}
    return TOKENS, {**asked, **place(gateway)}, samples


def place(gateway: str) -> dict[str, str]:
    return {"namespace": "llm", "pod": f"{gateway}-0", "container": "litellm", "instance": f"{gateway}:4000"}


def process(gateway: str, silent: tuple[float, float] = (0, 0)) -> Series:
    """A process that began two days ago."""
    return START_TIME, place(gateway), counted(EARLY, LATE, moment(-48 * HOURS), 0, silent)


def series() -> Iterable[Series]:
    def of(gateway: str, *keys: tuple[str, Samples], silent: tuple[float, float] = (0, 0)) -> Iterable[Series]:
        yield process(gateway, silent)
        for alias, samples in keys:
            yield key(gateway, alias, samples)

    always = ("always", counted(EARLY, LATE, 1_000))
    yield from of("b-keys", always, ("morning", counted(6 * HOURS, 10 * HOURS, 500)), ("noon", counted(NOON, LATE, 7)))
    # All that comes to its only key, from 08:00 on: 300 and 300 a minute.
    yield from of("b-first", ("only", counted(8 * HOURS, 9 * HOURS, 300, 5)))
    # The page is not read for an hour; the key's first requests were in it.
    hour = (11 * HOURS, NOON)
    yield from of(
        "b-outage", ("always", counted(EARLY, LATE, 1_000, silent=hour)), ("born", counted(NOON, LATE, 5_000)),
        silent=hour,
    )  # fmt: skip
    yield from of("b-midnight", always, ("born", counted(0, LATE, 20)))
    # Twins. A filter lets the family through at noon.
    yield from of("b-filtered", ("old", counted(NOON, LATE, 5_000_000, 10)))
    yield from list(of("b-begun", ("old", counted(NOON, LATE, 5_000_000))))[1:]
    # The family has a new label from noon on, or from midnight; one key has; one has until 18:00; after an hour unread.
    kept = ("old", counted(EARLY, NOON, 5_000))
    went_on = 5_000 + NOON - EARLY
    yield from of("b-family", kept, ("new", counted(NOON, LATE, went_on)))
    yield from of("b-night", ("old", counted(EARLY, 0, 5_000)), ("new", counted(0, LATE, 5_000 - EARLY)))
    yield from of("b-one", always, kept, ("new", counted(NOON, LATE, went_on)))
    yield from of(
        "b-back",
        ("old", counted(EARLY, LATE, 5_000, silent=(NOON, 18 * HOURS))),
        ("new", counted(NOON, 18 * HOURS, went_on)),
    )
    yield from of(
        "b-unread", ("old", counted(EARLY, 11 * HOURS, 5_000)), ("new", counted(NOON, LATE, went_on)), silent=hour
    )  # fmt: skip
    # Another exporter of the address is read half a minute earlier.
    yield START_TIME, place("b-beside"), [(at - 30, value) for at, value in counted(0, LATE, moment(-48 * HOURS), 0)]
    yield key("b-beside", "old", counted(0, LATE, 5_000))


BIRTHS = shape("births", series)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(BIRTHS)


@pytest.mark.parametrize(
    ("gateway", "tokens"),
    [
        ("keys", ALWAYS + 500 + 239 * 60 + 7 + 719 * 60),
        ("first", 60 * 300),
        ("outage", ALWAYS + 5_000 + 719 * 60),
        ("midnight", ALWAYS + 20 + 1_439 * 60),
    ],
)
def test_a_counter_that_begins_on_a_page_counts_from_zero(book: Seen, gateway: str, tokens: float) -> None:
    assert booked(book, gateway) == tokens


@pytest.mark.parametrize(
    ("gateway", "tokens"),
    [
        ("filtered", 719 * 600),
        ("begun", 719 * 60),
        # All but the minute of the change.
        ("family", NOON - 30 + 719 * 60),
        ("night", 1_439 * 60),
        ("one", ALWAYS + NOON - 30 + 719 * 60),
        # The old label's step over six hours is in the book as well.
        ("back", ALWAYS + 359 * 60),
        ("unread", 11 * HOURS - 30 + 719 * 60),
        ("beside", 1_439 * 60),
    ],
)
def test_what_a_counter_shows_under_a_new_label_is_old(book: Seen, gateway: str, tokens: float) -> None:
    assert booked(book, gateway) == tokens


def booked(book: Seen, gateway: str) -> float:
    ((tokens,),) = book.query(
        "select sum(tokens)::double from marts.token_ledger where engine = ?", [f"gateway:llm/b-{gateway}"]
    )
    return tokens


def test_the_balance_holds(book: Seen) -> None:
    assert book.query("select * from marts.token_reconciliation_daily where difference_tokens <> 0") == []
