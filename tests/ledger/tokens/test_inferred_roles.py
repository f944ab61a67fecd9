"""Prefill and decode pools that no fleet file names: a prompt counts once, and what only looks like two pools stays.

One fleet, a model per case, 10:00 to 14:00. Boards draw 300 W; each pool has one engine on one board. By hand, of the
first case: 2 boards × 300 W × 4 h = 8,640,000 J; a prompt of 2,000 tokens and an answer of 400 each second, over 14,400
seconds: 28,800,000 + 5,760,000 tokens; 8.64 / 34.56 = 0.25 J per token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.books import at
from tests.planted import ENERGY, INPUT, OUTPUT, Series, board, pod, rising, vllm
from tests.shapes import Seen, Shape, shape

START, NOON, END = 36_000, 43_200, 50_400
SECONDS = END - START
BY_SOURCE, REQUESTS = "vllm:prompt_tokens_by_source_total", "vllm:request_success_total"
MTOK = 1e6


def engine(
    name: str,
    model: str,
    prompt: float,
    output: float,
    *,
    computed: float | None = None,
    cached: float = 0,
    came: float = 0,
    requests: float | None = 1,
    is_by_source: bool = True,
    until: float = END,
    dark_from: float = END,
    **labels: str,
) -> Iterator[Series]:
    """An engine of vLLM, tokens per second; what is not computed came from the cache or by transfer."""
    seen = vllm(name, model, **labels)
    yield ENERGY, {**board(f"GPU-{name}", f"n-{name}"), **pod(name)}, rising(300_000, START, dark_from)
    yield INPUT, seen, held(prompt, until)
    yield OUTPUT, seen, held(output, until)
    if is_by_source:
        computed = prompt - cached - came if computed is None else computed
        for source, rate in (("local_compute", computed), ("local_cache_hit", cached), ("external_kv_transfer", came)):
            yield BY_SOURCE, {**seen, "source": source}, held(rate, until)
    if requests is not None:
        yield REQUESTS, {**seen, "finished_reason": "length"}, held(requests, until)


def held(rate: float, until: float) -> list[tuple[float, float]]:
    """A counter that rises until a moment and then stays."""
    rises = rising(rate, START, END)
    top = 1e6 + rate * (until - START)
    return [(at, min(value, top)) for at, value in rises]


def series() -> Iterator[Series]:
    # Names that show nothing: `a-0` writes one token per request, what `b-0` was given came by transfer.
    yield from engine("pools-a-0", "pools", 2_000, 1)
    yield from engine("pools-b-0", "pools", 2_000, 400, came=2_000)
    # The decoders compute short prompts themselves (500 tokens a second) and have 100 in their own cache.
    yield from engine("partly-a-0", "partly", 1_500, 1)
    yield from engine("partly-b-0", "partly", 2_000, 400, computed=500, came=1_500)
    # A twentieth of what came by transfer is a store's, not the prefill pool's.
    yield from engine("store-a-0", "store", 1_900, 1)
    yield from engine("store-b-0", "store", 2_000, 400, came=2_000)
    # No source counts requests: one token out for 2,000 in.
    yield from engine("silent-a-0", "silent", 2_000, 1, requests=None)
    yield from engine("silent-b-0", "silent", 2_000, 400, came=2_000, requests=None)
    # A pool that scores (one token per request) beside one that chats with a KV store: other prompts, each its own.
    yield from engine("scored-a-0", "scored", 700, 5, requests=5)
    yield from engine("scored-b-0", "scored", 2_000, 400, computed=500, came=1_500)
    # Two pools that do everything, one of them with a KV store.
    yield from engine("both-a-0", "both", 2_000, 400)
    yield from engine("both-b-0", "both", 2_000, 400, came=2_000)
    # A pool that scores each prompt before the other answers it, and computes it itself.
    yield from engine("guard-a-0", "guard", 2_000, 1)
    yield from engine("guard-b-0", "guard", 2_000, 400)
    # The scoring pool stops at 12:24: of four hours, two are equal, one is not and in one nothing is (2.4 of 4).
    yield from engine("torn-a-0", "torn", 2_000, 1, until=START + 2.4 * 3600)
    yield from engine("torn-b-0", "torn", 2_000, 400, came=2_000)
    # The decoder's meter is silent from noon; in `shadow` the prefill pool's is. In `apart` two engines do everything.
    yield from engine("dark-a-0", "dark", 2_000, 1)
    yield from engine("dark-b-0", "dark", 2_000, 400, came=2_000, dark_from=NOON)
    yield from engine("shadow-a-0", "shadow", 2_000, 1, dark_from=NOON)
    yield from engine("shadow-b-0", "shadow", 2_000, 400, came=2_000)
    yield from engine("apart-a-0", "apart", 2_000, 400)
    yield from engine("apart-b-0", "apart", 2_000, 100, dark_from=NOON)
    # As the second case, and by the fleet file both do everything.
    yield from engine("stated-a-0", "stated", 2_000, 1)
    yield from engine("stated-b-0", "stated", 2_000, 400, came=2_000)


INFERRED = shape(
    "inferred_roles",
    series,
    engines=[{"engine": "llm/stated-*", "role": "unified"}],
    run_windows={
        "inline": [{"window_id": "w", "model": "pools", "start_at": at("10-15 11:00"), "end_at": at("10-15 12:00")}]
    },
)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(INFERRED)


def of_models(book: Seen, columns: str) -> dict[str, tuple]:
    rows = book.query(
        f"select model, {columns} from marts.model_daily where model not like '\\_\\_%' escape '\\' group by 1"
    )
    return {model: tuple(None if one is None else float(one) for one in figures) for model, *figures in rows}


RATIO = "(sum(matched_joules) / sum(matched_total_tokens))::double"
INPUTS = "sum(input_tokens)::double, sum(output_tokens)::double"
JOULES = 2 * 300 * SECONDS


def test_a_prompt_that_was_handed_over_counts_once(book: Seen) -> None:
    held = of_models(book, f"{INPUTS}, {RATIO}")
    for model in ("pools", "silent"):
        assert held[model] == pytest.approx((28.8 * MTOK, 5.76 * MTOK, 0.25))


def test_what_a_decoder_computed_stays_its_input(book: Seen) -> None:
    # 1,500 a second in the prefill pool, and the 500 that the decoder computed: 2,000.
    assert of_models(book, INPUTS)["partly"] == pytest.approx((28.8 * MTOK, 5.76 * MTOK))


def test_what_came_from_a_store_stays_the_decoders_cached_input(book: Seen) -> None:
    rows = book.query(
        "select role, sum(input_tokens)::double, sum(cached_input_tokens)::double from marts.model_daily"
        " where model = 'store' group by 1 order by 1"
    )
    # Of 2,000 a second that came by transfer, the prefill pool computed 1,900.
    assert rows == [
        ("decode", pytest.approx(100 * SECONDS), pytest.approx(100 * SECONDS)),
        ("prefill", pytest.approx(1_900 * SECONDS), 0),
    ]


def test_pools_that_only_look_alike_keep_their_tokens(book: Seen) -> None:
    held = of_models(book, f"{INPUTS}, {RATIO}")
    for model, prompts, outputs in (
        ("scored", 2_700, 405),
        ("both", 4_000, 800),
        ("guard", 4_000, 401),
        ("stated", 4_000, 401),
    ):
        true = prompts * SECONDS, outputs * SECONDS, 600 / (prompts + outputs)
        assert held[model] == pytest.approx(true), model


def test_energy_of_a_pool_counts_only_while_the_other_pools_does(book: Seen) -> None:
    """Until noon both pools draw 600 W for 400 output tokens a second: 1.5 J each, not (300 + 2 × 300) / 400 = 2.25."""
    per_output_token = "(sum(matched_joules) / sum(matched_output_tokens))::double"
    held = of_models(book, f"{per_output_token}, {RATIO}, sum(matched_joules)::double, sum(energy_joules)::double")
    for model in ("dark", "shadow"):
        assert held[model] == pytest.approx((1.5, 0.25, 600 * (NOON - START), 300 * (NOON - START) * 3)), model
    reasons = book.query(
        "select distinct engine, unmatched_reason from marts.energy_ledger where model in ('dark', 'shadow')"
        " and interval_start_at >= '2026-10-15 12:05:00+00' order by 1"
    )
    assert reasons == [("llm/dark-a-0", "other_pool_is_not_whole"), ("llm/shadow-b-0", "other_pool_is_not_whole")]
    # Engines that hand nothing over are compared each by itself: 4 h with 300 W for 400, and 2 h with 300 W for 100.
    assert held["apart"][0] == pytest.approx((4 * 300 + 2 * 300) / (4 * 400 + 2 * 100))


def test_where_the_signs_conflict_the_ratio_of_input_is_unknown(book: Seen) -> None:
    assert of_models(book, RATIO)["torn"] == (None,)
    assert of_models(book, "(sum(matched_joules) / sum(matched_output_tokens))::double")["torn"][0] is not None
    assert book.failed_tests("roles_are_clear") == {"roles_are_clear"}
    assert book.failed_tests("every_series_is_accounted_for") == set()


def test_the_fleets_ratio_of_input_is_unknown_where_a_models_is(book: Seen) -> None:
    columns = "joules_per_total_token, matched_total_tokens, joules_per_output_token is null"
    assert book.query(f"select {columns} from marts.fleet_daily where meter_scope = 'board'") == [(None, None, False)]


def test_the_book_says_what_a_role_is_from(book: Seen) -> None:
    rows = book.query("select distinct model, engine, role, role_basis from marts.token_ledger order by 1, 2")
    held = {engine.removeprefix("llm/"): (role, basis) for _, engine, role, basis in rows}
    for model in ("pools", "partly", "store", "silent"):
        assert (held[f"{model}-a-0"], held[f"{model}-b-0"]) == (("prefill", "counters"), ("decode", "counters"))
    for model in ("scored", "both", "guard"):
        assert {held[f"{model}-a-0"], held[f"{model}-b-0"]} == {("unified", "none")}
    assert {held["torn-a-0"], held["torn-b-0"]} == {("unified", "conflicting")}
    assert {held["stated-a-0"], held["stated-b-0"]} == {("unified", "fleet_file")}


def test_a_window_counts_a_prompt_once_too(book: Seen) -> None:
    rows = book.query(
        "select total_tokens::double, joules_per_total_token from marts.run_windows where window_id = 'w'"
    )
    assert rows == [(pytest.approx(2_400 * 3600), pytest.approx(0.25))]


def test_energy_and_tokens_meet_under_one_role(book: Seen) -> None:
    rows = book.query(
        "select role, energy_joules::double, output_tokens::double from marts.model_daily"
        " where model = 'pools' order by 1"
    )
    assert rows == [("decode", 300 * SECONDS, pytest.approx(400 * SECONDS)), ("prefill", 300 * SECONDS, None)]


def test_the_balance_of_tokens_holds_of_inferred_roles(book: Seen) -> None:
    assert (
        book.query("select engine, token_class from marts.token_reconciliation_daily where difference_tokens <> 0")
        == []
    )
    assert book.broken() == {}
    assert book.query("select metric, labels from marts.series_daily where unaccounted_tokens > 0") == []
    reasons = book.query(
        "select distinct engine, metric, reason from marts.series_daily"
        " where engine = 'llm/pools-b-0' and outcome = 'unused' and quantity = 'tokens' order by 2"
    )
    assert {(metric, reason) for _, metric, reason in reasons} >= {(INPUT, "counted_at_the_other_role")}
