"""What rests on a figure in doubt is marked in tables that share, price or advise: tenants, windows, months, usage.

Each engine has a board of 250 W, 900,000 J an hour, and counts 30 tokens a second until 23:59. From ten to eleven a
tenant asks each for half of what it counts then; no tenant asks at other times.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.ledger.tokens.test_processes import A, B, answered, engine
from tests.planted import ENERGY, HOURS, WATTS, Series, board, moment, pod, rising, steady
from tests.shapes import Seen, Shape, shape

WATTS_METERED = 250
HOUR_JOULES, HOUR_TOKENS = WATTS_METERED * HOURS, (A + B) * HOURS
TEN = 10 * HOURS


def powered(name: str) -> Series:
    """A board that the engine holds all day."""
    return ENERGY, board(f"GPU-{name}", f"n-{name}", **pod(f"{name}-0")), rising(1_000 * WATTS_METERED)


def series() -> list[Series]:
    return [
        *(powered(name) for name in ("d-hidden", "d-apart", "d-clean")),
        # Two processes answer in turn.
        *engine("d-hidden", answered(lambda s: A * (s + 1_000), lambda s: B * (s + 90_000))),
        # A fifth more than the counter.
        (WATTS, board("GPU-d-apart", "n-d-apart", **pod("d-apart-0")), steady(300)),
        *engine("d-apart", lambda s: (A + B) * (s + 1_000)),
        *engine("d-clean", lambda s: (A + B) * (s + 1_000)),
    ]


def asked(model: str) -> str:
    """A request of a minute."""
    made = {
        "id": model,
        "created": datetime.fromtimestamp(moment(TEN + 300), UTC).isoformat(),
        "seconds": 60,
        "status": 200,
        "model": model,
        "tenant": "doubting",
        "usage": {"prompt_tokens": 0, "completion_tokens": HOUR_TOKENS // 2},
    }
    return f"{json.dumps(made)}\n"


def window(name: str) -> dict[str, object]:
    first, last = (datetime.fromtimestamp(moment(TEN + seconds), UTC).isoformat() for seconds in (0, HOURS))
    return {"window_id": name, "engine": f"llm/{name}-0", "start_at": first, "end_at": last}


NAMES = ("d-hidden", "d-apart", "d-clean")
DOUBTED = shape(
    "doubted",
    series,
    files={"doubted.jsonl": "".join(map(asked, NAMES))},
    requests=[
        {
            "name": "doubted",
            "kind": "access_log",
            "path": "doubted.jsonl",
            "columns": {"duration_seconds": "seconds", "status": "status", "tenant": "tenant"},
        }
    ],
    run_windows={"inline": [window(name) for name in NAMES]},
)
# Name -> the ratios of energy and of tokens, and the reasons.
MARKS = {"d-hidden": (0, 1, "hidden_processes"), "d-apart": (1, 0, "meters_disagree"), "d-clean": (0, 0, "")}
# Of two processes each is seen from its first to its last sample.
TOKENS = {"d-hidden": (A + B) * 60 * 1438, "d-apart": (A + B) * 60 * 1439, "d-clean": (A + B) * 60 * 1439}
MARK = "doubted_energy_ratio, doubted_tokens_ratio, doubt_reasons"


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(DOUBTED)


@pytest.mark.parametrize("name", NAMES)
def test_a_tenant_has_its_part_of_what_is_in_doubt(book: Seen, name: str) -> None:
    """Half of an hour, and the rest of the date, which no log explains."""
    is_energy, is_tokens, _ = MARKS[name]
    expected = [
        (joules, is_energy * joules, is_tokens * tokens, *MARKS[name])
        for joules, tokens in (
            (HOUR_JOULES / 2, HOUR_TOKENS / 2),
            (23.5 * HOUR_JOULES, TOKENS[name] - HOUR_TOKENS / 2),
        )
    ]
    sums = "energy_joules::double, coalesce(doubted_joules, 0)::double, coalesce(doubted_tokens, 0)::double"
    for table in ("tenant_usage_daily", "tenant_daily"):
        rows = book.query(
            f"select {sums}, {MARK} from marts.{table} where model = ? order by tenant = '__unattributed__'", [name]
        )
        assert rows == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("table", ["marts.deployment_usage", "finance.unit_cost", "finance.chargeback"])
def test_what_is_computed_of_several_rows_is_marked_as_they_are(book: Seen, table: str, name: str) -> None:
    assert set(book.query(f"select {MARK} from {table} where model = ?", [name])) == {MARKS[name]}


def test_a_month_has_what_is_in_doubt_of_its_models(book: Seen) -> None:
    """One of three boards; the tokens of another engine."""
    tokens = pytest.approx(TOKENS["d-hidden"] / sum(TOKENS.values()))
    assert book.query(f"select {MARK} from finance.months where site = 'doubted'") == [
        (pytest.approx(1 / 3), tokens, "hidden_processes,meters_disagree")
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_window_is_marked_by_what_is_in_doubt_meanwhile(book: Seen, name: str) -> None:
    rows = book.query(f"select energy_joules::double, {MARK} from marts.run_windows where window_id = ?", [name])
    assert rows == [(HOUR_JOULES, *MARKS[name])]
