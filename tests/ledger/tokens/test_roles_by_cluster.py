"""Prefill and decode pools by what the cluster calls them: labels that a scraper copies, and names of pods.

One fleet, a model per case, 10:00 to 14:00. Each pair of pools is given 2,000 tokens a second and answers 400.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.planted import ENERGY, INPUT, OUTPUT, Series, board, pod, rising
from tests.shapes import Seen, Shape, shape

START, END = 36_000, 50_400
SECONDS = END - START
BY_SOURCE, REQUESTS = "vllm:prompt_tokens_by_source_total", "vllm:request_success_total"
SGLANG = {INPUT: "sglang:prompt_tokens_total", OUTPUT: "sglang:generation_tokens_total"}


def engine(
    name: str, model: str, prompt: float, output: float, *, computed: float | None = None, **labels: str
) -> Iterator[Series]:
    """A board and the engine on it, in tokens per second; with `computed`, the rest of the prompt came by transfer."""
    seen = {"model_name": model, "engine": "0", **pod(name), **labels}
    of_sglang = "engine_type" in labels
    yield ENERGY, {**board(f"GPU-{name}", f"n-{name}"), **pod(name)}, rising(300_000, START, END)
    for metric, rate in ((INPUT, prompt), (OUTPUT, output)):
        yield SGLANG[metric] if of_sglang else metric, seen, rising(rate, START, END)
    if computed is not None:
        for source, rate in (("local_compute", computed), ("external_kv_transfer", prompt - computed)):
            yield BY_SOURCE, {**seen, "source": source}, rising(rate, START, END)
    if not of_sglang:
        yield REQUESTS, {**seen, "finished_reason": "stop"}, rising(1, START, END)


def series() -> Iterator[Series]:
    # llm-d's label; a vLLM that does not report where its prompts came from.
    yield from engine("x-0", "llm-d", 2_000, 1, llm_d_ai_role="prefill")
    yield from engine("x-1", "llm-d", 2_000, 400, llm_d_ai_role="decode")
    # llm-d calls a pool that does everything `decode`, too.
    yield from engine("ms-decode-0", "alone", 2_000, 400, computed=2_000, llm_d_ai_role="decode")
    # A name that only sounds like it, without another pool.
    yield from engine("prefill-bench-0", "bench", 2_000, 400, computed=2_000)
    # Dynamo: the workers that decode are called backend.
    yield from engine("y-0", "dynamo", 2_000, 1, computed=2_000, dynamo_component="prefill")
    yield from engine("y-1", "dynamo", 2_000, 400, computed=0, dynamo_component="backend")
    # Where no prefill pool is, a backend does everything.
    yield from engine("z-0", "backend", 2_000, 400, computed=2_000, dynamo_component="backend")
    yield from engine("sg-0", "sglang", 2_000, 1, engine_type="prefill")
    yield from engine("sg-1", "sglang", 2_000, 400, engine_type="decode")
    # Grove's names of pods; an LWS's.
    yield from engine("chat-0-prefill-x7k2q", "grove", 2_000, 1, computed=2_000)
    yield from engine("chat-0-decode-b9m4z", "grove", 2_000, 400, computed=0)
    yield from engine("llama-prefill-0", "lws", 2_000, 1)
    yield from engine("llama-decode-0", "lws", 2_000, 400)
    # The pool that is called prefill answers like the other one, and each computes its own prompts.
    yield from engine("odd-prefill-0", "odd", 2_000, 400, computed=2_000)
    yield from engine("odd-decode-0", "odd", 2_000, 400, computed=2_000)
    # The decoder computed all that it was given: what the prefill pool computed never came.
    yield from engine("w-0", "lost", 2_000, 1, computed=2_000, llm_d_ai_role="prefill")
    yield from engine("w-1", "lost", 2_000, 400, computed=2_000, llm_d_ai_role="decode")


NAMED = shape("named_roles", series)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(NAMED)


def roles(book: Seen) -> dict[str, tuple[str, str]]:
    rows = book.query("select distinct engine, role, role_basis from marts.token_ledger")
    return {engine.removeprefix("llm/"): (role, basis) for engine, role, basis in rows}


def figures(book: Seen) -> dict[str, tuple]:
    rows = book.query(
        "select model, sum(input_tokens)::double, sum(output_tokens)::double,"
        " (sum(matched_joules) / sum(matched_total_tokens))::double from marts.model_daily group by 1"
    )
    return {model: tuple(of) for model, *of in rows}


def test_what_the_cluster_calls_its_pools_is_their_role(book: Seen) -> None:
    held = roles(book)
    assert (held["x-0"], held["x-1"]) == (("prefill", "names"), ("decode", "names"))
    assert (held["y-0"], held["y-1"]) == (("prefill", "labels"), ("decode", "names"))
    assert (held["sg-0"], held["sg-1"]) == (("prefill", "labels"), ("decode", "labels"))
    assert (held["chat-0-prefill-x7k2q"], held["chat-0-decode-b9m4z"]) == (("prefill", "names"), ("decode", "names"))
    assert (held["llama-prefill-0"], held["llama-decode-0"]) == (("prefill", "names"), ("decode", "names"))


def test_prompts_of_named_pools_count_once(book: Seen) -> None:
    # 2 × 300 W over 2,400 tokens a second is 0.25 J per token.
    true = pytest.approx((2_000 * SECONDS, 400 * SECONDS, 0.25))
    assert {model: figures(book)[model] for model in ("llm-d", "dynamo", "sglang", "grove", "lws")} == dict.fromkeys(
        ("llm-d", "dynamo", "sglang", "grove", "lws"), true
    )


def test_a_pool_without_its_other_half_does_everything(book: Seen) -> None:
    held, of = roles(book), figures(book)
    for name, model in (("ms-decode-0", "alone"), ("prefill-bench-0", "bench"), ("z-0", "backend")):
        assert held[name] == ("unified", "none")
        assert of[model] == pytest.approx((2_000 * SECONDS, 400 * SECONDS, 0.125))


def test_names_that_the_counters_contradict_leave_the_ratio_unknown(book: Seen) -> None:
    held, of = roles(book), figures(book)
    for name, model in (("odd-prefill-0", "odd"), ("odd-decode-0", "odd"), ("w-0", "lost"), ("w-1", "lost")):
        assert held[name] == ("unified", "conflicting")
        assert of[model][2] is None
    assert of["odd"][1] == pytest.approx(800 * SECONDS)
    assert book.failed_tests("roles_are_clear") == {"roles_are_clear"}


def test_the_balance_of_tokens_holds_of_named_pools(book: Seen) -> None:
    assert book.broken() == {}
    assert book.query("select engine from marts.token_reconciliation_daily where difference_tokens <> 0") == []
    assert book.query("select metric from marts.series_daily where unaccounted_tokens > 0") == []
