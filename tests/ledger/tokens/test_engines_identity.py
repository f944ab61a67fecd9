"""Which process a token belongs to, which model it served, and when its activity is unknown.

All engines are in one planted fleet, each with a board of its own; what each should show is worked out by
hand. The same of devices is in `test_book_conditions`.
"""

from __future__ import annotations

import pytest

from tests.books import Book
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
    plant,
    pod,
    rising,
    steady,
    vllm,
    without,
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
    series = [*models(), *scrapes(), *silences()]
    planted = plant(tmp_path_factory.mktemp("engines"), series, days=2, models=MODELS, cost_rates=RATES)
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
        f" and date = '{DAY}'"
    ) == [(3, 0)]
    # 250 W from 10:00 to 11:00.
    assert book.query(
        f"select engine, sum(energy_joules)::double from marts.energy_ledger where {engines} and {HOUR} = 10"
        f" and date = '{DAY}' group by 1 order by 1"
    ) == [(f"llm/{name}-0", 900_000) for name in ("lora", "one", "swap")]
    # The page of dead-0 ends at 14:00, and its pod holds a board of 250 W on until midnight.
    assert book.failed_tests() == {"engines_are_seen_to_their_end"}
    assert book.query("select distinct model from marts.model_daily where doubt_reasons like '%unseen_tokens%'") == [
        ("dead",)
    ]


# --- 9: one bad scrape ------------------------------------------------------------------------------------------------

BAD = 11 * HOURS  # the scrape that reads 0
BOOT = moment(-30 * DAY_SECONDS)


def zeroed(samples: Samples, second: float) -> Samples:
    """The samples with a 0 at one moment."""
    return [(at, 0.0 if at == moment(second) else value) for at, value in samples]


def scrapes() -> list[Series]:
    """Engines that read 0 once at 11:00: their process goes on, restarted, or reports no start."""
    bad = zeroed(rising(4), BAD)
    began = [*steady(BOOT, 0, BAD - 60), *steady(moment(BAD - 5), BAD)]
    return [
        powered("glitch-0"),
        (OUTPUT, vllm("glitch-0", "glitch"), bad),
        (START_TIME, vllm("glitch-0", "glitch"), steady(BOOT)),
        powered("restart-0"),
        (OUTPUT, vllm("restart-0", "restart"), bad),
        (START_TIME, vllm("restart-0", "restart"), began),
        powered("mute-0"),
        (OUTPUT, vllm("mute-0", "mute"), bad),
        powered("midnight-0"),
        (OUTPUT, vllm("midnight-0", "midnight"), zeroed(rising(4, 0, 2 * DAY_SECONDS), DAY_SECONDS)),
        (START_TIME, vllm("midnight-0", "midnight"), steady(BOOT, 0, 2 * DAY_SECONDS)),
    ]


def hour_of(engine: str, hour: int) -> str:
    """The rows of an engine and an hour of the first day."""
    return f"engine = 'llm/{engine}' and date = '{DAY}' and {HOUR} = {hour}"


def tokens_of(book: Book, engine: str, hour: int) -> float:
    """Output tokens of an engine's hour of the first day."""
    rows = book.query(f"select sum(tokens)::double from marts.token_ledger where {hour_of(engine, hour)}")
    return rows[0][0]


@pytest.mark.parametrize("hour", [10, 11])
def test_a_counter_that_reads_0_once_while_its_process_goes_on_is_a_bad_scrape(book: Book, hour: int) -> None:
    assert tokens_of(book, "glitch-0", hour) == 4 * HOURS  # the step over the bad scrape is exact


def test_a_counter_that_reads_0_after_a_restart_counts_anew(book: Book) -> None:
    # At 11:01 the new process has written all that it shows: 1,000,000 and 4 a second since midnight.
    shown = 1e6 + 4 * (BAD + 60)
    assert tokens_of(book, "restart-0", 11) == shown + 4 * (HOURS - 60)


def test_what_jumps_back_to_where_it_was_did_not_restart(book: Book) -> None:
    # No process start is known, but what it shows a minute after the 0 is what it showed before.
    assert tokens_of(book, "mute-0", 11) == 4 * HOURS


def test_a_bad_scrape_at_midnight_is_left_out_too(book: Book) -> None:
    assert tokens_of(book, "midnight-0", 23) == 4 * HOURS
    assert book.query(
        "select sum(tokens)::double from marts.token_ledger where engine = 'llm/midnight-0'"
        f" and date > '{DAY}' and {HOUR} = 0"
    ) == [(4 * HOURS,)]


def test_the_balance_of_tokens_leaves_bad_scrapes_out_as_well(book: Book) -> None:
    rows = book.query(
        f"select engine, metered_tokens::double, difference_tokens::double from marts.token_reconciliation_daily"
        f" where date = '{DAY}' and engine in ('llm/glitch-0', 'llm/midnight-0') order by 1"
    )
    assert rows == [(f"llm/{name}-0", 4.0 * DAY_SECONDS, 0) for name in ("glitch", "midnight")]


# --- 10: silence is not idleness --------------------------------------------------------------------------------------

SILENT, BACK = 14 * HOURS, 16 * HOURS


def reset(samples: Samples, second: float) -> Samples:
    """The samples of a counter that began again at 0 at a moment and shows 500 less a scrape later."""
    base = next(value for at, value in samples if at >= moment(second)) - 500
    return [(at, value - base if at >= moment(second) else value) for at, value in samples]


def silences() -> list[Series]:
    """Engines whose scrapes are missing from 14:00 to 16:00, and those that look the same."""
    quiet = rising(0)
    return [
        powered("bridged-0"),
        (OUTPUT, vllm("bridged-0", "bridged"), without(rising(2), SILENT, BACK)),
        powered("still-0"),
        (OUTPUT, vllm("still-0", "still"), without(quiet, SILENT, BACK)),
        powered("reset-0"),
        (OUTPUT, vllm("reset-0", "reset"), without(reset(rising(2), BACK), SILENT, BACK)),
        powered("hidden-0"),  # restarted in the silence and has written more since than before
        (OUTPUT, vllm("hidden-0", "hidden"), without(rising(2), SILENT, BACK)),
        (START_TIME, vllm("hidden-0", "hidden"), [*steady(BOOT, 0, SILENT), *steady(moment(BACK - 600), BACK)]),
        powered("missed-0"),  # two scrapes
        (OUTPUT, vllm("missed-0", "missed"), without(rising(2), SILENT, SILENT + 180)),
        powered("idle-0"),
        (OUTPUT, vllm("idle-0", "idle"), quiet),
        powered("free-0"),
        (RUNNING, vllm("free-0", "free"), steady(0)),
        powered("busy-0"),
        (RUNNING, vllm("busy-0", "busy"), steady(3)),
        powered("dead-0"),
        (OUTPUT, vllm("dead-0", "dead"), rising(2, 0, SILENT)),
        powered("loading-0"),
        (OUTPUT, vllm("loading-0", "loading"), rising(2, BACK, DAY_SECONDS, start=600)),
        (START_TIME, vllm("loading-0", "loading"), steady(moment(SILENT), BACK, DAY_SECONDS)),
    ]


RATES = [{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 4.0, "valid_from": "2026-01-01", "source": "planted"}]


def states(book: Book, engine: str, hour: int = 14) -> list[tuple]:
    """state, is_matched, active and unknown seconds of what an engine's board drew in an hour."""
    return book.query(
        "select state, is_matched, sum(active_seconds)::double, sum(unknown_seconds)::double from marts.energy_ledger"
        f" where device_uuid = 'GPU-llm-{engine}' and date = '{DAY}' and {HOUR} = {hour} group by all order by all"
    )


def of_model(book: Book, model: str, hour: int = 14) -> tuple:
    """known_seconds, idle_time_ratio and idle_compute_cost_usd less that of energy of a model's hour."""
    return book.query(
        "select known_seconds::double, idle_time_ratio, round(idle_compute_cost_usd::double, 4), output_tokens::double"
        f" from marts.model_hourly where model = ? and date = '{DAY}'"
        f" and hour(hour_start_at at time zone 'UTC') = {hour}",
        [model],
    )[0]


def test_a_gap_that_counters_bridge_is_active_in_unknown_seconds(book: Book) -> None:
    assert states(book, "bridged-0") == [("active", True, 0, HOURS)]
    assert tokens_of(book, "bridged-0", 14) == 2 * HOURS
    known, ratio, cost, tokens = of_model(book, "bridged")
    assert (known, ratio, tokens) == (0, None, 2 * HOURS)
    assert cost < 0.1  # the floor's electricity: 93 W of 250, 0.1 USD/kWh; none of the 4 USD of capacity


def test_a_gap_over_which_a_counter_did_not_move_was_idle(book: Book) -> None:
    assert states(book, "still-0") == [("parked", True, 0, 0)]
    known, ratio, cost, tokens = of_model(book, "still")
    assert (known, ratio, tokens) == (HOURS, 1, 0)
    assert cost > 4


@pytest.mark.parametrize("engine", ["reset-0", "hidden-0"])
def test_a_restart_in_a_silence_leaves_it_unknown(book: Book, engine: str) -> None:
    assert states(book, engine) == [("unknown", False, 0, HOURS)]
    assert states(book, engine, 13) == [("active", True, HOURS, 0)]


def test_the_tokens_of_a_restart_in_a_silence_are_booked_and_not_matched(book: Book) -> None:
    rows = book.query(
        "select bool_or(is_matched), round(sum(tokens)::double, 3) from marts.token_ledger"
        f" where engine = 'llm/reset-0' and date = '{DAY}' and {HOUR} in (14, 15)"
    )
    assert rows == [(False, 500)]


def test_two_missed_scrapes_change_nothing(book: Book) -> None:
    assert states(book, "missed-0") == [("active", True, HOURS, 0)]
    assert of_model(book, "missed")[:2] == (HOURS, 0)


def test_an_engine_with_steady_scrapes_and_no_tokens_is_parked(book: Book) -> None:
    assert states(book, "idle-0") == [("parked", True, 0, 0)]
    assert of_model(book, "idle")[:2] == (HOURS, 1)


def test_requests_alone_separate_active_from_parked(book: Book) -> None:
    assert states(book, "free-0") == [("parked", False, 0, 0)]
    assert states(book, "busy-0") == [("active", False, HOURS, 0)]
    # 4 USD of capacity, and 0.25 kWh beside 0.2 × 0.4 kWh + 0.23 × 0.25 kWh of the host at 1.2 × 0.1 USD.
    assert of_model(book, "free") == (HOURS, 1, 4.0465, None)
    assert of_model(book, "busy")[3] is None


def test_an_engine_that_died_is_unknown(book: Book) -> None:
    assert states(book, "dead-0", 13) == [("active", True, HOURS, 0)]
    assert states(book, "dead-0", 15) == [("unknown", False, 0, HOURS)]


def test_an_engine_that_loads_is_unknown(book: Book) -> None:
    assert states(book, "loading-0", 15) == [("unknown", False, 0, HOURS)]
    assert states(book, "loading-0", 16) == [("active", True, HOURS, 0)]
    rows = book.query(f"select sum(tokens)::double from marts.token_ledger where {hour_of('loading-0', 15)}")
    assert rows == [(300,)]  # 600 from its start at 14:00
