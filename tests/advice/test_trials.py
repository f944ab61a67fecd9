"""Which power limits are tried: those that a fleet never had, where its loads would feel them. Worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipelines.analysis import trials
from tests.advice.test_right_sizing import kinds, rows_of
from tests.advice.test_sizes import LARGE, usage

# Four GPUs that are full: no smaller size serves the demand.
FULL = {"demand_tokens_per_second_p99": 320.0}
# Half octave of load -> watts of a GPU, intervals of a day, tokens of a day. Limit 400 W: 0.8 of it are 320.
LOADS = {8: (200.0, 100, 60.0), 10: (330.0, 4, 35.0), 12: (390.0, 1, 5.0)}


def days_under(*limits: list[float | None]) -> pd.DataFrame:
    """The dates of each deployment under these limits."""
    rows = [(number, day, watts) for number, of_one in enumerate(limits) for day, watts in enumerate(of_one)]
    return pd.DataFrame(rows, columns=["usage", "date", "limit_watts"]).astype({"limit_watts": float})


def loads_of(*deployments: dict[int, tuple[float, int, float]], days: int = 28) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"usage": number, "date": day, "load_bin": load, "intervals": float(intervals), "tokens": tokens,
                "gpu_seconds": intervals * 1200.0, "joules": intervals * 1200.0 * watts}
            for number, loads in enumerate(deployments)
            for load, (watts, intervals, tokens) in loads.items()
            for day in range(days)
        ],
        columns=["usage", "date", "load_bin", "intervals", "tokens", "gpu_seconds", "joules"],
    )  # fmt: skip


def tried(frame: pd.DataFrame, days: pd.DataFrame, loads: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in
        trials.lower_limits(frame, days, loads).to_dict("records")]  # fmt: skip


def test_a_limit_that_no_board_had_is_tried_where_loads_draw_more() -> None:
    """At loads with 40 of 100 tokens a GPU draws more than 320 W. The loads 8 and 10 have 95 % of the tokens: 104
    intervals a day decide. Load 10 has 4 a day: 12 take 3 days, and a week is the least."""
    (row,) = tried(usage(FULL), days_under([400.0] * 28), loads_of(LOADS))
    assert (row["kind"], row["reason_code"]) == ("try_it", "one_power_limit")
    assert (row["current_power_limit_watts"], row["trial_power_limit_watts"]) == (400, 320)
    assert (row["trial_days"], row["trial_deciding_intervals"]) == (7, 28 * 104)
    assert row["limited_token_ratio"] == pytest.approx(0.4)
    assert (row["recommended_replicas"], row["recommended_gpus_per_replica"]) == (4, 1)


def test_a_rare_load_takes_longer_and_no_longer_than_a_lookback() -> None:
    """A load with 40 of 100 tokens that was seen in one interval a day takes 12 days; in one of two days 24; one of
    14 intervals in 28 days 24; of 12 in 28 days 28."""
    once = {8: (200.0, 100, 60.0), 10: (330.0, 1, 40.0)}
    assert tried(usage(FULL), days_under([400.0]), loads_of(once))[0]["trial_days"] == 12
    rare = loads_of(once)
    rare = rare[(rare["load_bin"] == 8) | (rare["date"] < 12)]
    rare.loc[rare["load_bin"] == 10, "tokens"] = 40.0 * 28 / 12
    assert tried(usage(FULL), days_under([400.0]), rare)[0]["trial_days"] == 28


@pytest.mark.parametrize(
    ("limits", "loads"),
    [
        ([400.0] * 27 + [320.0], LOADS),  # two limits are evidence: power_cap
        ([320.0] * 28, LOADS),  # it works under a lower limit already
        ([None] * 28, LOADS),  # no source reports a limit
        ([400.0] * 28, {8: (200.0, 100, 60.0), 10: (320.0, 4, 40.0)}),  # no load draws more than 320 W
        ([400.0] * 28, {}),  # idle: no load at all
        ([400.0] * 28, {8: (200.0, 100, 0.0), 10: (330.0, 4, 0.0)}),  # no token
    ],
    ids=["two_limits", "lower_already", "not_reported", "would_not_be_felt", "idle", "no_tokens"],
)
def test_nothing_is_tried_with_evidence_or_without_effect(limits: list[float | None], loads: dict[int, Any]) -> None:
    assert tried(usage(FULL), days_under(limits), loads_of(loads)) == []


def test_a_load_that_was_hardly_seen_is_no_reason() -> None:
    """11 intervals above 320 W; with 12 there is one."""
    seldom = loads_of({8: (200.0, 100, 60.0), 10: (330.0, 1, 40.0)})
    for days, count in ((11, 0), (12, 1)):
        seen = seldom[(seldom["load_bin"] == 8) | (seldom["date"] < days)]
        assert len(tried(usage(FULL), days_under([400.0]), seen)) == count


def test_another_deployment_of_the_same_kind_that_had_two_limits_is_evidence() -> None:
    frame = usage(FULL, FULL, FULL | {"model": "another"})
    found = tried(frame, days_under([400.0], [400.0, 300.0], [400.0]), loads_of(LOADS, LOADS, LOADS))
    assert [row["usage"] for row in found] == [2]


def test_the_experiment_comes_before_keeping_and_saves_nothing() -> None:
    frame = usage(FULL)
    limits = trials.lower_limits(frame, days_under([400.0] * 28), loads_of(LOADS))
    rows = rows_of(frame, experiments=limits)
    assert kinds(rows) == [("keep", "demand_needs_it"), ("try_it", "one_power_limit")]
    assert rows["is_preferred"].tolist() == [False, True]
    tried_row = rows.iloc[1]
    assert tried_row[["saving_kwh_month", "saving_usd_month_if_released", "risk_ratio", "freed_gpus"]].isna().all()
    assert (tried_row["recommended_gpus"], tried_row["confidence"]) == (4, None)
    assert json.loads(tried_row["evidence"])["limited_token_ratio"] == pytest.approx(0.4)
    assert rows["recommendation_id"].is_unique


def test_a_change_comes_before_the_experiment() -> None:
    frame = usage({})
    limits = trials.lower_limits(frame, days_under([400.0] * 28), loads_of(LOADS))
    rows = rows_of(frame, experiments=limits)
    assert rows.loc[rows["is_preferred"], "kind"].tolist() == ["fewer_replicas"]
    assert rows["kind"].tolist() == ["fewer_replicas", "try_it"]


@pytest.mark.parametrize("change", [{"queued_intervals": 800.0}, {"coverage_ratio": 0.5}])
def test_what_is_pressed_or_not_known_is_not_tried(change: dict[str, Any]) -> None:
    frame = usage(FULL | change)
    limits = trials.lower_limits(frame, days_under([400.0] * 28), loads_of(LOADS))
    assert "try_it" not in rows_of(frame, experiments=limits)["kind"].tolist()


def test_one_experiment_at_a_time() -> None:
    """A smaller size that data sheets allow is tried first."""
    frame = usage(LARGE)
    limits = trials.lower_limits(frame, days_under([400.0] * 28), loads_of(LOADS))
    rows = rows_of(frame, experiments=limits)
    assert len(limits) == 1
    assert [row for row in kinds(rows) if row[0] == "try_it"] == [("try_it", "data_sheet_only")]
    assert np.isnan(rows["trial_power_limit_watts"]).all()
