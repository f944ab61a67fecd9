"""Tokens that fall between the last sample of a process and its end: counted restarts, seconds and an estimate.

Every engine moves 10 tokens a second while it lives and is sampled each minute.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.planted import (
    DAY,
    DAY_SECONDS,
    ENERGY,
    HOURS,
    OUTPUT,
    START_TIME,
    Samples,
    Series,
    board,
    moment,
    pod,
    rising,
    vllm,
)
from tests.shapes import Seen, Shape, shape

RATE = 10
CHECK = "engines_are_seen_to_their_end"
NOON = 12 * HOURS
HELD_UNTIL = {"end-silent": DAY_SECONDS, "end-gone": NOON, "end-leaving": NOON + HOURS / 2, "end-loading": DAY_SECONDS}


def lives(*spans: tuple[float, float], last: float = DAY_SECONDS) -> tuple[Samples, Samples]:
    """The token counter and the process start of an engine that lives in these spans, in seconds of the day."""
    tokens: Samples = []
    starts: Samples = []
    for start, end in spans:
        first = -(-int(start) // 60) * 60
        for second in range(first, int(min(end, last)) + 1, 60):
            tokens.append((moment(second), RATE * (second - start)))
            starts.append((moment(second), moment(start)))
    return tokens, starts


def engine(name: str, *spans: tuple[float, float], has_start: bool = True, last: float = DAY_SECONDS) -> list[Series]:
    """An engine that serves a model of its own name."""
    tokens, starts = lives(*spans, last=last)
    series: list[Series] = [(OUTPUT, vllm(f"{name}-0", name), tokens)]
    return [*series, (START_TIME, {"namespace": "llm", "pod": f"{name}-0"}, starts)] if has_start else series


def held(name: str, last: float = DAY_SECONDS) -> list[Series]:
    """A board at 300 W that the engine's pod holds until then, and that is free for the rest of the day."""
    labels = board(f"GPU-{name}", f"node-{name}")
    joules = rising(300)
    return [
        (ENERGY, {**labels, **pod(f"{name}-0")}, [sample for sample in joules if sample[0] <= moment(last)]),
        (ENERGY, labels, [sample for sample in joules if sample[0] > moment(last)]),
    ]


def engines() -> dict[str, list[Series]]:
    """Engines that crash all day, live for 20 minutes, restart once, live all day; and a source that ends at noon."""
    cluster = [
        # Four minutes: 210 s of life, its last sample 180 s after its start, then 30 s until it is there again.
        *engine("crashing", *((240.0 * n, 240.0 * n + 210) for n in range(361))),
        # From 01:00:30 to 01:20:30; its first and last samples are half a minute inside.
        *engine("brief", (3_630, 4_830)),
        *engine("blind", (3_630, 4_830), has_start=False),
        # It ends within a minute after noon and is back after 50 s.
        *engine("once", (-100, NOON + 20), (NOON + 50, 2 * DAY_SECONDS)),
        *engine("steady", (-100, 2 * DAY_SECONDS)),
        # Pages that end at noon: a pod goes on, one ends with its page, one holds its board for another half an hour.
        *(
            one
            for name in ("end-silent", "end-gone", "end-leaving")
            for one in engine(name, (-100, 2 * DAY_SECONDS), last=NOON)
        ),
        *(one for name, last in HELD_UNTIL.items() for one in held(name, last) if one[2]),
        # A pod that loads its model for two hours.
        *engine("end-loading", (2 * HOURS, 2 * DAY_SECONDS)),
    ]
    return {"unseen": cluster, "unseen_after_noon": engine("ending", (-100, 2 * DAY_SECONDS), last=NOON)}


UNSEEN = shape("unseen", engines)


@pytest.fixture(scope="module")
def book(shared_book: Callable[[Shape], Seen]) -> Seen:
    return shared_book(UNSEEN)


@pytest.mark.parametrize(
    ("model", "restarts", "unseen_seconds", "unseen_tokens"),
    [
        # 60 s between the last sample of a process and the start of the next one, 360 times; half of them were lived.
        ("crashing", 360, 360 * 60, 360 * 30 * RATE),
        # One end; where no process start is known, one beginning too.
        ("brief", 0, 60, 30 * RATE),
        ("blind", 0, 120, 60 * RATE),
        # Never by more than its unseen seconds.
        ("once", 1, 50, 25 * RATE),
        ("steady", 0, 0, 0),
        # Of the half day in which it holds its board nothing is seen.
        ("end-silent", 0, 60 + NOON, (60 + NOON) / 2 * RATE),
        ("end-gone", 0, 60, 30 * RATE),
        ("end-leaving", 0, 60, 30 * RATE),
        ("end-loading", 0, 0, 0),
        # Its source ended with it: nothing shows that the engine did.
        ("ending", 0, 0, 0),
    ],
)
def test_what_no_sample_shows_is_counted(
    book: Seen, model: str, restarts: int, unseen_seconds: int, unseen_tokens: float
) -> None:
    assert book.query(
        "select evidence, unbooked_tokens::double from marts.doubts"
        " where reason = 'unseen_tokens' and entity = ? and date = ?",
        [f"llm/{model}-0", DAY],
    ) == [(f"{restarts} restarts, {unseen_seconds} s unseen", unseen_tokens)] * (unseen_tokens > 0)


@pytest.mark.parametrize(("model", "moved"), [("crashing", 360 * 210), ("brief", 1_200), ("blind", 1_200)])
def test_what_is_booked_and_what_is_estimated_are_what_moved(book: Seen, model: str, moved: float) -> None:
    ((tokens,),) = book.query(
        "select (output_tokens + unbooked_tokens)::double from marts.model_daily where model = ?", [model]
    )
    assert tokens == moved * RATE


@pytest.mark.parametrize(
    ("model", "reasons", "ratio"),
    # 30 s of the 210 s of each life are not booked; 25 s once a day are less than a hundredth.
    [
        ("crashing", "unseen_tokens", 30 / 210),
        ("once", "", 25 / 86_375),
        ("steady", "", 0),
        ("end-silent", "unseen_tokens", (60 + NOON) / 2 / (NOON + (60 + NOON) / 2)),
        ("end-gone", "", 30 / (NOON + 30)),
        ("end-leaving", "", 30 / (NOON + 30)),
        ("end-loading", "", 0),
    ],
)
def test_a_row_is_marked_from_a_hundredth_on(book: Seen, model: str, reasons: str, ratio: float) -> None:
    ((found, found_ratio),) = book.query(
        "select doubt_reasons, doubted_tokens_ratio from marts.model_daily where model = ? and date = ?", [model, DAY]
    )
    assert (found, found_ratio) == (reasons, pytest.approx(ratio, rel=1e-3))


def test_models_that_lose_more_than_a_hundredth_warn(book: Seen) -> None:
    severity, rows = book.data_test(CHECK, "model, doubted_tokens_ratio")
    assert (severity, sorted(rows)) == (
        "warn",
        [("blind", 0.05), ("brief", 0.025), ("crashing", round(30 / 210, 3)), ("end-silent", 0.334)],
    )


def test_the_balance_of_tokens_holds(book: Seen) -> None:
    assert book.query("select * from marts.token_reconciliation_daily where difference_tokens <> 0") == []
