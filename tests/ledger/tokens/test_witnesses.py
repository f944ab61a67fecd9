"""A second account of a model's tokens: a gateway or a log that has more than its engines shows what these miss. One
that has less sees a part of the requests, but where it has their whole input.

Add here what another process than the engine counts. Keep out two counters of one page (`test_stretches`), and gateways
beside each other (`test_gateways_in_line`). Engines make 100 tokens a second for two hours, 720,000, where their page
does not stop after one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import pytest

from tests.planted import ENERGY, INPUT, OUTPUT, Samples, Series, board, moment, pod, rising, vllm
from tests.shapes import Seen, Shape, shape

HOUR, HOURS_2 = 3_600, 7_200
LITELLM = "litellm_output_tokens_metric_total"
LITELLM_INPUT = "litellm_input_tokens_metric_total"
WHOLE = rising(100, 0, HOURS_2)
HELD = [(at, min(value, WHOLE[HOUR // 60][1])) for at, value in WHOLE]


def engine(name: str, output: Samples, pod: str = "", prompts: Samples = ()) -> Iterable[Series]:
    yield INPUT, vllm(pod or name, name), prompts or output
    yield OUTPUT, vllm(pod or name, name), output


def gateway(model: str, per_second: float, place: str = "edge", metric: str = LITELLM) -> Series:
    labels = {"namespace": place, "pod": f"{model}-{place}", "instance": f"{model}-{place}:4000"}
    return metric, {"model": model, "requested_model": model, "team": "x", **labels}, rising(per_second, 0, HOURS_2)


def series() -> Iterable[Series]:
    yield from engine("wit-held", HELD)
    yield gateway("wit-held", 100)
    yield from engine("wit-logged", HELD)
    # A page that holds what it had from before the date on.
    yield from engine("wit-still", [(at, 500) for at, _ in WHOLE])
    yield ENERGY, board("GPU-wit-still", "n-wit-still", **pod("wit-still")), rising(250_000, 0, HOURS_2)
    yield gateway("wit-still", 100)
    # One of two replicas stops to count: the model lacks a quarter.
    yield from engine("wit-pair", HELD, pod="wit-pair-0")
    yield from engine("wit-pair", WHOLE, pod="wit-pair-1")
    yield gateway("wit-pair", 200)
    # Two gateways in line have the same requests.
    yield from engine("wit-line", WHOLE)
    yield gateway("wit-line", 100)
    yield gateway("wit-line", 100, place="mesh")
    # Some clients ask the engine itself; requests are counted when they end.
    yield from engine("wit-part", WHOLE)
    yield gateway("wit-part", 50)
    yield from engine("wit-late", WHOLE)
    yield gateway("wit-late", 104)
    yield from engine("wit-log-part", WHOLE)
    # All prompts passed the gateway, and it has half of the answers; of the second model half of both.
    yield from engine("wit-twice", rising(200, 0, HOURS_2), prompts=WHOLE)
    yield gateway("wit-twice", 99, metric=LITELLM_INPUT)
    yield gateway("wit-twice", 100)
    yield from engine("wit-half", rising(200, 0, HOURS_2), prompts=WHOLE)
    yield gateway("wit-half", 50, metric=LITELLM_INPUT)
    yield gateway("wit-half", 100)
    # Some answers were not waited for.
    yield from engine("wit-gone", rising(120, 0, HOURS_2), prompts=WHOLE)
    yield gateway("wit-gone", 100, metric=LITELLM_INPUT)
    yield gateway("wit-gone", 100)


def logged() -> str:
    """A request of 6,000 tokens in each minute, or every second one."""
    lines = []
    for model, step in (("wit-logged", 60), ("wit-log-part", 120)):
        lines += [
            {
                "id": f"{model}-{second}",
                "created": datetime.fromtimestamp(moment(second), UTC).isoformat(),
                "seconds": 30,
                "status": 200,
                "model": model,
                "usage": {"prompt_tokens": 6_000, "completion_tokens": 6_000},
            }
            for second in range(0, HOURS_2, step)
        ]
    return "".join(f"{json.dumps(line)}\n" for line in lines)


WITNESSES = shape(
    "token_witnesses",
    series,
    files={"wit.jsonl": logged()},
    requests=[
        {
            "name": "wit_edge",
            "kind": "access_log",
            "path": "wit.jsonl",
            "columns": {"duration_seconds": "seconds", "status": "status"},
        }
    ],
)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(WITNESSES)


@pytest.mark.parametrize(
    ("engine", "evidence"),
    [
        ("llm/wit-held", "gateway:edge/wit-held has 720000 of the model's output tokens, its engines have 360000"),
        ("llm/wit-logged", "wit_edge has 720000 of the model's output tokens, its engines have 360000"),
        ("llm/wit-still", "gateway:edge/wit-still has 720000 of the model's output tokens, its engines have 0"),
        ("llm/wit-pair-0", "gateway:edge/wit-pair has 1440000 of the model's output tokens, its engines have 1080000"),
        ("llm/wit-pair-1", "gateway:edge/wit-pair has 1440000 of the model's output tokens, its engines have 1080000"),
        ("llm/wit-twice", "gateway:edge/wit-twice has 720000 of the model's output tokens, its engines have 1440000"),
    ],
)
def test_an_engine_whose_requests_another_process_counts_otherwise_is_in_doubt(
    book: Seen, engine: str, evidence: str
) -> None:
    found = book.query("select distinct reason, figure, evidence from marts.doubts where entity = ?", [engine])
    assert found == [("token_counters_disagree", "tokens", evidence)]


def test_the_rows_of_these_models_are_marked_and_no_others(book: Seen) -> None:
    rows = book.query(
        "select model, sum(output_tokens)::int, max(doubt_reasons) from marts.model_daily"
        " where model like 'wit-%' group by model order by model"
    )
    assert rows == [
        ("wit-gone", 864_000, ""),
        ("wit-half", 1_440_000, ""),
        ("wit-held", 360_000, "token_counters_disagree"),
        ("wit-late", 720_000, ""),
        ("wit-line", 720_000, ""),
        ("wit-log-part", 720_000, ""),
        ("wit-logged", 360_000, "token_counters_disagree"),
        ("wit-pair", 1_080_000, "token_counters_disagree"),
        ("wit-part", 720_000, ""),
        ("wit-still", 0, "token_counters_disagree"),
        ("wit-twice", 1_440_000, "token_counters_disagree"),
    ]
