"""Which process a token belongs to, which model it served, and when nobody knows what it did.

Engines stand side by side in one planted fleet, each with a board of its own; what each should show is worked out by
hand. The same of devices is in `test_book_conditions`.
"""

from __future__ import annotations

import pytest

from tests.books import Book
from tests.planted import (
    DAY_SECONDS,
    ENERGY,
    HOURS,
    OUTPUT,
    Series,
    board,
    plant,
    pod,
    rising,
    vllm,
)

RUNNING = "vllm:num_requests_running"
NOON = 12 * HOURS


def powered(name: str, watts: float = 250, namespace: str = "llm") -> Series:
    """A board that a pod holds all day."""
    uuid, node = f"GPU-{namespace}-{name}", f"n-{namespace}-{name}"
    return (ENERGY, board(uuid, node, **pod(name, namespace)), rising(1000 * watts))


# --- 8: a model belongs to an interval --------------------------------------------------------------------------------


def models() -> list[Series]:
    """A pod that changes its model at noon, one with a LoRA, one whose model is named in two ways."""
    return [
        powered("swap-0"),
        (OUTPUT, vllm("swap-0", "alpha"), rising(2, 0, NOON)),
        (OUTPUT, vllm("swap-0", "beta"), rising(0.5, NOON, DAY_SECONDS, start=0)),
        powered("lora-0"),
        (OUTPUT, vllm("lora-0", "base"), rising(3)),
        (OUTPUT, vllm("lora-0", "base-lora"), rising(1)),
        powered("one-0"),
        (OUTPUT, vllm("one-0", "org/one"), rising(2, 0, NOON)),
        (OUTPUT, vllm("one-0", "one"), rising(2, NOON, DAY_SECONDS, start=0)),
    ]


MODELS = [{"name": "one", "aliases": ["org/one"]}]
HOUR = "date_diff('hour', date_trunc('day', interval_start_at), interval_start_at)"


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    planted = plant(tmp_path_factory.mktemp("engines"), [*models()], models=MODELS)
    planted.run()
    return planted


def test_a_pod_that_changes_its_model_at_noon_has_the_tokens_of_both(book: Book) -> None:
    # 10:00-11:00 at 2 tokens a second, 13:00-14:00 at 0.5.
    rows = book.query(
        f"select {HOUR} as hour, model, deployment, sum(tokens)::double from marts.token_ledger"
        " where engine = 'llm/swap-0' and hour in (10, 13) group by all order by 1"
    )
    assert rows == [(10, "alpha", "llm/alpha", 7_200), (13, "beta", "llm/beta", 1_800)]
    assert book.query(
        "select model, output_tokens::double from marts.model_hourly where hour_start_at::varchar like '%10:00:00%'"
        " and model in ('alpha', 'beta') and output_tokens is not null"
    ) == [("alpha", 7_200)]


def test_a_base_model_and_its_lora_have_rows_of_their_own(book: Book) -> None:
    rows = book.query(
        f"select model, count(*), sum(tokens)::double from marts.token_ledger where engine = 'llm/lora-0'"
        f" and {HOUR} = 10 group by all order by 1"
    )
    assert rows == [("base", 12, 10_800), ("base-lora", 12, 3_600)]


def test_a_name_and_its_alias_are_one_model(book: Book) -> None:
    rows = book.query(
        f"select {HOUR} as hour, model, count(*), sum(tokens)::double from marts.token_ledger"
        " where engine = 'llm/one-0' and hour in (10, 13) group by all order by 1"
    )
    assert rows == [(10, "one", 12, 7_200), (13, "one", 12, 7_200)]


def test_an_engine_of_two_models_balances_and_its_energy_is_not_repeated(book: Book) -> None:
    engines = "engine in ('llm/swap-0', 'llm/lora-0', 'llm/one-0')"
    assert book.query(
        f"select count(*), max(abs(difference_tokens)) from marts.token_reconciliation_daily where {engines}"
    ) == [(3, 0)]
    # 250 W from 10:00 to 11:00.
    assert book.query(
        f"select engine, sum(energy_joules)::double from marts.energy_ledger where {engines} and {HOUR} = 10"
        " group by 1 order by 1"
    ) == [(f"llm/{name}-0", 900_000) for name in ("lora", "one", "swap")]
    assert book.failed_tests() == set()
