"""Labels and samples that should be numbers and are not, beside healthy ones: what is booked, and what is listed.

Add here an odd label or value with its innocent twin. Keep out how a text is read (the unit tests of `stg_series`) and
lines that a collector refuses. Boards are A100s that draw 300 W; an odd engine or board has a model and a node of its
own, so that nothing of it is shared with the healthy ones.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.books import Book
from tests.planted import (
    DAY,
    DAY_SECONDS,
    ENERGY,
    INPUT,
    OUTPUT,
    START_TIME,
    WATTS,
    Samples,
    Series,
    board,
    moment,
    plant,
    pod,
    rising,
    steady,
    vllm,
    without,
)

SGLANG = "sglang:generation_tokens_total"
ACTIVITY, FB_USED, LIMIT = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT"
RUNNING, WAITING, CACHE = "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"
BUCKETS = "vllm:time_to_first_token_seconds_bucket"
NOON = DAY_SECONDS / 2
DAY_JOULES = 300 * DAY_SECONDS
BORN = moment(NOON - 600)  # when the processes of the start times began
SENTINEL, LARGEST, NONE = 9e18, 1e308, float("nan")


def at(second: float) -> datetime:
    """A moment of the day."""
    return datetime.fromtimestamp(moment(second), UTC)


def sglang(name: str, model: str, **labels: str) -> dict[str, str]:
    """What the SGLang of a pod reports."""
    return {"model_name": model, **pod(name), **labels}


def served(name: str, watts: float = 300) -> list[Series]:
    """A board of its own for an engine's pod."""
    return [(ENERGY, board(f"GPU-{name}", f"node-{name}", **pod(name)), rising(watts * 1e3))]


def changed(samples: Samples, values: dict[float, float]) -> Samples:
    """The samples with other values at these moments."""
    by_time = {moment(second): value for second, value in values.items()}
    return [(when, by_time.get(when, value)) for when, value in samples]


def raised(samples: Samples, second: float, amount: float) -> Samples:
    """The samples, higher by an amount from a moment on."""
    return [(when, value + (amount if when >= moment(second) else 0)) for when, value in samples]


def healthy() -> list[Series]:
    """What must not notice the others: a whole board, one of two MIG instances, ranks, a big engine, a long gap."""
    mig = {"UUID": "GPU-mig", "Hostname": "node-mig", "modelName": board("", "")["modelName"]}
    slices = [("3g.40gb", "1", "mig-a"), ("4g.40gb", "2", "mig-b")]
    return [
        *served("good-0"),
        *((metric, vllm("good-0", "good"), rising(10)) for metric in (INPUT, OUTPUT)),
        (START_TIME, vllm("good-0", "good"), steady(moment(-DAY_SECONDS))),
        (RUNNING, vllm("good-0", "good"), steady(3)),
        *served("ranks-0"),
        *((SGLANG, sglang("ranks-0", "ranks", tp_rank=rank), rising(2)) for rank in "01"),
        *(
            (metric, {**mig, "GPU_I_ID": instance, "GPU_I_PROFILE": profile, **pod(name)}, samples)
            for profile, instance, name in slices
            for metric, samples in ((ENERGY, rising(300e3)), (ACTIVITY, steady(1)))
        ),
        *((OUTPUT, vllm(name, name), rising(1)) for _, _, name in slices),
        # 1.9 million tokens a second, and 10 hours of silence in which 36 billion moved.
        *served("big-0"),
        (OUTPUT, vllm("big-0", "big"), rising(1.9e6)),
        *served("silent-0"),
        (OUTPUT, vllm("silent-0", "silent"), without(rising(1e6), 3_600, 39_600)),
        # A process that began at noon: its first sample counts from zero.
        *served("born-0"),
        (OUTPUT, vllm("born-0", "born"), rising(5, NOON - 540, DAY_SECONDS, start=300)),
        (START_TIME, vllm("born-0", "born"), steady(BORN, NOON - 540)),
    ]


def odd() -> list[Series]:
    return [*odd_profiles(), *odd_ranks(), *odd_starts(), *odd_counters(), *odd_gauges(), *odd_buckets()]


def odd_profiles() -> list[Series]:
    def sliced(uuid: str, *profiles: str) -> list[Series]:
        labels = board(uuid, f"node-{uuid}")
        return [
            (metric, {**labels, "GPU_I_ID": str(number), "GPU_I_PROFILE": profile, **pod(f"{uuid}-{number}")}, samples)
            for number, profile in enumerate(profiles, start=1)
            for metric, samples in ((ENERGY, rising(300e3)), (ACTIVITY, steady(1)))
        ] + [
            (OUTPUT, vllm(f"{uuid}-{number}", f"{uuid}-{number}"), rising(1)) for number in range(1, len(profiles) + 1)
        ]

    return [*sliced("GPU-ci", "1c.3g.40gb", "2c.3g.40gb"), *sliced("GPU-na", "N/A", "3g.40gb")]


def odd_ranks() -> list[Series]:
    def ranked(name: str, label: str, *ranks: str) -> list[Series]:
        return [
            *served(f"{name}-0"),
            *((SGLANG, sglang(f"{name}-0", name, **{label: rank}), rising(1)) for rank in ranks),
        ]

    return [
        *ranked("tp", "tp_rank", "tp0", "tp1", "tp2", "tp3"),
        *ranked("pp", "pp_rank", "stage1", "stage0"),
        *ranked("words", "tp_rank", "main", "draft"),
        *ranked("mixed", "tp_rank", "1", "0x1F", "0"),
        *ranked("data", "dp_rank", "left", "right"),
        *ranked("long", "tp_rank", "x" * 10_000),
    ]


def odd_starts() -> list[Series]:
    starts = {"seconds": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}
    odd = {"old": 5.0, "future": moment(3 * DAY_SECONDS), "none": NONE, "huge": 1e300, "sentinel": SENTINEL}
    values = {name: BORN * factor for name, factor in starts.items()} | odd
    return [
        series
        for name, value in values.items()
        for series in (
            *served(f"start-{name}-0"),
            (OUTPUT, vllm(f"start-{name}-0", f"start-{name}"), rising(5, NOON - 540, DAY_SECONDS, start=300)),
            (START_TIME, vllm(f"start-{name}-0", f"start-{name}"), steady(value, NOON - 540)),
        )
    ]


def odd_counters() -> list[Series]:
    def counted(name: str, samples: Samples) -> list[Series]:
        return [*served(f"{name}-0"), (OUTPUT, vllm(f"{name}-0", name), samples)]

    return [
        # From 11:59 to 12:00 it rises by 9e18, and goes on from there; and by 121 million, a little too much.
        *counted("leap", raised(rising(10), NOON, SENTINEL)),
        *counted("steep", raised(rising(10), NOON, 121e6)),
        # One bad sample each.
        *counted("spike", changed(rising(10), {NOON: 1e12})),
        *counted("broken", changed(rising(10), {NOON: NONE, NOON + 600: LARGEST, NOON + 1_200: -5.0})),
        # Never anything but a sentinel.
        *counted("constant", steady(SENTINEL)),
    ]


def odd_gauges() -> list[Series]:
    odd = {600: SENTINEL, 1_200: LARGEST, 1_800: NONE, 2_400: -1.0, 3_000: float("inf")}
    labels, engine = board("GPU-gauge", "node-gauge", **pod("gauge-0")), vllm("gauge-0", "gauge")
    return [
        (ENERGY, labels, changed(rising(300e3), odd)),
        (WATTS, labels, changed(steady(300), odd)),
        *((metric, labels, steady(SENTINEL)) for metric in (LIMIT, FB_USED, ACTIVITY, "DCGM_FI_DEV_GPU_UTIL")),
        (OUTPUT, engine, rising(10)),
        *((metric, engine, steady(SENTINEL)) for metric in (RUNNING, WAITING, CACHE, "vllm:num_preemptions_total")),
    ]


def odd_buckets() -> list[Series]:
    bounds = {"0.5": 0.5, "1.0": 0.75, "+Inf": 1, "fast": 0.1, "NaN": 0.2, "1_0": 0.9, "": 1}
    return [
        *served("buckets-0"),
        (OUTPUT, vllm("buckets-0", "buckets"), rising(10)),
        *((BUCKETS, vllm("buckets-0", "buckets", le=le), rising(rate, start=0)) for le, rate in bounds.items()),
    ]


GOALS = [{"name": name, "slo": {"ttft_seconds": 1.0}} for name in ("buckets", "good")]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Book:
    book = plant(tmp_path_factory.mktemp("alone"), healthy(), models=GOALS, marts=("energy_ledger", "token_ledger"))
    book.run()
    return book


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    book = plant(tmp_path_factory.mktemp("odd"), [*healthy(), *odd()], models=GOALS)
    book.run()
    return book


def test_healthy_rows_are_those_of_a_fleet_without_odd_ones(alone: Book, book: Book) -> None:
    for ledger in ("energy_ledger", "token_ledger"):
        rows = f"select * from marts.{ledger} order by all"
        expected = alone.query(rows)
        assert len(expected) > 2_000
        assert set(expected) <= set(book.query(rows))


def test_nothing_is_held_back(book: Book) -> None:
    assert book.broken() == {}


def tokens(book: Book) -> dict[str, float]:
    return dict(book.query("select model, sum(tokens)::double from marts.token_ledger group by 1"))


def test_ranks_repeat_the_same_tokens_however_they_are_written(book: Book) -> None:
    """A token a second on each series: once for ranks of one engine, twice for two data-parallel ones."""
    booked = tokens(book)
    expected = dict.fromkeys(("tp", "pp", "words", "mixed", "long"), DAY_SECONDS) | {"data": 2 * DAY_SECONDS}
    assert {model: booked[model] for model in expected} == expected


def test_the_rank_that_counts_is_the_least_number_or_text(book: Book) -> None:
    counted = book.query(
        "select engine, labels->>'tp_rank', labels->>'pp_rank' from marts.series_daily"
        " where metric = ? and outcome = 'booked' and engine in ('llm/tp-0', 'llm/pp-0', 'llm/words-0', 'llm/mixed-0')"
        " order by 1",
        [SGLANG],
    )
    assert counted == [
        ("llm/mixed-0", "0", None),
        ("llm/pp-0", None, "stage0"),
        ("llm/tp-0", "tp0", None),
        ("llm/words-0", "draft", None),
    ]


def test_a_compute_instance_is_weighed_by_its_own_slices(book: Book) -> None:
    """A sixth and a third of the board, by memory, have as much of its 93 W without work; the rest of the 300 W goes to
    one slice and two. Where a profile is unknown, half each."""
    rows = "select model, sum(energy_joules)::double from marts.energy_ledger where model like 'GPU-%' group by 1"
    thirds = [(93 * part + 207 * work) * DAY_SECONDS for part, work in ((1 / 6, 1 / 3), (1 / 3, 2 / 3))]
    halves = [DAY_JOULES / 2] * 2
    assert dict(book.query(rows)) == pytest.approx(
        dict(zip(("GPU-ci-1", "GPU-ci-2", "GPU-na-1", "GPU-na-2"), thirds + halves, strict=True))
    )


def test_a_process_start_is_known_in_every_unit_of_time(book: Book) -> None:
    """5 tokens a second since 11:51, and the 300 before the first sample where the process is known to have started."""
    booked, since_first = tokens(book), 5 * (DAY_SECONDS - NOON + 540)
    known = {f"start-{unit}": since_first + 300 for unit in ("seconds", "ms", "us", "ns")}
    unknown = {f"start-{name}": since_first for name in ("old", "future", "none", "huge", "sentinel")}
    assert {model: booked[model] for model in (*known, *unknown)} == known | unknown


def test_what_no_engine_can_count_is_refused(book: Book) -> None:
    """10 tokens a second; without the minute of the step, and with it where the sample was bad and not the counter."""
    booked, day = tokens(book), 10 * DAY_SECONDS
    assert booked["steep"] == day - 600
    # A counter of 9e18 is a multiple of 1,024.
    assert booked["leap"] == pytest.approx(day - 600, abs=1_024)
    assert (booked["spike"], booked["broken"], booked["constant"]) == (day, day, 0)


def test_what_a_big_engine_counts_is_booked(book: Book) -> None:
    booked = tokens(book)
    assert (booked["big"], booked["silent"]) == (1.9e6 * DAY_SECONDS, 1e6 * DAY_SECONDS)


def test_refused_steps_are_rejected_samples_of_the_balance(book: Book) -> None:
    rejected = book.query(
        "select engine, rejected_samples from marts.token_reconciliation_daily"
        " where rejected_samples > 0 and token_class = 'output' and date = ? order by 1",
        [DAY],
    )
    assert rejected == [("llm/broken-0", 3), ("llm/leap-0", 1), ("llm/spike-0", 1), ("llm/steep-0", 1)]


def test_what_is_not_readable_is_listed(book: Book) -> None:
    found = book.query(
        "select series.engine, odd.label, left(odd.value, 25), odd.outcome, count(*)"
        " from marts.unreadable_values as odd join staging.stg_series as series using (series_id)"
        " where odd.value is not null and series.stream = 'tokens' group by all order by all"
    )
    nanoseconds = f"{round(BORN)}000000000"
    assert found == [
        ("llm/buckets-0", "le", "1_0", "unknown", 1),
        ("llm/buckets-0", "le", "NaN", "unknown", 1),
        ("llm/buckets-0", "le", "fast", "unknown", 1),
        ("llm/leap-0", None, "9000000000001431552", "refused", 1),
        ("llm/long-0", "tp_rank", "x" * 25, "unknown", 1),
        ("llm/pp-0", "pp_rank", "stage0", "converted", 1),
        ("llm/spike-0", None, "1000000000000", "refused", 1),
        ("llm/start-future-0", None, str(round(moment(3 * DAY_SECONDS))), "unknown", 1),
        ("llm/start-ms-0", None, f"{round(BORN)}000", "converted", 1),
        ("llm/start-ns-0", None, nanoseconds, "converted", 1),
        ("llm/start-old-0", None, "5", "unknown", 1),
        ("llm/start-sentinel-0", None, str(int(SENTINEL)), "unknown", 1),
        ("llm/start-us-0", None, f"{round(BORN)}000000", "converted", 1),
        ("llm/steep-0", None, "122432000", "refused", 1),
        ("llm/tp-0", "tp_rank", "tp0", "converted", 1),
        ("llm/words-0", "tp_rank", "draft", "unknown", 1),
    ]
    redundant = "select label, value, samples from marts.unreadable_values where outcome = 'redundant' order by value"
    assert book.query(redundant) == [("tp_rank", "0x1F", 1_440), ("tp_rank", "main", 1_440)]
    assert book.query("select max(length(value)) from marts.unreadable_values") == [(120,)]


def test_a_sentinel_of_a_gauge_is_no_energy(book: Book) -> None:
    """300 W all day; of the minutes of an odd sample only what the samples around it show."""
    ((joules, watts),) = book.query(
        "select sum(energy_joules)::double, max(energy_joules::double / nullif(covered_seconds::double, 0))"
        " from marts.energy_ledger where device_uuid = 'GPU-gauge'"
    )
    assert joules == pytest.approx(DAY_JOULES, rel=0.005)
    assert watts == pytest.approx(300)
    assert book.query("select power_limit_watts_max from marts.power_limits_daily where deployment = 'gauge'") == []
    most = "select max(running_requests_max), max(kv_cache_usage_ratio_max) from marts.pressure_hourly"
    assert book.query(f"{most} where model = 'gauge'") == [(None, None)]


def test_a_bucket_without_a_bound_is_not_used(book: Book) -> None:
    """Three of four requests were answered within the second."""
    rows = book.query(
        "select sum(good_requests_low)::double, sum(requests)::double from marts.goodput_hourly where model = 'buckets'"
    )
    assert rows == [(0.75 * DAY_SECONDS, DAY_SECONDS)]


def test_the_warning_names_label_value_and_remedy(book: Book) -> None:
    assert book.failed_tests("labels_and_samples_are_readable") == {"labels_and_samples_are_readable"}
