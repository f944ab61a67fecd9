"""Goodput and capacity, from one day's boards, engines' pages and request logs to what was served within the SLO.

Every engine has a board of its own with a steady power, and reports each minute what it counted; every figure that is
expected follows by hand from the requests that it was given, or from a real vLLM's page.
"""

from __future__ import annotations

import json
import random
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from tests.books import Book, files_source, record, validation_data

NEEDED_BY = {"book": ("validation-data",)}

DAY = date(2026, 10, 15)
MIDNIGHT = datetime(2026, 10, 15, tzinfo=UTC)
WATTS = 300
HOUR_JOULES = WATTS * 3600
TTFT_BOUNDS, TPOT_BOUNDS = (0.5, 1.0, 2.0), (0.05, 0.1, 0.2)
INFINITE = float("inf")
PREFIX = "vllm:"

Rows = Iterator[tuple[str, dict[str, str], datetime, float]]


@dataclass(frozen=True)
class Asked:
    """One request: the second of the day at which it began, seconds to the first token and per token after it."""

    at: float
    ttft: float = 0.5
    tpot: float = 0.05
    tokens: int = 101
    is_ok: bool = True
    is_streamed: bool = True

    @property
    def seconds(self) -> float:
        return self.ttft + self.tpot * (self.tokens - 1)


def pod(engine: str) -> dict[str, str]:
    return {"namespace": "llm", "pod": engine, "container": "engine"}


def minutes() -> list[int]:
    return list(range(0, 86_400, 60))


def board(engine: str, activity: float | None = None) -> Rows:
    """A board that the engine's pod holds all day."""
    labels = {"UUID": f"GPU-{engine}", "Hostname": "promised-1", "modelName": "NVIDIA A100-SXM4-80GB", **pod(engine)}
    for second in minutes()[::5]:
        at = MIDNIGHT + timedelta(seconds=second)
        yield "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", labels, at, 1e9 + WATTS * 1000.0 * second
        if activity is not None:
            yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, at, activity


def counted(
    engine: str, model: str, metric: str, events: Iterable[float], restart: float = INFINITE, **more: str
) -> Rows:
    """A counter of events at these seconds of the day, one each; after `restart` it counts from 0 again."""
    happened = sorted(events)
    for second in minutes():
        since = bisect_right(happened, restart) if second > restart else 0
        labels = {"model_name": model, "engine": "0", **pod(engine), **more}
        yield (
            PREFIX + metric,
            labels,
            MIDNIGHT + timedelta(seconds=second),
            float(bisect_right(happened, second) - since),
        )


def tokens_page(engine: str, model: str, asked: list[Asked], restart: float = INFINITE) -> Rows:
    ends = [one.at + one.seconds for one in asked if one.is_ok for _ in range(one.tokens)]
    yield from counted(engine, model, "generation_tokens_total", ends, restart)


def histograms_page(engine: str, model: str, asked: list[Asked], restart: float = INFINITE) -> Rows:
    """As vLLM has them: the first token is counted when it comes, a request's mean when it ends, 0 for one token."""
    for bound in (*TTFT_BOUNDS, INFINITE):
        events = [one.at + one.ttft for one in asked if one.is_ok and one.ttft <= bound]
        le = "+Inf" if bound == INFINITE else str(bound)
        yield from counted(engine, model, "time_to_first_token_seconds_bucket", events, restart, le=le)
    for bound in (*TPOT_BOUNDS, INFINITE):
        events = [one.at + one.seconds for one in asked if one.is_ok and (one.tpot <= bound or one.tokens == 1)]
        le = "+Inf" if bound == INFINITE else str(bound)
        yield from counted(engine, model, "request_time_per_output_token_seconds_bucket", events, restart, le=le)


def real_page(engine: str) -> Rows:
    """What a real vLLM 0.32 reported before and after 60 completions of 42 tokens each: at 10:00 and at 10:05."""
    wanted = re.compile(r"(vllm:(?:generation_tokens_total|\w+_token_seconds_bucket))\{([^}]*)\} (\S+)")
    for look, second in {"before": 36_000, "after": 36_300}.items():
        page = (validation_data() / "metrics_pages" / f"vllm_0_32_cpu_{look}.prom").read_text(encoding="utf-8")
        for metric, label_text, value in wanted.findall(page):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', label_text))
            yield metric, {**labels, **pod(engine)}, MIDNIGHT + timedelta(seconds=second), float(value)


def write_log(path: Path, model: str, asked: list[Asked]) -> None:
    with path.open("a", encoding="utf-8") as file:
        for number, one in enumerate(asked):
            started_at = MIDNIGHT + timedelta(seconds=one.at)
            record = {
                "id": f"{model}-{number}",
                "created": started_at.isoformat(),
                "seconds": one.seconds,
                "ttft": one.ttft if one.is_streamed else None,
                "status": 200 if one.is_ok else 503,
                "model": model,
                "usage": {"prompt_tokens": 7, "completion_tokens": one.tokens} if one.is_ok else None,
            }
            file.write(json.dumps(record) + "\n")


def book_of(folder: Path, rows: Rows, models: list[dict[str, object]], *logs: str) -> Book:
    """The day, landed and booked."""
    fleet = {
        "fleet": "promised",
        "period": {"start": DAY, "end": DAY + timedelta(days=1)},
        "sites": [{"name": "west", "zone": "unknown", "pue": 1.2}],
        **entries(folder, rows, models, *logs),
    }
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(fleet, sort_keys=False), encoding="utf-8")
    made = Book.of(path, folder / "data")
    made.run()
    return made


def entries(folder: Path, rows: Rows, models: list[dict[str, object]], *logs: str) -> dict[str, Any]:
    """The keys of a fleet file that name these samples, models and logs; the samples are written into `folder`."""
    held = list(rows)
    table = pa.table(
        {
            "metric": [metric for metric, *_ in held],
            "labels": [json.dumps(labels, sort_keys=True) for _, labels, *_ in held],
            "observed_at": pa.array([at for *_, at, _ in held], pa.timestamp("us", "UTC")),
            "value": [value for *_, value in held],
        }
    )
    record(table, folder / "recorded" / "promised")
    columns = {"duration_seconds": "seconds", "ttft_seconds": "ttft", "status": "status"}
    return {
        "sources": [files_source("promised", "recorded/promised/*.parquet")],
        "requests": [{"name": log, "kind": "access_log", "path": f"{log}.jsonl", "columns": columns} for log in logs],
        "models": models,
    }


# --- a day by hand ----------------------------------------------------------------------------------------------------

PROMISED = {"ttft_seconds": 1, "tpot_seconds": 0.1}
TEN = 10 * 3600
LOGGED = [
    *(Asked(TEN + 60 * n) for n in range(8)),
    Asked(TEN + 600, ttft=1.2),
    Asked(TEN + 660, tpot=0.2),
    Asked(TEN + 720, is_ok=False),
    Asked(TEN + 780, ttft=1.0, tpot=0.1, tokens=11),  # an SLO that is just kept is kept
    # Not streamed, without a first token: 0.8 s in all keep both, 3 s for 30 tokens may have, 10 s cannot.
    Asked(TEN + 840, ttft=0.35, tpot=0.05, tokens=10, is_streamed=False),
    Asked(TEN + 900, ttft=0.1, tpot=0.1, tokens=30, is_streamed=False),
    Asked(TEN + 960, ttft=7.1, tpot=0.1, tokens=30, is_streamed=False),
]
# 100 requests: 90 within 1 s to the first token and 95 within 2 s, the SLO between; 97 within 0.1 s per token. The
# engine restarts in the middle.
BINNED = [
    Asked(
        TEN + (600 if n < 40 else 2400),
        ttft=0.9 if n % 20 >= 2 else 1.9 if n % 20 == 1 else 2.1,
        tpot=0.05 if n >= 3 else 0.15,
        tokens=50,
    )
    for n in range(100)
]
# Two hours each at 1, 2, 4, 8 and 16 tok/s, 40 requests an hour; so many of them too late at each load.
LATE = {1: 0, 2: 0, 4: 1, 8: 4, 16: 0}
STEPPED = [
    Asked(3600 * (2 * step + hour) + 80 * n, ttft=1.5 if n < late else 0.5, tpot=0, tokens=90 * load)
    for step, (load, late) in enumerate(LATE.items())
    for hour in range(2)
    for n in range(40)
]
# Eight days of random traffic, each under SLOs on bounds of the buckets, between them or beyond the last.
CHANCE = random.Random(20261015)
TWINS = {
    (ttft_slo, tpot_slo): [
        Asked(
            3600 * hour + CHANCE.randrange(2_900),
            ttft=CHANCE.choice([0.3, 0.5, 0.8, 1.0, 1.4, 2.0, 3.0]),
            tpot=CHANCE.choice([0.01, 0.05, 0.08, 0.1, 0.15, 0.2, 0.4]),
            tokens=CHANCE.randint(1, 1_000),
        )
        for hour in range(24)
        for _ in range(CHANCE.randint(0, 9))
    ]
    for ttft_slo in (1, 1.5, 0.2, 5)
    for tpot_slo in (0.1, 0.12)
}


def stepped_tokens() -> Rows:
    labels = {"model_name": "stepped", "engine": "0", **pod("stepped")}
    moved = 0.0
    for second in minutes():
        yield PREFIX + "generation_tokens_total", labels, MIDNIGHT + timedelta(seconds=second), moved
        moved += 60 * (2 ** (second // 7200) if second < 36_000 else 0)


def goodput_book(folder: Path) -> Book:
    """All of these engines and logs, landed and booked in a folder of its own."""
    return book_of(folder, *goodput_day(folder))


def goodput_day(folder: Path) -> tuple[Rows, list[dict[str, object]], str, str]:
    """All of these engines' samples and models, and the names of their logs, which are written into `folder`."""
    write_log(folder / "edge.jsonl", "logged", LOGGED)
    write_log(folder / "edge.jsonl", "stepped", STEPPED)
    write_log(folder / "edge.jsonl", "sampled", LOGGED[:3])
    for number, asked in enumerate(TWINS.values()):
        write_log(folder / "edge.jsonl", f"exact-{number}", asked)
    # An engine's own log of some of the same requests.
    write_log(folder / "audit.jsonl", "logged", LOGGED[:5])

    def rows() -> Rows:
        for engine in ("logged", "binned", "tiny", "sampled", "unpromised", "stepped"):
            yield from board(engine, {"stepped": 0.96, "binned": 0.5}.get(engine))
        for model in ("logged", "sampled", "unpromised"):
            yield from tokens_page(model, model, LOGGED)
        yield from histograms_page("unpromised", "unpromised", LOGGED)
        yield from tokens_page("binned", "binned", BINNED, restart=TEN + 1800)
        yield from histograms_page("binned", "binned", BINNED, restart=TEN + 1800)
        yield from real_page("tiny")
        yield from stepped_tokens()
        for number, asked in enumerate(TWINS.values()):
            for name in (f"exact-{number}", f"bounds-{number}"):
                yield from board(name)
                yield from tokens_page(name, name, asked)
            yield from histograms_page(f"bounds-{number}", f"bounds-{number}", asked)

    models = [
        {"name": "logged", "slo": PROMISED},
        {"name": "sampled", "slo": PROMISED},
        {"name": "stepped", "slo": PROMISED},
        {"name": "binned", "slo": {"ttft_seconds": 1.5, "tpot_seconds": 0.1}},
        {"name": "tiny-llama", "slo": {"ttft_seconds": 0.015, "tpot_seconds": 0.05}, "context_tokens": 64},
        *(
            {"name": f"{kind}-{number}", "slo": {"ttft_seconds": ttft, "tpot_seconds": tpot}, "context_tokens": 1000}
            for number, (ttft, tpot) in enumerate(TWINS)
            for kind in ("exact", "bounds")
        ),
    ]
    return rows(), models, "edge", "audit"


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    return goodput_book(tmp_path_factory.mktemp("goodput"))


def at_ten(book: Book, model: str, *columns: str) -> tuple:
    (found,) = book.query(
        f"select {', '.join(columns)} from marts.goodput_hourly where model = ? and hour_start_at = ?",
        [model, MIDNIGHT + timedelta(hours=10)],
    )
    return tuple(float(value) if isinstance(value, int) or hasattr(value, "as_tuple") else value for value in found)


GOOD = ("requests", "good_requests_low", "good_requests_high", "good_output_tokens_low", "good_output_tokens_high")


def test_requests_are_assessed_one_by_one(book: Book) -> None:
    assert at_ten(book, "logged", "goodput_basis", "requests_source", "failed_requests", "logged_output_tokens") == (
        "requests",
        "edge",
        1,
        10 * 101 + 11 + 10 + 30 + 30,
    )
    assert at_ten(book, "logged", *GOOD) == (15, 10, 11, 8 * 101 + 11 + 10, 8 * 101 + 11 + 10 + 30)
    assert at_ten(
        book, "logged", "matched_joules", "joules_per_good_output_token_low", "joules_per_good_output_token_high"
    ) == (HOUR_JOULES, pytest.approx(HOUR_JOULES / 859), pytest.approx(HOUR_JOULES / 829))
    assert at_ten(book, "logged", "output_tokens_per_joule", "good_output_tokens_per_joule_low") == (
        pytest.approx(1091 / HOUR_JOULES),
        pytest.approx(829 / HOUR_JOULES),
    )


def test_histograms_give_bounds_over_a_restart(book: Book) -> None:
    """0.90 to 0.95 and 0.97: at least 0.87 keep both, at most 0.95; the 5 that do not hold a token each."""
    assert at_ten(book, "binned", "goodput_basis", "tpot_basis", *GOOD) == (
        *("histograms", "request_means"),
        *(100, 87, 95, 87, 5000 - 5),
    )
    assert at_ten(book, "binned", "output_tokens", "gpu_utilization_ratio") == (5000, 0.5)


def test_a_real_page_bounds_its_goodput(book: Book) -> None:
    """38 of 60 within 0.01 s and 51 within 0.02 s to the first token, the SLO between; all within 0.05 s per token.

    Of 2,520 tokens 22 requests have at most 22 × 64, and 9 requests at least 9. The good requests really had between
    38 × 42 and 51 × 42 tokens, which is within these bounds.
    """
    assert at_ten(book, "tiny-llama", "goodput_basis", *GOOD) == ("histograms", 60, 38, 51, 2520 - 22 * 64, 2520 - 9)


def test_what_is_unknown_is_null(book: Book) -> None:
    """No SLO; and a log of a part of what the engine counted."""
    for model in ("unpromised", "sampled"):
        assert at_ten(book, model, "goodput_basis", *GOOD) == (None,) * 6
        assert at_ten(book, model, "output_tokens", "output_tokens_per_joule") == (
            1091,
            pytest.approx(1091 / HOUR_JOULES),
        )


def test_capacity_is_the_highest_load_below_the_first_that_broke_the_slo(book: Book) -> None:
    """39 of 40 at 4 tok/s are enough for 0.95, 36 of 40 at 8 are not; all 40 at 16 were luck."""
    (found,) = book.query("select * exclude (as_of_date) from marts.slo_capacity where model = 'stepped'")
    assert found == (
        *("west", "llm/stepped", "stepped", "a100-sxm4-80gb", "board", "unified", "output"),
        *(4.0, "requests_within_slo", False, 8.0, 0.95, 2.0, 80, 0.975, None, True),
    )


def test_utilisation_does_not_determine_goodput(book: Book) -> None:
    """The same 0.96 over a day of 16 tok/s and of none."""
    found = book.query(
        "select hour(hour_start_at), gpu_utilization_ratio, output_tokens_per_joule from marts.goodput_hourly"
        " where model = 'stepped' and hour(hour_start_at) in (8, 12) order by 1"
    )
    assert found == [(8, 0.96, pytest.approx(16 / WATTS)), (12, 0.96, 0)]


def test_the_tests_of_the_marts_hold(book: Book) -> None:
    """But one: a process ends in the middle of traffic, after its last sample."""
    assert book.failed_tests() == {"engines_are_seen_to_their_end"}


def test_bounds_hold_what_is_exact(book: Book) -> None:
    """Each hour of random traffic is served twice: by an engine with a log, and by one that has histograms alone."""
    found = book.query(
        """
        select exact.goodput_basis, bounds.goodput_basis, exact.requests = bounds.requests,
            exact.good_requests_low = exact.good_requests_high,
            exact.good_requests_low between bounds.good_requests_low and bounds.good_requests_high,
            exact.good_output_tokens_low = exact.good_output_tokens_high,
            exact.good_output_tokens_low between bounds.good_output_tokens_low and bounds.good_output_tokens_high,
            bounds.good_requests_low < bounds.good_requests_high
        from marts.goodput_hourly as exact
        join marts.goodput_hourly as bounds
            on exact.hour_start_at = bounds.hour_start_at and bounds.model = replace(exact.model, 'exact', 'bounds')
        where exact.model like 'exact%' and exact.requests > 0
        """
    )
    assert len(found) > 20 * len(TWINS)
    assert {row[:-1] for row in found} == {("requests", "histograms", True, True, True, True, True)}
    assert {row[-1] for row in found} == {True, False}
