"""The recommendation for each deployment: spun down, sharing, kept or not known, with savings worked by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipelines.analysis import consolidation, packing
from pipelines.analysis.consolidation import Fleet, InfeasiblePlan, consolidate, memory_gib
from pipelines.analysis.right_sizing import joined
from pipelines.analysis.sizes import KEYS
from tests.advice.test_right_sizing import days_of
from tests.advice.test_sizes import usage

INTERVALS = 28 * 288
# By day or by night at 0.7 of capacity, at 0.05 in the other half: 0.75 together.
HOUR = np.arange(INTERVALS) // 12 % 24
DAY = np.where(HOUR < 12, 0.7, 0.05)
NIGHT = np.where(HOUR < 12, 0.05, 0.7)
SILENT = np.zeros(INTERVALS)
# One engine on two GPUs of a node of two: 400 W; 100 W a GPU parked, 55 W without a model; its host 0.2 W a W.
ONE = {"replicas": 1, "gpus": 2.0, "gpus_per_replica": 2.0, "mean_watts": 400.0, "capacity_tokens_per_second": 200.0}
NO_TOKENS = {"demand_tokens_per_second_mean": 0.0, "demand_tokens_per_second_max": 0.0, "active_time_ratio": 0.0}


def fleet(*deployments: tuple[dict[str, Any], np.ndarray], nodes: tuple[str, ...] = ()) -> Fleet:
    """Deployments of one engine with their loads; each on a node of its own, or where `nodes` has it."""
    frame = usage(*({"keep_apart": None} | ONE | changes for changes, _ in deployments))
    where = nodes or tuple(f"n{number}" for number in range(len(deployments)))
    engines = pd.DataFrame(
        {
            "usage": range(len(deployments)),
            "engine": [f"e{number}" for number in range(len(deployments))],
            "node": where,
            "nodes": [[node] for node in where],
            "gpu_group": [f"g{number}" for number in range(len(deployments))],
            "gpus": frame["gpus_per_replica"].astype(int),
            "is_overlapping": False,
        }
    )
    load = np.array([series for _, series in deployments], dtype=np.float32)
    idle = np.where(np.isnan(load), -1, load == 0).astype(np.int8)
    uncounted = np.full((len(load), INTERVALS // 12), np.nan)
    return Fleet(
        frame, engines, boards_of(frame, engines), frozenset(), load, idle, 300, days_of(frame), load, uncounted
    )


def boards_of(frame: pd.DataFrame, engines: pd.DataFrame) -> pd.DataFrame:
    """Nodes have the GPUs of their engines and no other."""
    return pd.DataFrame(
        {
            "site": frame["site"],
            "device_type": frame["device_type"],
            "unit": engines["node"],
            "holder": joined(frame, KEYS),
            "gpus": frame["gpus"],
        }
    )


def rows_of(given: Fleet) -> list[dict[str, Any]]:
    return consolidate(given).rows.to_dict("records")


def test_a_model_that_served_nothing_is_spun_down_and_its_node_may_go_off() -> None:
    (row,) = rows_of(fleet((NO_TOKENS, SILENT)))
    assert (row["kind"], row["reason_code"]) == ("spin_down", "no_tokens_served")
    assert (row["current_gpus"], row["recommended_gpus"], row["current_watts"]) == (2, 0, 400)
    assert (row["freed_gpus"], row["freed_gpus_on_empty_nodes"]) == (2, 2)
    assert row["quadrant"] == "high_allocation_low_usage"
    # Left on without a model: 200 - 55 W each × 730 h × PUE 1.25; 0.2 USD and 400 g a kWh; the hosts draw as before.
    assert row["saving_watts"] == 290
    assert row["saving_kwh_month"] == pytest.approx(290 * 0.73 * 1.25)
    assert row["saving_energy_usd_month"] == pytest.approx(290 * 0.73 * 1.25 * 0.2)
    assert row["saving_kgco2e_month"] == pytest.approx(290 * 0.73 * 1.25 * 0.4)
    # All days alike; the bare watts are a reference, 16.5 W off either way.
    assert (row["saving_low"], row["saving_high"]) == pytest.approx((257 * 0.73 * 1.25, 323 * 0.73 * 1.25))
    # With the node off 400 W and its host's 80: × 1.5 at the facility. Two GPUs at 2 USD an hour are handed back.
    assert row["saving_kwh_month_if_nodes_off"] == pytest.approx(438)
    assert row["saving_energy_usd_month_if_nodes_off"] == pytest.approx(87.6)
    assert row["saving_kgco2e_month_if_nodes_off"] == pytest.approx(175.2)
    assert row["saving_usd_month_if_released"] == pytest.approx(2 * 2 * 730)
    # Loading: 0.3 × 400 W for 300 s = 36 kJ a GPU; idling costs 100 - 55 W.
    assert row["break_even_seconds"] == pytest.approx(800)
    assert (row["risk_ratio"], row["confidence"], row["gap_ratio"]) == (0, "high", 0)
    assert json.loads(row["evidence"])["parked_watts_per_gpu"] == 100


def test_no_node_goes_off_while_others_need_it() -> None:
    busy, silent = fleet(({}, DAY), (NO_TOKENS, SILENT), nodes=("n", "n")), fleet((NO_TOKENS, SILENT))
    kept, down = rows_of(busy)
    assert (kept["kind"], down["kind"], down["freed_gpus_on_empty_nodes"]) == ("keep", "spin_down", 0)
    assert down["saving_kwh_month"] == pytest.approx(290 * 0.73 * 1.25)
    assert np.isnan(down["saving_kwh_month_if_nodes_off"])
    # An unknown claimant draws power there.
    assert rows_of(replace(silent, unknown_nodes=frozenset({"n0"})))[0]["freed_gpus_on_empty_nodes"] == 0


def test_a_request_that_ran_without_a_token_is_no_silence() -> None:
    """As right-sizing has it: a model that fails, or answers without tokens, is asked."""
    (row,) = rows_of(fleet((NO_TOKENS | {"active_time_ratio": 0.1}, SILENT)))
    assert (row["kind"], row["reason_code"]) == ("keep", "no_better_place")


@pytest.mark.parametrize(
    ("changes", "kind", "reason"),
    [
        ({"coverage_ratio": 0.89}, "insufficient_data", "low_coverage"),
        ({"days": 6}, "insufficient_data", "short_lookback"),
        ({"intervals": np.nan, "coverage_ratio": 0.0}, "insufficient_data", "no_token_telemetry"),
        ({"queued_intervals": 100}, "keep", "queueing"),
        ({"doubt_reasons": "meters_disagree"}, "keep", "figures_in_doubt"),
        ({"min_replicas": 2}, "keep", "min_replicas"),
    ],
)
def test_silence_alone_spins_nothing_down(changes: dict[str, Any], kind: str, reason: str) -> None:
    (row,) = rows_of(fleet((NO_TOKENS | changes, SILENT)))
    assert (row["kind"], row["reason_code"]) == (kind, reason)
    assert np.isnan(row["saving_kwh_month"])


def test_intervals_without_data_are_not_idle() -> None:
    (row,) = rows_of(fleet((NO_TOKENS, np.full(INTERVALS, np.nan))))
    assert row["kind"] == "keep"
    one_token = SILENT.copy()
    one_token[5000] = 0.01
    assert rows_of(fleet((NO_TOKENS, one_token)))[0]["reason_code"] != "no_tokens_served"


def test_opposite_days_share_two_gpus() -> None:
    stays, moves = rows_of(fleet(({}, DAY), ({}, NIGHT)))
    assert [row["kind"] for row in (stays, moves)] == ["colocate", "colocate"]
    stays, moves = sorted((stays, moves), key=lambda row: row["moves"])
    assert (stays["moves"], stays["recommended_gpus"], stays["freed_gpus"]) == (0, 2, 0)
    assert (moves["moves"], moves["recommended_gpus"], moves["freed_gpus_on_empty_nodes"]) == (1, 0, 2)
    assert stays["target_node"] == moves["target_node"]
    assert moves["shares_with"] == f"west/{stays['deployment']}/m/a100/board/unified"
    # The work moves along: what goes is what two parked GPUs draw above bare ones; with the node off, all that they
    # draw parked and the 80 W of their host.
    assert (stays["saving_kwh_month"], moves["saving_kwh_month"]) == (0, pytest.approx(90 * 0.73 * 1.25))
    assert moves["saving_kwh_month_if_nodes_off"] == pytest.approx(280 * 0.73 * 1.25)
    assert np.isnan(stays["saving_kwh_month_if_nodes_off"])
    assert (np.isnan(stays["saving_usd_month_if_released"]), moves["saving_usd_month_if_released"]) == (True, 2920)
    assert stays["colocation_id"] == moves["colocation_id"] is not None
    assert (stays["confidence"], moves["confidence"]) == ("high", "high")
    assert moves["risk_ratio"] == 0
    assert len({row["exclusive_group_id"] for row in (stays, moves)}) == 2


@pytest.mark.parametrize(
    ("changes", "series", "reason"),
    [
        ({}, DAY, "no_better_place"),
        ({}, DAY + 0.2, "load_above_target"),
        # Full at its own highest load, which is no capacity.
        ({"is_capacity_lower_bound": True}, DAY + 0.2, "capacity_not_observed"),
        ({"queued_intervals": 100}, NIGHT, "queueing"),
        ({"weights_gib": np.nan}, NIGHT, "memory_unknown"),
        ({"weights_gib": 140.0}, NIGHT, "memory_full"),
        ({"coverage_ratio": 0.5}, NIGHT, "low_coverage"),
    ],
)
def test_without_evidence_nothing_shares(changes: dict[str, Any], series: np.ndarray, reason: str) -> None:
    one, other = rows_of(fleet(({}, DAY), (changes, series)))
    assert (one["kind"], one["reason_code"]) == ("keep", "no_better_place")
    assert other["reason_code"] == reason
    assert np.isnan(other["saving_kwh_month"])


def test_intervals_without_data_count_as_the_busiest_time() -> None:
    hidden = NIGHT.copy()
    hidden[(HOUR < 12) & (np.arange(INTERVALS) < 3 * 288)] = np.nan  # a twentieth of the time
    assert {row["kind"] for row in rows_of(fleet(({}, DAY), ({}, hidden)))} == {"keep"}


def test_no_plan_raises_what_a_site_draws() -> None:
    """A silent model, two that share, one that moves. Boards that draw 40 W parked and 55 W without a model save
    nothing; they do not cost 15 W each."""
    low = {"parked_watts_per_gpu": 40.0}
    six = NO_TOKENS | {"gpus": 6.0, "gpus_per_replica": 6.0}
    sharing = rows_of(fleet((low, DAY), (low, NIGHT)))
    moving = rows_of(fleet((low, DAY), (low | six, SILENT), (low | NO_TOKENS, SILENT), nodes=("n8", "n8", "n2")))
    assert [row["kind"] for row in (*sharing, *moving)] == ["colocate"] * 2 + ["move", "spin_down", "spin_down"]
    watts = [row["saving_watts"] for row in (*sharing, *moving)]
    assert watts == pytest.approx([0, 0, 0, 400 - 6 * 55, 290])


def test_engines_over_two_nodes_hold_both() -> None:
    """A wide engine stays where it is, and neither of its nodes falls empty with a silent neighbour."""
    given = fleet(({}, DAY), (NO_TOKENS, SILENT), nodes=("n1", "n2"))
    given.engines.at[0, "nodes"] = ["n1", "n2"]
    wide, silent = rows_of(given)
    assert (wide["kind"], wide["reason_code"]) == ("keep", "spans_nodes_or_shared")
    assert (silent["kind"], silent["freed_gpus_on_empty_nodes"]) == ("spin_down", 0)


def test_what_shares_already_is_not_moved() -> None:
    """Two GPUs held half by each of two engines: one GPU each, as usage counts them."""
    rows = rows_of(fleet(({"gpus": 1.0}, DAY), ({}, NIGHT)))
    assert [row["kind"] for row in rows] == ["colocate", "colocate"]
    given = fleet(({"gpus": 1.0, "gpus_per_replica": 1.0}, DAY), ({}, NIGHT))
    given.engines["gpus"] = 2
    assert [row["reason_code"] for row in rows_of(given)] == ["spans_nodes_or_shared", "no_better_place"]


def test_long_gaps_are_slept_through_after_break_even() -> None:
    """Idle every weekend, two days long: four times 48 h less 800 s at 45 W a GPU, each followed by a load of 36 kJ."""
    weekends = np.where(np.arange(INTERVALS) // 288 % 7 >= 5, 0.0, 0.9)
    (row,) = rows_of(fleet(({}, weekends)))
    assert (row["kind"], row["reason_code"], row["freed_gpus"]) == ("sleep_when_idle", "idle_gaps", 0)
    joules = 4 * ((48 * 3600 - 800) * 45 - 36000)
    watts = 2 * joules / (28 * 86400)
    assert row["saving_watts"] == pytest.approx(watts)
    assert row["saving_kwh_month"] == pytest.approx(watts * 0.73 * 1.25)
    assert row["recommended_gpus"] == 2  # they stay, and sleep
    assert np.isnan(row["saving_usd_month_if_released"])
    assert row["risk_ratio"] == pytest.approx(3 * 2 / (20 * 288))  # tokens of the start and of the interval after it


def test_weekends_are_slept_through_and_one_of_a_thousand_requests_waits() -> None:
    """Of 20 busy days of 10 requests an hour. Three weekends are over within the lookback: three requests wait at
    least, at most all 30 of the hours in which a start falls, of 20 × 24 × 10. By tokens 2 intervals of each start, of
    20 × 288."""
    weekends = np.where(np.arange(INTERVALS) // 288 % 7 >= 5, 0.0, 0.9)
    given = fleet(({}, weekends))
    counted = replace(given, finished_requests=np.where(given.idle[:, ::12] == 0, 10.0, 0.0))
    names = ("kind", "confidence", "waiting_requests_ratio_low", "waiting_requests_ratio_high", "waiting_tokens_ratio")
    by_tokens = pytest.approx(6 / 5760)
    (row,), (uncounted,) = rows_of(counted), rows_of(given)
    assert [row[name] for name in names] == ["sleep_when_idle", "high", 3 / 4800, 30 / 4800, by_tokens]
    assert row["risk_ratio"] == 30 / 4800
    # Tokens alone are never as sure.
    assert [uncounted[name] for name in ("kind", "confidence", "risk_ratio")] == [
        "sleep_when_idle",
        "medium",
        by_tokens,
    ]
    assert np.isnan(uncounted["waiting_requests_ratio_high"])


@pytest.mark.parametrize(
    ("most", "requests", "kind", "reason", "short"),
    [
        (0.01, None, "keep", "requests_would_wait", None),
        (0.01, 1.0, "keep", "requests_would_wait", None),
        (1.0, 1.0, "sleep_when_idle", "idle_gaps", 1.0),
    ],
)
def test_where_requests_are_rare_nearly_all_of_them_wait(
    most: float, requests: float | None, kind: str, reason: str, short: float | None
) -> None:
    """Six requests a day, every four hours, and a start takes two minutes: 6 × 120 of 86,400 s are 0.8 % of the time,
    and each of the 168 requests waits. What sleep would have saved stays in the row: 167 gaps of 14,100 s and a first
    one that is as long, less 320 s of breaking even, at 45 W a GPU, and 14.4 kJ for each start."""
    rare = np.where(np.arange(INTERVALS) % 48 == 47, 0.5, 0.0)
    given = fleet(({"cold_start_seconds": 120.0, "most_waiting_ratio": most}, rare))
    if requests is not None:
        given = replace(
            given, finished_requests=np.where((given.idle == 0).reshape(1, -1, 12).any(axis=2), requests, 0)
        )
    (row,) = rows_of(given)
    assert (row["kind"], row["reason_code"], row["waiting_tokens_ratio"]) == (kind, reason, 1)
    ends = [row["waiting_requests_ratio_low"], row["waiting_requests_ratio_high"]]
    assert np.isnan(ends).all() if requests is None else ends == [1, 1]
    watts = 2 * 168 * ((47 * 300 - 320) * 45 - 14_400) / (28 * 86400)
    assert json.loads(row["evidence"])["sleep_saving_watts"] == pytest.approx(watts, rel=1e-5)
    assert [row["risk_ratio"], row["saving_watts"]] == (
        [short, pytest.approx(watts)] if short else pytest.approx([np.nan] * 2, nan_ok=True)
    )


def test_short_gaps_are_not_worth_waking_for() -> None:
    """Idle for half of every hour: sleeping would save, but of the requests of 30 minutes those of 10 may wait."""
    (row,) = rows_of(fleet(({"cold_start_seconds": 120.0}, np.where(np.arange(INTERVALS) % 12 < 6, 0.0, 0.9))))
    assert (row["kind"], row["reason_code"]) == ("keep", "requests_would_wait")
    assert row["waiting_tokens_ratio"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("changes", "usage_ratio", "quadrant"),
    [
        ({}, 0.4, "high_allocation_high_usage"),
        # The same demand over the highest load ever seen: the true capacity may be ten times that.
        ({"is_capacity_lower_bound": True, "capacity_basis": "highest_observed"}, None, None),
        ({"is_capacity_lower_bound": True}, None, None),  # it kept its SLO at every load so far
        # Less than 0.4 of even that is low in any case.
        ({"is_capacity_lower_bound": True, "demand_tokens_per_second_mean": 79.0}, None, "high_allocation_low_usage"),
        ({"demand_tokens_per_second_mean": 79.0}, 0.395, "high_allocation_low_usage"),
    ],
)
def test_usage_is_high_of_a_capacity_and_not_of_the_highest_load_seen(
    changes: dict[str, Any], usage_ratio: float | None, quadrant: str | None
) -> None:
    (row,) = rows_of(fleet((changes, DAY)))
    assert [None if pd.isna(row[name]) else row[name] for name in ("usage_ratio", "quadrant")] == [
        pytest.approx(usage_ratio) if usage_ratio else None,
        quadrant,
    ]


def test_who_shares_is_as_sure_as_the_least_sure_of_them() -> None:
    guess = {"capacity_basis": "highest_observed", "is_capacity_lower_bound": True}
    assert [row["confidence"] for row in rows_of(fleet(({}, DAY), (guess, NIGHT)))] == ["medium", "medium"]
    kept = rows_of(fleet(({}, DAY)))
    assert [row["confidence"] for row in kept] == [None]


def test_memory_is_weights_cache_and_runtime() -> None:
    """16 GiB over 2 GPUs; 8 requests of 8192 tokens at 128 KiB are 8 GiB, in two halves; 2 GiB runtime."""
    frame = usage(ONE, ONE | {"kv_cache_usage_ratio_max": 0.03}, ONE | {"weights_gib": 400.0})
    # Of 64 GiB of cache 0.03 were used, which is less than 4 GiB.
    assert memory_gib(frame).tolist() == pytest.approx([8 + 4 + 2, 8 + 0.03 * 64 + 2, 72])


def test_a_plan_that_breaks_a_rule_is_not_published(monkeypatch: pytest.MonkeyPatch) -> None:
    right = packing.plan

    def wrong(engines: pd.DataFrame, loads: pd.DataFrame) -> packing.Plan:
        made = right(engines, loads)
        made.engines["target_group"] = made.engines["gpu_group"].iloc[0]
        return made

    monkeypatch.setattr(packing, "plan", wrong)
    with pytest.raises(InfeasiblePlan, match=r"breaks 2 rules.*above its target in 0\.5000 of the time"):
        consolidate(fleet(({}, DAY), ({}, DAY)))


def test_what_is_shown_is_there() -> None:
    rows = consolidate(fleet((NO_TOKENS, SILENT))).rows
    assert set(consolidation.SHOWN) <= set(rows.columns)
    assert rows["plan_id"].iloc[0] == consolidate(fleet((NO_TOKENS, SILENT))).rows["plan_id"].iloc[0]


def test_a_model_moves_to_the_smaller_node_that_a_silent_one_leaves() -> None:
    """Beside it on n8 six GPUs are silent, and n2 is: it takes n2's two, and all eight of n8 fall free. Its size, its
    load and its watts stay; no time is short."""
    six = NO_TOKENS | {"gpus": 6.0, "gpus_per_replica": 6.0}
    given = fleet(({}, DAY), (six, SILENT), (NO_TOKENS, SILENT), nodes=("n8", "n8", "n2"))
    mover, beside, left = rows_of(given)
    assert (mover["kind"], mover["reason_code"], mover["moves"]) == ("move", "frees_larger_node", 1)
    assert (mover["current_gpus"], mover["recommended_gpus"], mover["freed_gpus"]) == (2, 2, 0)
    assert (mover["saving_kwh_month"], mover["risk_ratio"], mover["confidence"]) == (0, 0, "high")
    assert [row["kind"] for row in (beside, left)] == ["spin_down", "spin_down"]
    assert [row["freed_gpus_on_empty_nodes"] for row in (beside, left)] == [6, 0]


def test_nothing_moves_where_no_smaller_node_falls_empty() -> None:
    """The same with a model that works on n2; one that is pressed; and a node as large."""
    six = NO_TOKENS | {"gpus": 6.0, "gpus_per_replica": 6.0}
    nodes = ("n8", "n8", "n2")
    busy = rows_of(fleet(({}, DAY), (six, SILENT), ({}, DAY), nodes=nodes))
    pressed = rows_of(fleet(({"queued_intervals": 100}, DAY), (six, SILENT), (NO_TOKENS, SILENT), nodes=nodes))
    alone = rows_of(fleet(({}, DAY), (NO_TOKENS, SILENT)))
    assert [rows[0]["kind"] for rows in (busy, pressed, alone)] == ["keep"] * 3
    assert busy[1]["freed_gpus_on_empty_nodes"] == 0
