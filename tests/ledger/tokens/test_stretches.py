"""Engines whose tokens one source counts in the morning and another one later, and those that look alike.

A sample a minute from midnight to 23:59; each engine writes 10 tokens a second, unless its comment has another rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.planted import (
    DAY,
    ENERGY,
    HOURS,
    INPUT,
    OUTPUT,
    START_TIME,
    WATTS,
    Samples,
    Series,
    board,
    moment,
    pod,
    vllm,
)
from tests.shapes import Seen, Shape, shape

TGI = "tgi_request_generated_tokens_sum"
FINISHED, RUNNING = "sglang:generation_tokens_total", "sglang:realtime_tokens_total"
CACHED = "vllm:prompt_tokens_cached_total"
BY_SOURCE = "vllm:prompt_tokens_by_source_total"
LAST = 1439
NOON = 720
# From the first to the last sample of the date.
ALL = 10 * 60 * LAST


def count(second: float) -> float:
    return 10 * (second + 1_000)


def seen(
    first: int = 0,
    last: int = LAST,
    value: Callable[[float], float] = count,
    *,
    at: int = 0,
    without: Iterable[int] = (),
) -> Samples:
    """What a counter shows from one minute to another, `at` seconds past each."""
    hidden = set(without)
    seconds = [60 * minute + at for minute in range(first, last + 1) if minute not in hidden]
    return [(moment(second), value(second)) for second in seconds]


def sglang(name: str, **labels: str) -> dict[str, str]:
    return {"model_name": name, "engine_type": "unified", "tp_rank": "0", "pp_rank": "0", **pod(f"{name}-0"), **labels}


def output(name: str, samples: Samples) -> Series:
    return (OUTPUT, vllm(f"{name}-0", name), samples)


def renamed(name: str, finished: Samples, running: Samples) -> list[Series]:
    return [(FINISHED, sglang(name), finished), (RUNNING, sglang(name, mode="decode"), running)]


def prompts(name: str, first: int = 0) -> list[Series]:
    """20 tokens a second, of which 5 are cached."""
    labels = vllm(f"{name}-0", name)
    return [
        (INPUT, labels, seen(first, value=lambda s: 2 * count(s))),
        (BY_SOURCE, {**labels, "source": "local_compute"}, seen(first, value=lambda s: 1.5 * count(s))),
        (BY_SOURCE, {**labels, "source": "local_cache_hit"}, seen(first, value=lambda s: 0.5 * count(s))),
    ]


def watts(second: float) -> float:
    return 300 if second < 60 * NOON else 100


def millijoules(second: float) -> float:
    return 1_000 * (300 * min(second, 60 * NOON) + 100 * max(second - 60 * NOON, 0))


def powered(name: str, metric: str, samples: Samples) -> Series:
    return metric, board(f"GPU-st-{name}", f"n-st-{name}"), samples


def engines() -> dict[str, list[Series]]:
    vllm_start, upgrade = 60 * NOON + 30, 10 * HOURS + 30
    return {
        "stretches": [
            # TGI until 11:59; a vLLM that starts at 12:00:30.
            (TGI, {"model_id": "st-kind", **pod("st-kind-0")}, seen(0, NOON - 1)),
            ("tgi_request_input_length_sum", {"model_id": "st-kind", **pod("st-kind-0")}, seen(0, NOON - 1)),
            output("st-kind", seen(NOON + 1, value=lambda s: 10 * (s - vllm_start))),
            *prompts("st-kind", NOON + 1),
            (CACHED, vllm("st-kind-0", "st-kind"), seen(NOON + 1, value=lambda s: 0.5 * count(s))),
            (START_TIME, pod("st-kind-0"), seen(NOON + 1, value=lambda _: moment(vllm_start))),
            # A new SGLang from 10:00:30 on has both counters; the better one lacks each first token: 597 a minute.
            *renamed(
                "st-upgrade",
                seen(value=lambda s: count(s) if s < upgrade else 10 * (s - upgrade)),
                seen(601, value=lambda s: 298 + 597 * (s // 60 - 601)),
            ),
            (START_TIME, pod("st-upgrade-0"), seen(value=lambda s: moment(-1_000 if s < upgrade else upgrade))),
            # A new name, with one scrape that has both and with none.
            *renamed("st-overlap", seen(0, NOON), seen(NOON)),
            *renamed("st-apart", seen(0, NOON - 1), seen(NOON)),
            # The better one counts from 10:00 to 22:00.
            *renamed("st-middle", seen(), seen(600, 1320)),
            # Monitoring moves: for five minutes both servers scrape, not at the same second.
            output("st-moved", seen(0, NOON)),
            # The other server scrapes alone for five hours.
            output("st-silent", seen(without=range(600, 900))),
            # TGI, from 10:00:30 to 15:00 a vLLM, from 15:00:30 on TGI again.
            (
                TGI,
                {"model_id": "st-back", **pod("st-back-0")},
                seen(without=range(601, 901), value=lambda s: count(s) if s <= 36_000 else 10 * (s - 54_030)),
            ),
            output("st-back", seen(601, 900, lambda s: 10 * (s - 36_030))),
            # Twins: seen twice all day, by two servers or under two names.
            output("st-twice", seen()),
            output("st-metrics", seen()),
            *prompts("st-metrics"),
            # Silent for half an hour.
            output("st-hole", seen(without=range(600, 630))),
            # No request comes after 11:00; the better one is there from 12:30 on.
            *renamed("st-stopped", seen(value=lambda s: count(min(s, 11 * HOURS))), seen(750, value=lambda _: 0)),
            # Less than three scrapes are no stretch.
            *renamed("st-late", seen(), seen(3)),
            # Boards whose monitoring moves, whose gauge is read every five minutes from noon on, and has a tenth less.
            powered("moved", ENERGY, seen(0, NOON, millijoules)),
            *(powered(name, ENERGY, seen(value=millijoules)) for name in ("slower", "less")),
            powered("slower", WATTS, seen(value=watts, without=(m for m in range(NOON, LAST + 1) if m % 5))),
            powered("less", WATTS, seen(value=lambda s: 0.9 * watts(s))),
        ],
        "stretches_new": [
            powered("moved", ENERGY, seen(NOON - 5, value=millijoules, at=20)),
            output("st-moved", seen(NOON - 5, at=20)),
            output("st-twice", seen(at=20)),
            output("st-hole", seen(at=20)),
            output("st-silent", seen(at=20)),
        ],
    }


WINDOWS = [
    {
        "window_id": f"w-{name}",
        "engine": f"llm/st-{name}-0",
        "start_at": f"{DAY}T11:30:00Z",
        "end_at": f"{DAY}T12:30:00Z",
    }
    for name in ("moved", "twice")
]
STRETCHES = shape("stretches", engines, run_windows={"inline": WINDOWS})


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(STRETCHES)


def booked(book: Seen, name: str, token_class: str = "output") -> float | None:
    ((tokens,),) = book.query(
        "select sum(tokens)::double from marts.token_ledger where engine = ? and token_class = ?",
        [f"llm/st-{name}-0", token_class],
    )
    return tokens


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        # 719 minutes of TGI; from the start of vLLM to its last sample.
        ("kind", 10 * 60 * (NOON - 1) + 10 * (60 * LAST - 60 * NOON - 30)),
        # Until 10:00, the 300 that the old name shows of the new process at 10:01, and 838 minutes of the new name.
        ("upgrade", 10 * 60 * 600 + 300 + 597 * 838),
        ("overlap", ALL),
        # The step in which the name changed is in neither.
        ("apart", ALL - 10 * 60),
        ("middle", ALL),
        ("silent", ALL),
        # Without a known start each life counts from its first sample; the 300 that TGI then shows are spread over its
        # silence of 18,060 s, of which a minute is after vLLM.
        ("back", 10 * 36_000 + 10 * (54_000 - 36_060) + 10 * (60 * LAST - 54_060) + 0.996678),
        # To 20 s past 23:59.
        ("moved", ALL + 10 * 20),
    ],
)
def test_each_source_counts_for_its_stretch(book: Seen, name: str, tokens: float) -> None:
    assert booked(book, name) == tokens


@pytest.mark.parametrize(
    ("name", "source", "metric", "tokens"),
    [
        ("twice", "stretches", OUTPUT, ALL),
        ("metrics", "stretches", OUTPUT, ALL),
        ("hole", "stretches", OUTPUT, ALL),
        ("late", "stretches", RUNNING, ALL - 10 * 180),
    ],
)
def test_one_source_counts_all_day(book: Seen, name: str, source: str, metric: str, tokens: float) -> None:
    assert book.query(
        "select source, metric, booked_tokens::double from marts.token_reconciliation_daily"
        " where engine = ? and token_class = 'output'",
        [f"llm/st-{name}-0"],
    ) == [(source, metric, tokens)]


def test_a_class_that_one_source_does_not_count_is_unknown(book: Seen) -> None:
    """TGI does not count cached tokens: those of the afternoon are not those of the date."""
    days = book.query(
        "select model, input_tokens is null, cached_input_tokens::double, computed_input_tokens::double"
        " from marts.model_daily where model in ('st-kind', 'st-metrics') order by model"
    )
    assert book.query("select outcome, reason from marts.series_daily where metric = ?", [CACHED]) == [
        ("unused", "covers_a_part_of_the_date")
    ]
    assert days == [("st-kind", False, None, None), ("st-metrics", False, ALL / 2, ALL * 1.5)]


def test_the_balance_holds_and_no_half_checks_a_whole(book: Seen) -> None:
    assert book.query("select * from marts.token_reconciliation_daily where difference_tokens <> 0") == []
    assert book.query("select * from marts.token_reconciliation_daily where abs(cross_check_ratio) > 0.01") == []
    assert book.query("select * from marts.series_daily where unaccounted_tokens > 0") == []


def test_a_window_over_a_hand_over_counts_each_source_for_its_part(book: Seen) -> None:
    assert book.query(
        "select window_id, output_tokens from marts.run_windows where window_id in ('w-moved', 'w-twice')"
    ) == [
        ("w-moved", 10 * HOURS),
        ("w-twice", 10 * HOURS),
    ]


def test_the_end_of_a_process_that_another_kind_follows_is_unseen(book: Seen) -> None:
    """At most one interval after 11:59, half of it at 10 tokens a second of input and as many of output."""
    assert book.query(
        "select evidence, unbooked_tokens::double from marts.doubts"
        " where entity = 'llm/st-kind-0' and reason = 'unseen_tokens'"
    ) == [("1 restarts, 60 s unseen", 600)]


def test_two_meters_are_compared_over_the_same_time(book: Seen) -> None:
    boards = ("GPU-st-moved", "GPU-st-slower", "GPU-st-less")
    assert book.query(
        "select meter, round(booked_joules::double), round(cross_check_ratio, 3) from marts.reconciliation_daily"
        " where meter in ? order by meter",
        [boards],
    ) == [
        ("GPU-st-less", millijoules(60 * LAST) / 1_000, -0.1),
        # Of the minute over noon, 40 s at 300 W and 20 s at 100 W, a third is after noon.
        ("GPU-st-moved", millijoules(60 * LAST + 20) / 1_000 + 2_667, None),
        ("GPU-st-slower", millijoules(60 * LAST) / 1_000, None),
    ]
