"""Tokens of an engine over several device types, nodes or meter scopes, and what counts as energy with tokens.

Each case is an engine of its own on nodes of its own, and all are booked together. Every engine writes 10 output tokens
per second, so a joule per token is a tenth of its watts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.books import Book
from tests.planted import (
    DAY,
    DAY_SECONDS,
    ENERGY,
    HOURS,
    INPUT,
    OUTPUT,
    Samples,
    Series,
    board,
    plant,
    pod,
    rising,
    steady,
    vllm,
    without,
)

H100 = "NVIDIA H100 80GB HBM3"
UTIL, WALL = "DCGM_FI_DEV_GPU_UTIL", "ipmi_dcmi_power_consumption_watts"
NOON = 12 * HOURS
PER_SECOND = 10
MARTS = ("model_daily", "fleet_daily", "rack_usage_daily", "run_windows", "unmetered_devices", "held_back_dates")
RATES = [
    {"device_type": name, "usd_per_gpu_hour": usd, "valid_from": DAY, "source": "a contract"}
    for name, usd in (("a100-sxm4-80gb", 1.0), ("h100-sxm5-80gb", 3.0))
]


def powered(uuid: str, node: str, watts: float, of_pod: str, *, first: float = 0, last: float = DAY_SECONDS) -> Series:
    """A board that draws so many watts, by its counter."""
    return metered(uuid, node, of_pod, rising(1000 * watts, first, last))


def metered(uuid: str, node: str, of_pod: str, samples: Samples, **labels: str) -> Series:
    return ENERGY, {**board(f"GPU-{uuid}", node), **pod(of_pod), **labels}, samples


def serving(name: str, first: float = 0, last: float = DAY_SECONDS, **labels: str) -> list[Series]:
    """The counters of an engine that serves a model of its own name."""
    return [
        (metric, vllm(f"{name}-0", name, **labels), rising(per_second, first, last))
        for metric, per_second in ((OUTPUT, PER_SECOND), (INPUT, 3 * PER_SECOND))
    ]


def planted_series() -> list[Series]:
    late = 7 * 60  # the engine `ends` reports from noon for so many seconds
    h100 = {"modelName": H100}
    return [
        # One engine on two kinds of board.
        *serving("mixed"),
        powered("mixed-a", "n-mixed", 300, "mixed-0"),
        metered("mixed-h", "n-mixed", "mixed-0", rising(300_000), **h100),
        # Its neighbours: an engine on each of the two kinds.
        *serving("plain-a"),
        powered("plain-a", "n-plain", 200, "plain-a-0"),
        *serving("plain-h"),
        metered("plain-h", "n-plain", "plain-h-0", rising(400_000), **h100),
        # Boards on one node, only the wall meter of the other; the third node's type is not stated.
        *serving("scopes"),
        powered("scopes", "n-scopes", 300, "scopes-0"),
        (WALL, {"nodename": "n-wall"}, steady(300)),
        *serving("uncounted"),
        powered("uncounted", "n-uncounted", 300, "uncounted-0"),
        (WALL, {"nodename": "n-odd-wall"}, steady(300)),
        # Two boards of 60 W each. One meter is dark from noon; one board has no meter; the third engine is whole.
        *(one for name in ("dark", "unseen", "whole") for one in serving(name)),
        *(powered(f"{name}-1", f"n-{name}", 60, f"{name}-0") for name in ("dark", "unseen", "whole")),
        powered("dark-2", "n-dark", 60, "dark-0", last=NOON),
        powered("whole-2", "n-whole", 60, "whole-0"),
        (UTIL, {**board("GPU-unseen-2", "n-unseen"), **pod("unseen-0")}, steady(80)),
        # Over two nodes, in two racks, with boards of one type: 90 and 30 W.
        *serving("nodes"),
        powered("nodes-1", "n-east", 90, "nodes-0"),
        powered("nodes-2", "n-west", 30, "nodes-0-1"),
        # Seven minutes from noon at 300 W; its board stays, at 100 W.
        *serving("ends", NOON, NOON + late),
        metered("ends", "n-ends", "ends-0", two_levels(300, 100, NOON + late)),
        # It ends as its pod does, within one sampling interval.
        *serving("gone", NOON, NOON + late),
        powered("gone", "n-gone", 300, "gone-0", first=NOON, last=NOON + late + 60),
        # A silence of ten minutes in which its counter went on.
        *((metric, labels, without(samples, NOON, NOON + 600)) for metric, labels, samples in serving("bridged")),
        powered("bridged", "n-bridged", 300, "bridged-0"),
    ]


def two_levels(before: float, after: float, at: float) -> Samples:
    """A counter of millijoules that rises by `before` watts until a moment, then by `after`."""
    later = rising(1000 * after, at, start=1e6 + 1000 * before * at)
    return rising(1000 * before, 0, at) + later[1:]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    held = [
        {"node": node, "engine": engine, "model": engine[4:-2], "start_at": f"{DAY}T00:00:00+00:00"}
        for node, engine in (("n-wall", "llm/scopes-0"), ("n-odd-wall", "llm/uncounted-0"))
    ]
    made = plant(
        tmp_path_factory.mktemp("shares"),
        planted_series(),
        marts=MARTS,
        cost_rates=RATES,
        assignments=held,
        engines=[{"engine": "llm/nodes-0", "pods": ["llm/nodes-0-1"]}],
        nodes=[
            {"name": "n-wall", "device_type": "a100-sxm4-80gb"},
            {"name": "n-east", "rack": "r-east"},
            {"name": "n-west", "rack": "r-west"},
        ],
    )
    made.run()
    return made


def rows(book: Book, model: str, columns: str, table: str = "model_daily") -> list[tuple]:
    return book.query(f"select {columns} from marts.{table} where model = ? order by all", [model])


def per_token(book: Book, model: str) -> float | None:
    """Joules over output tokens of all rows of a model."""
    ((found,),) = rows(book, model, "(sum(matched_joules) / nullif(sum(matched_output_tokens), 0))::double")
    return found


@pytest.mark.parametrize(
    ("model", "joules_per_output_token"),
    [
        ("mixed", 60),  # (300 + 300) W / 10 tokens per second; 30 where one row had all tokens
        ("scopes", 60),  # the same, with the second 300 W at the wall
        ("dark", 12),  # (60 + 60) / 10 until noon; 9 with the afternoon's one board
        ("unseen", None),  # one board's joules are unknown; 6 with the other's alone
        ("uncounted", None),
        ("ends", 30),  # 300 / 10; 34.3 with three minutes of the waiting board
        ("gone", 30),
        ("whole", 12),
        ("nodes", 12),
        ("plain-a", 20),
        ("plain-h", 40),
        ("bridged", 30),
    ],
)
def test_joules_per_token_are_those_of_all_boards_and_of_known_tokens(
    book: Book, model: str, joules_per_output_token: float | None
) -> None:
    assert per_token(book, model) == (joules_per_output_token and pytest.approx(joules_per_output_token, rel=1e-9))


def test_no_date_is_held_back_and_no_token_is_lost(book: Book) -> None:
    assert book.query("select * from marts.held_back_dates") == []
    tokens = dict(book.query("select model, sum(output_tokens)::double from marts.model_daily group by model"))
    of_day = dict.fromkeys(tokens, PER_SECOND * DAY_SECONDS)
    assert tokens == of_day | {"ends": PER_SECOND * 7 * 60, "gone": PER_SECOND * 7 * 60}


def test_an_engine_on_two_device_types_has_tokens_in_both_rows(book: Book) -> None:
    """As many joules, so as many tokens; the dollars of a row are not for those tokens."""
    columns = (
        "device_type, output_tokens::double, shared_tokens::double, tokens_basis, joules_per_output_token,"
        " productive_joules_per_output_token, compute_cost_usd_per_output_mtok,"
        " variable_cost_usd_per_output_mtok, location_gco2e_per_output_mtok"
    )
    half = PER_SECOND * DAY_SECONDS / 2
    assert rows(book, "mixed", columns) == [
        (device_type, half, 4 * half, "shared", 60.0, None, None, None, None)
        for device_type in ("a100-sxm4-80gb", "h100-sxm5-80gb")
    ]


def test_the_dollars_per_token_of_all_its_rows_are_those_of_its_sums(book: Book) -> None:
    """An hour is 4 USD of boards and of 0.6 kW and their hosts × PUE 1.2 × 0.1 USD, for 36,000 tokens.

    A host has 0.2 of the limits of 400 W and 700 W, and 0.23 of what they draw.
    """
    ((found,),) = rows(book, "mixed", "(sum(matched_compute_cost_usd) / sum(priced_output_tokens) * 1000000)::double")
    assert found == pytest.approx((4 + (0.6 * 1.23 + 0.22) * 1.2 * 0.1) / 0.036, rel=1e-6)
    assert round(found) == 114


def test_an_engine_on_one_kind_of_board_keeps_its_row_and_its_dollars_per_token(book: Book) -> None:
    columns = "device_type, tokens_basis, shared_tokens::double, compute_cost_usd_per_output_mtok"
    # kW of the boards, × 1.23, and 0.2 of their limits for hosts.
    it_kw = {"plain-a": 0.2 * 1.23 + 0.08, "plain-h": 0.4 * 1.23 + 0.14, "nodes": 0.12 * 1.23 + 0.16}
    usd = {model: rate + it_kw[model] * 0.12 for model, rate in (("plain-a", 1), ("plain-h", 3), ("nodes", 2))}
    for model, usd_per_hour in usd.items():
        ((_, *basis, found),) = rows(book, model, columns)
        assert basis == ["own", 0.0]
        assert found == pytest.approx(usd_per_hour / 0.036, rel=1e-6)


def test_an_engine_on_two_meter_scopes_has_a_row_of_each_and_no_other(book: Book) -> None:
    """A board, and a node of one board: half of the tokens each, by accelerators and not by joules."""
    half = PER_SECOND * DAY_SECONDS / 2
    assert rows(book, "scopes", "meter_scope, device_type, output_tokens::double, joules_per_output_token") == [
        (scope, "a100-sxm4-80gb", half, 60.0) for scope in ("board", "node")
    ]


def test_where_a_node_has_an_unknown_number_of_accelerators_there_is_no_ratio_but_a_reason(book: Book) -> None:
    found = rows(book, "uncounted", "meter_scope, joules_per_output_token, matched_joules, output_tokens > 0")
    assert found == [("board", None, None, True), ("node", None, None, True)]
    for ledger in ("energy_ledger", "token_ledger"):
        assert rows(book, "uncounted", "distinct is_matched, unmatched_reason", ledger) == [
            (False, "gpu_count_unknown")
        ]


def test_the_tokens_of_an_engine_over_two_nodes_are_shared_by_joules(book: Book) -> None:
    """90 of 120 W. For its model and type they are one row, with dollars per token."""
    columns = "node, tokens_basis, sum(tokens)::double"
    found = book.query(
        f"select {columns} from marts.token_ledger where model = 'nodes' and token_class = 'output' group by 1, 2"
        " order by 1"
    )
    tokens = PER_SECOND * DAY_SECONDS
    assert found == [("n-east", "shared", 0.75 * tokens), ("n-west", "shared", 0.25 * tokens)]


def test_a_share_is_a_difference_of_a_rounded_running_total(book: Book) -> None:
    """Each engine's shares of each interval and class add up to what the engine moved, to the last digit."""
    wrong = book.query(
        """
        with shared as (
            select engine, interval_start_at, token_class, sum(tokens) as tokens
            from marts.token_ledger group by all
        ),
        counted as (
            select engine, make_timestamptz(interval_number * 300000000) as interval_start_at, token_class,
                sum(tokens) as tokens
            from intermediate.int_token_intervals group by all
        )
        select * from shared full join counted using (engine, interval_start_at, token_class)
        where shared.tokens is distinct from counted.tokens
        """
    )
    assert wrong == []


def test_an_interval_counts_only_with_the_energy_of_all_boards(book: Book) -> None:
    columns = "unmatched_reason, count(*), min(interval_start_at)::varchar"
    for model, unmatched, first in (("dark", 144, "12:00"), ("unseen", 288, "00:00"), ("whole", 0, None)):
        found = book.query(
            f"select {columns} from marts.token_ledger"
            " where model = ? and token_class = 'output' and not is_matched group by 1",
            [model],
        )
        expected = [("board_without_energy", unmatched, f"2026-10-15 {first}:00+00")] if unmatched else []
        assert found == expected


def test_energy_after_the_last_sample_of_an_engine_is_unknown(book: Book) -> None:
    """Seven minutes of 300 W are known, on both sides of 12:05; then 100 W for three minutes of the same interval."""
    found = book.query(
        "select strftime(claim_start_at, '%H:%M'), state, unknown_reason, covered_seconds::double,"
        " energy_joules::double, is_matched from marts.energy_ledger"
        " where model = 'ends' and interval_start_at between '2026-10-15 12:00+00' and '2026-10-15 12:05+00'"
        " order by interval_start_at, claim_start_at"
    )
    assert found == [
        ("12:00", "active", None, 300.0, 90_000.0, True),
        ("12:05", "active", None, 120.0, 36_000.0, True),
        ("12:07", "unknown", "token_telemetry_missing", 180.0, 18_000.0, False),
    ]
    ((unknown, known, idle_time),) = rows(
        book, "ends", "unknown_joules::double, known_seconds::double, idle_time_ratio"
    )
    assert (unknown, known, idle_time) == (12 * HOURS * 300 + 100 * (12 * HOURS - 420), 420.0, 0.0)


def test_energy_of_the_last_sampling_interval_is_known_but_has_no_tokens_to_match(book: Book) -> None:
    assert rows(book, "gone", "unknown_joules::double, energy_joules::double, matched_joules::double") == [
        (0.0, 144_000.0, 90_000.0)
    ]
    assert rows(book, "gone", "distinct unmatched_reason", "energy_ledger") == [
        ("tokens_end_before_energy",),
        (None,),
    ]


def test_a_silence_over_which_the_counter_went_on_stays_matched(book: Book) -> None:
    assert rows(book, "bridged", "matched_ratio, unknown_joules::double, output_tokens::double") == [
        (1.0, 0.0, PER_SECOND * DAY_SECONDS)
    ]


def test_a_scope_of_the_fleet_has_tokens_for_its_joules(book: Book) -> None:
    """At the wall: 300 W of each of two engines; the tokens of the counted one match its half."""
    found = book.query(
        "select matched_joules::double, matched_output_tokens::double, joules_per_output_token"
        " from marts.fleet_daily where meter_scope = 'node'"
    )
    assert found == [(300.0 * DAY_SECONDS, PER_SECOND * DAY_SECONDS / 2, 60.0)]


def broken_rows(book: Book, folder: Path, *statements: str) -> dict[str, list[tuple[str, int]]]:
    """Invariant -> engine of its first broken row, and how many there are, after statements on a copy of the book."""
    copy = book.copy(folder)
    with copy.connection() as connection:
        for statement in statements:
            connection.execute(statement)
    period = copy.fleet.period
    copy.dbt("run", "--select", "held_back_dates", dates=(period.start, period.end))
    return {
        name: [(row.row_key.split(",")[0].removeprefix("engine "), row.rows) for row in found][:1]
        for name, found in copy.broken().items()
    }


def test_tokens_that_are_not_where_their_energy_is_break_an_invariant(book: Book, tmp_path: Path) -> None:
    """All tokens at the A100, as if the engine had no other board: two places of 288 intervals."""
    found = broken_rows(
        book,
        tmp_path,
        "update marts.token_ledger set tokens = 2 * tokens where model = 'mixed' and device_type = 'a100-sxm4-80gb'",
        "delete from marts.token_ledger where model = 'mixed' and device_type <> 'a100-sxm4-80gb'",
    )
    assert found == {"tokens_are_where_their_energy_is": [("llm/mixed-0", 576)]}


def test_an_interval_that_is_matched_without_a_board_or_tokens_breaks_an_invariant(book: Book, tmp_path: Path) -> None:
    """The afternoon of the dark board, the day of the unmetered one, and the last interval of the engine that ended."""
    found = broken_rows(
        book,
        tmp_path,
        "update marts.energy_ledger set is_matched = true where unmatched_reason in"
        " ('board_without_energy', 'tokens_end_before_energy')",
    )
    assert found == {"matched_intervals_are_whole": [("llm/dark-0", 144 + 288 + 1)]}
