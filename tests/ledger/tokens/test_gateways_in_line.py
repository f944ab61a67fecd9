"""Two gateways of a model of which no engine has a page: in line they count the same requests, side by side their own.

LiteLLM in one namespace and agentgateway in another, each read once a minute from midnight to 23:59. Traffic is drawn:
700 to 1,300 tokens come in a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from random import Random

import pytest

from tests.planted import Samples, Series, moment
from tests.shapes import Seen, Shape, shape

MINUTES = 1_440
NOON = 720
LITELLM, AGENTGATEWAY = "litellm_output_tokens_metric_total", "agentgateway_gen_ai_client_token_usage_sum"


def drawn(seed: int) -> list[float]:
    """What has come by each minute of the day."""
    random = Random(seed)
    return [0.0, *accumulate(random.randint(700, 1_300) for _ in range(MINUTES + 1))]


def read(came: list[float], late: int = 0, first: int = 0, start: float = 5_000) -> Samples:
    """A page that is read `late` seconds after each minute from `first` on; tokens come evenly within a minute."""
    return [
        (moment(60 * minute + late), start + came[minute] + (came[minute + 1] - came[minute]) * late // 60)
        for minute in range(first, MINUTES)
    ]


def pair(model: str, litellm: Samples, agentgateway: Samples) -> Iterable[Series]:
    def place(namespace: str) -> dict[str, str]:
        return {"namespace": namespace, "pod": f"{model}-{namespace}", "instance": f"{model}-{namespace}:4000"}

    yield LITELLM, {"model": model, "requested_model": model, "team": "x", **place("edge")}, litellm
    asked = {"gen_ai_token_type": "output", "gen_ai_request_model": model, "gen_ai_response_model": model}
    yield AGENTGATEWAY, {**asked, **place("mesh")}, agentgateway


ONE, OTHER = drawn(1), drawn(2)
WHOLE = [one + other for one, other in zip(ONE, OTHER, strict=True)]
LARGE = [10 * other for other in OTHER]
STEADY = [1_000.0 * minute for minute in range(MINUTES + 2)]


def series() -> Iterable[Series]:
    # In line.
    yield from pair("g-equal", read(ONE), read(ONE))
    yield from pair("g-late", read(ONE), read(ONE, late=20))
    yield from pair("g-steady", read(STEADY), read(STEADY))
    # LiteLLM is put before the other one at noon; the other one restarts.
    yield from pair("g-joined", read(ONE, first=NOON), read(ONE, late=20))
    yield from pair("g-restarted", read(ONE), [*read(ONE)[:NOON], *read(ONE, first=NOON, start=5 - ONE[NOON])])
    # Side by side: as much in the mean, scraped together or not; twice as much; one after the other.
    yield from pair("g-halves", read(ONE), read(OTHER))
    yield from pair("g-apart", read(ONE), read(OTHER, late=20))
    yield from pair("g-double", read(STEADY), read([2 * came for came in STEADY]))
    yield from pair(
        "g-moved",
        read([min(came, STEADY[NOON]) for came in STEADY]),
        read([max(came - STEADY[NOON], 0) for came in STEADY]),
    )
    # One has a second client, or a second backend; one is small beside another stream.
    yield from pair("g-part", read(ONE), read(WHOLE, late=20))
    yield from pair("g-whole", read(WHOLE), read(ONE, late=20))
    yield from pair("g-small", read(ONE), read(LARGE, late=20))


GATEWAYS = shape("gateways_in_line", series)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(GATEWAYS)


def booked(book: Seen, name: str) -> dict[str, float]:
    """By namespace."""
    rows = book.query(
        "select engine, sum(tokens)::double from marts.token_ledger where engine like ? group by 1",
        [f"gateway:%/g-{name}"],
    )
    return {engine.removeprefix("gateway:").partition("/")[0]: tokens for engine, tokens in rows}


LAST = MINUTES - 1
LATE, OTHER_LATE, WHOLE_LATE, LARGE_LATE = (read(came, late=20) for came in (ONE, OTHER, WHOLE, LARGE))


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("equal", {"edge": ONE[LAST]}),
        ("late", {"edge": ONE[LAST]}),
        ("steady", {"edge": STEADY[LAST]}),
        ("joined", {"mesh": LATE[-1][1] - LATE[0][1]}),
        ("restarted", {"edge": ONE[LAST]}),
        ("part", {"mesh": WHOLE_LATE[-1][1] - WHOLE_LATE[0][1]}),
        ("whole", {"edge": ONE[LAST] + OTHER[LAST]}),
    ],
)
def test_gateways_in_line_are_counted_once(book: Seen, name: str, tokens: dict[str, float]) -> None:
    assert booked(book, name) == tokens


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("halves", {"edge": ONE[LAST], "mesh": OTHER[LAST]}),
        ("apart", {"edge": ONE[LAST], "mesh": OTHER_LATE[-1][1] - OTHER_LATE[0][1]}),
        ("double", {"edge": STEADY[LAST], "mesh": 2 * STEADY[LAST]}),
        ("moved", {"edge": STEADY[NOON], "mesh": STEADY[LAST] - STEADY[NOON]}),
        ("small", {"edge": ONE[LAST], "mesh": LARGE_LATE[-1][1] - LARGE_LATE[0][1]}),
    ],
)
def test_gateways_side_by_side_are_added(book: Seen, name: str, tokens: dict[str, float]) -> None:
    assert booked(book, name) == tokens


def test_the_one_that_is_not_added_is_listed_and_checks_the_other(book: Seen) -> None:
    assert book.query(
        "select engine, outcome, reason from marts.series_daily where engine like '%/g-equal' order by all"
    ) == [
        ("gateway:edge/g-equal", "booked", None),
        ("gateway:mesh/g-equal", "coarser_scope", "nearer_source_speaks"),
    ]
    assert book.query(
        "select engine, cross_check_ratio from marts.token_reconciliation_daily"
        " where engine like '%/g-equal' and cross_check_ratio is not null"
    ) == [("gateway:mesh/g-equal", 0.0)]


def test_the_balance_holds(book: Seen) -> None:
    assert book.query("select * from marts.token_reconciliation_daily where difference_tokens <> 0") == []
