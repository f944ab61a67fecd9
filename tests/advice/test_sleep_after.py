"""published.sleep_after: what sleeping after so many idle seconds would have saved, from gaps written by hand.

A GPU draws 100 W parked and 55 W without a model; loading takes 0.3 × 400 W for 300 s, 36 kJ.
"""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pytest

from pipelines.advice.sleep_table import COLUMNS, write_sleep_after
from pipelines.analysis import sleep
from tests.advice.test_right_sizing_table import marts as marts_of_one_deployment
from tests.advice.test_sizes import usage

marts = marts_of_one_deployment
TWO_GPUS = {"replicas": 1, "gpus": 2.0, "gpus_per_replica": 2.0, "mean_watts": 400.0, "refusal": None}


def after(idle: list[int], interval_seconds: int = 300, **changes: Any) -> list[tuple[Any, ...]]:
    """Of one deployment on two GPUs: seconds, asleep seconds, wakes, waiting ratio, watts saved."""
    frame = sleep.with_break_even(usage(TWO_GPUS | changes))
    asked = sleep.Asked(np.full((1, len(idle)), np.nan), np.full((1, 1), np.nan))
    rows = sleep.after(frame, np.array([idle], dtype=np.int8), asked, interval_seconds)
    return [
        (row["sleep_after_seconds"], row["asleep_hours"] * 3600, row["wakes"], row["waiting_ratio"], row["saved_watts"])
        for row in rows.to_dict("records")
    ]


def test_each_gap_is_slept_through_from_so_many_seconds_on() -> None:
    """Gaps of 1200 and 300 s that end, and one of 300 s to the end of the lookback; 2700 of 3000 s are known. After
    300 s only the first is longer: 900 s × 45 W − 36 kJ are 4.5 kJ a GPU. After 900 s 300 s are left: 22.5 kJ lost."""
    found = after([0, 1, 1, 1, 1, 0, 1, 0, -1, 1])
    assert found == [
        (300, 900, 1, pytest.approx(300 / 2700), pytest.approx(2 * 4500 / 2700)),
        (900, 300, 1, pytest.approx(300 / 2700), pytest.approx(-2 * 22_500 / 2700)),
        (1800, 0, 0, 0, 0),
        (3600, 0, 0, 0, 0),
    ]


def test_times_shorter_than_an_interval_are_not_evidenced() -> None:
    assert [row[0] for row in after([0, 1], 60)] == [60, 300, 900, 1800, 3600]
    assert [row[0] for row in after([0, 1], 900)] == [900, 1800, 3600]


def test_a_gap_to_the_end_has_no_wake_up_and_one_that_telemetry_ends_has_one() -> None:
    """600 of 1200 s asleep × 45 W × 2 GPUs."""
    assert after([0, 1, 1, 1])[0] == (300, 600, 0, 0, pytest.approx(45))
    assert after([1, 1, 1, -1, 0])[0][1:3] == (600, 1)


def test_a_model_that_is_never_idle_for_so_long_never_wakes_and_saves_nothing() -> None:
    assert after([0, 1, 0, 1, 0, 0]) == [(seconds, 0, 0, 0, 0) for seconds in (300, 900, 1800, 3600)]


@pytest.mark.parametrize(
    ("idle", "changes"),
    [([-1, -1], {}), ([1, 0], {"refusal": "no_token_telemetry"}), ([], {"refusal": "low_coverage"})],
)
def test_without_telemetry_nothing_is_known(idle: list[int], changes: dict[str, Any]) -> None:
    assert np.isnan([row[1:] for row in after(idle, **changes)]).all()


def test_without_bare_watts_the_time_is_known_and_the_saving_is_not() -> None:
    (_, asleep, wakes, _, watts), *_ = after([0, 1, 1, 1, 0], idle_watts_bare=np.nan)
    assert (asleep, wakes, np.isnan(watts)) == (600, 1, True)


def test_a_stated_cold_start_is_what_requests_wait() -> None:
    assert after([0, 1, 1, 1, 0], cold_start_seconds=30.0)[0][3] == pytest.approx(30 / 1500)


def test_the_table_has_the_nights_of_a_deployment(marts: duckdb.DuckDBPyConnection) -> None:
    """Four GPUs of which an interval is an hour: idle for 16 hours of each of 28 days, asleep for 15 of them. 420 h ×
    45 W − 28 × 36 kJ are 67.032 MJ a GPU, of 672 hours."""
    write_sleep_after(marts)
    rows = marts.execute(
        "select sleep_after_seconds, known_hours, asleep_hours, wakes, wakes_per_day, waiting_ratio, cold_start_basis,"
        " reason_code, saving_kwh_month, saving_low, saving_high, saving_interval_basis, waiting_requests_ratio_low,"
        " waiting_requests_ratio_high from published.sleep_after"
    ).fetchall()
    watts = 4 * 67.032e6 / (672 * 3600)
    assert [row[:8] for row in rows] == [
        (3600, 672, 420, 28, 1, pytest.approx(300 / 86_400), "assumed", "ok"),
    ]
    assert rows[0][8] == pytest.approx(watts * 0.73 * 1.25)
    assert rows[0][9] < rows[0][8] < rows[0][10] and rows[0][11] == "coming_days"
    assert rows[0][12:] == (pytest.approx(1 / 800), 0.25)  # of 800 requests a day one, and those of two hours of eight
    comments = marts.execute(
        "select column_name, comment from duckdb_columns() where table_name = 'sleep_after'"
    ).fetchall()
    assert comments == [(name, meaning) for name, (_, meaning) in COLUMNS.items()]


@pytest.mark.parametrize(
    ("reasons", "code", "is_known"),
    [("meters_disagree", "figures_in_doubt", False), ("", "ok", True), (None, "ok", True)],
)
def test_figures_in_doubt_have_no_saving(
    reasons: str | None, code: str, is_known: bool, marts: duckdb.DuckDBPyConnection
) -> None:
    """The nights stay. Innocent twins: a deployment that is clean, and one that was not assessed."""
    replace_usage(marts, f"{'null' if reasons is None else repr(reasons)}::varchar as doubt_reasons")
    write_sleep_after(marts)
    ((asleep, wakes, found, *savings),) = marts.execute(
        "select asleep_hours, wakes, reason_code, saving_kwh_month, saving_energy_usd_month, saving_kgco2e_month,"
        " saving_low, saving_high, saving_interval_basis from published.sleep_after"
    ).fetchall()
    assert (asleep, wakes, found) == (420, 28, code)
    assert [one is not None for one in savings] == [is_known] * 6


def replace_usage(marts: duckdb.DuckDBPyConnection, columns: str) -> None:
    marts.execute("create or replace table intermediate.usage_given as select * from intermediate.int_advised_usage")
    marts.execute("drop view if exists intermediate.int_advised_usage")
    marts.execute("drop table if exists intermediate.int_advised_usage")
    marts.execute(
        f"create table intermediate.int_advised_usage as select * replace ({columns}) from intermediate.usage_given"
    )


def test_a_sleep_that_costs_energy_has_no_interval(marts: duckdb.DuckDBPyConnection) -> None:
    """With loading that takes ten hours of 120 W, each night costs more than it saves."""
    replace_usage(marts, "36000.0 as cold_start_seconds")
    write_sleep_after(marts)
    ((saved, low, basis, stated),) = marts.execute(
        "select saving_kwh_month, saving_low, saving_interval_basis, cold_start_basis from published.sleep_after"
    ).fetchall()
    # 420 h × 45 W − 28 × 4.32 MJ are −52.92 MJ a GPU.
    assert saved == pytest.approx(-4 * 52.92e6 / (672 * 3600) * 0.73 * 1.25)
    assert (low, basis, stated) == (None, None, "fleet_file")
