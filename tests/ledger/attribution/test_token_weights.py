"""What a token weighs where a board is shared: by its class, the requests at once and the model's size.

Each board draws 300 W. With 16 requests at once an input token takes 0.012 × 16^0.63 = 0.06883 of an output token's
joules, at the ends a quarter and four times that; 10 output and 900 input tokens a second then weigh 71.95, at the ends
11.55 (a cache had all input: a tenth) and 257.79; 90 and 90 weigh 96.19, at the ends 90.15 and 114.78.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.planted import DAY_SECONDS, ENERGY, INPUT, OUTPUT, Series, board, pod, rising, steady, vllm
from tests.shapes import Seen, Shape, shape

RUNNING = "vllm:num_requests_running"
SMALL, LARGE = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"


def shared(name: str, *pods: str) -> list[Series]:
    """A board whose series name all of these pods all the time."""
    labels = board(f"GPU-w-{name}", f"n-w-{name}")
    return [(ENERGY, {**labels, **pod(f"w-{of}")}, rising(300_000)) for of in pods]


def serves(of: str, model: str, *, output: float, input_: float = 0, running: float | None = None) -> list[Series]:
    labels = vllm(f"w-{of}", model)
    return [
        (OUTPUT, labels, rising(output)),
        (INPUT, labels, rising(input_)),
        *([(RUNNING, labels, steady(running))] if running is not None else []),
    ]


def series() -> list[Series]:
    return [
        # Long questions with short answers, beside a chat.
        *shared("mixed", "rag", "chat"),
        *serves("rag", "w-mixed", output=10, input_=900, running=16),
        *serves("chat", "w-mixed", output=90, input_=90, running=16),
        # The same of one engine's base model and its LoRA.
        *shared("adapted", "adapted"),
        *serves("adapted", "w-base", output=10, input_=900, running=16),
        *serves("adapted", "w-lora", output=90, input_=90),
        # 8 and 70.6 billion parameters.
        *shared("sizes", "small", "large"),
        *serves("small", SMALL, output=10, running=4),
        *serves("large", LARGE, output=10, running=4),
        # A token of one request alone takes four times one of sixteen.
        *shared("batches", "single", "batch"),
        *serves("single", "w-batches", output=10, running=1),
        *serves("batch", "w-batches", output=10, running=16),
        # Equal load is equal shares, whether or not the requests are counted.
        *shared("twins", "twin-1", "twin-2"),
        *(one for number in (1, 2) for one in serves(f"twin-{number}", "w-twin", output=10, input_=50, running=8)),
        *shared("silent", "silent-1", "silent-2"),
        *(one for number in (1, 2) for one in serves(f"silent-{number}", "w-silent", output=10)),
    ]


WEIGHED = shape("token_weights", series)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(WEIGHED)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # 71.95 and 96.19 of 168.14. One engine's tokens may weigh twice those of the other, so `rag` has from
        # 11.55 / (11.55 + 2 × 90.15) = 0.0602 of the board to 257.79 / (257.79 + 114.78 / 2) = 0.8179.
        ("mixed", [("w-chat", 171.632, 117.005, "low"), ("w-rag", 128.368, 117.005, "low")]),
        # As above, but both weigh alike: from 11.55 / 101.70 = 0.1136 to 257.79 / 372.57 = 0.6919.
        ("adapted", [("w-base", 128.368, 94.303, "low"), ("w-lora", 171.632, 94.303, "low")]),
        # 70.6 / (70.6 + 8.03) = 0.8979; 3.5 times either way: from 0.7153 to 0.9685.
        ("sizes", [(LARGE, 269.363, 54.785, "medium"), (SMALL, 30.637, 54.785, "low")]),
        # 1 / √1 against 1 / √16; twice either way: from 4 / (4 + 2) to 4 / (4 + 1 / 2).
        ("batches", [("w-batch", 60, 40, "low"), ("w-single", 240, 40, "medium")]),
        # Of equal weights 2 × 1 / (2 + 1) at most.
        ("twins", [("w-twin-1", 150, 50, "medium"), ("w-twin-2", 150, 50, "medium")]),
        # 10 × 1 / (10 + 1) at most.
        ("silent", [("w-silent-1", 150, 122.727, "low"), ("w-silent-2", 150, 122.727, "low")]),
    ],
)
def test_a_board_is_shared_by_what_tokens_weigh(book: Seen, name: str, expected: list[tuple]) -> None:
    by = "model" if name in ("adapted", "sizes") else "split_part(engine, '/', 2)"
    found = book.query(
        f"select {by}, sum(energy_joules)::double / {DAY_SECONDS}, sum(share_error_joules)::double / {DAY_SECONDS},"
        " any_value(attribution_confidence), count(distinct attribution_confidence) from marts.energy_ledger"
        " where meter = ? group by 1 order by 1",
        [f"GPU-w-{name}"],
    )
    assert [(who, confidence) for who, _, _, confidence, _ in found] == [(one[0], one[3]) for one in expected]
    assert [(watts, error, count) for _, watts, error, _, count in found] == [
        (pytest.approx(watts, abs=2e-3), pytest.approx(error, abs=2e-3), 1) for _, watts, error, _ in expected
    ]


def test_time_is_shared_by_what_tokens_take_of_it(book: Seen) -> None:
    # 10 + 0.051622 × 900 = 56.46 of it and 90 + 0.051622 × 90 = 94.65.
    assert book.query(
        "select engine, round(sum(gpu_seconds)::double / 864) from marts.energy_ledger where meter = 'GPU-w-mixed'"
        " group by 1 order by 1"
    ) == [("llm/w-chat", 63), ("llm/w-rag", 37)]


def test_the_interval_of_a_month_holds_both_ends_of_the_weights(book: Seen) -> None:
    # Joules per output token of the larger model: 269.363 / 10, and 5 % of the meters beside 54.785 / 10 of the share.
    ((value, low, high),) = book.query(
        "select value, value_low, value_high from marts.figure_intervals"
        " where figure = 'joules_per_output_token' and model = ? and site = 'token_weights' and meter_scope = 'board'",
        [LARGE],
    )
    assert value == pytest.approx(26.9363, abs=1e-3)
    assert low < 0.7153 * 30 < 0.9685 * 30 < high
    assert high - low < 2 * (5.4785 + 0.05 * 26.94)


def test_the_balance_holds(book: Seen) -> None:
    assert book.query("select * from marts.reconciliation_daily where difference_joules <> 0") == []
    assert book.broken() == {}
