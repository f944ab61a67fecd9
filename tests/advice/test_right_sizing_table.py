"""published.right_sizing from marts written by hand: what SQL counts, in whose hours, and what the table looks like."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from pipelines.advice.right_sizing_table import COLUMNS, write_right_sizing
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from tests.advice.test_sizes import DEPLOYMENT, usage
from tests.books import advice_models, create_advice_models
from tests.given import nothing_is_held_back

MODEL = ("weights_gib", "active_weights_gib", "weights_basis", "kv_bytes_per_token", "kv_heads", "max_tensor_parallel")
PRESSURE = ("hours", "pressure_intervals", "queued_intervals", "preempted_hours", "full_cache_hours")
JOINED = {
    "min_replicas",
    "cold_start_seconds",
    "most_waiting_ratio",
    "memory_gib",
    "memory_bandwidth_gb_per_second",
    "power_limit_watts",
}
JOINED |= {"idle_watts_bare", "context_tokens", "kv_cache_usage_ratio_max", "running_requests_max"}
JOINED |= {"request_tokens_per_second", "busiest_request_tokens_per_second", "tpot_slo_seconds"}
COUNTED = {name for name in DEPLOYMENT if name.startswith(("train_", "held_"))} - {"held_back_dates"} | {
    "busy_intervals"
}


@pytest.fixture
def marts(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Four weeks of one deployment in Los Angeles that works from 9 to 17 on its own clock, hour by hour, at 150 tokens
    a second; on the last Tuesday at noon at 250. A B200 was published to do as much with 0.3 of the joules."""
    with closing(database.connect(tmp_path / "warehouse.duckdb")) as connection:
        create_tables(connection)
        for schema in ("marts", "reference"):
            connection.execute(f"create schema {schema}")
        nothing_is_held_back(connection)
        held = usage({}).drop(columns=[*MODEL, *PRESSURE, *JOINED, *COUNTED, "has_queue_telemetry"])
        footprint = pd.DataFrame(
            [{"model": "m", "context_tokens": 8192, "published_model": "m-8B", "precision": "bf16", "parameters": 8e9}]
        )
        footprint = footprint.assign(kv_basis="seed", **{name: DEPLOYMENT[name] for name in MODEL})
        footprints = pd.concat([footprint, footprint.assign(model="org/m-8B")])
        start = datetime(2026, 10, 1, tzinfo=UTC)
        hours = [start + timedelta(hours=n) for n in range(28 * 24)]
        local = [at - timedelta(hours=7) for at in hours]
        rates = [
            250 if (at.month, at.day, at.hour) == (10, 27, 12) else 150 if 9 <= at.hour < 17 else 0 for at in local
        ]
        interval = {name: DEPLOYMENT[name] for name in ("site", "model", "device_type", "meter_scope", "role")}
        intervals = pd.DataFrame(
            {
                **interval,
                "deployment": "d0",
                "date": [at.date() for at in hours],
                "interval_start_at": hours,
                "interval_seconds": 3600,
                "engines": 4,
                "matched_gpu_seconds": 4 * 3600.0,
                "matched_joules": [4 * 3600.0 * (300 if rate else 100) for rate in rates],
                "matched_output_tokens": [3600.0 * rate for rate in rates],
                "matched_total_tokens": [7200.0 * rate for rate in rates],
                "matched_computed_input_tokens": [3600.0 * rate for rate in rates],
            }
        )
        waits = {"intervals": 12, "queued_intervals": 0, "running_requests_max": 8.0, "preemptions": None}
        pressure = intervals[["site", "deployment", "model", "role", "date"]].assign(
            hour_start_at=hours,
            **waits,
            kv_cache_usage_ratio_max=None,
            has_queue_telemetry=True,
            finished_requests=[100.0 if rate else 0.0 for rate in rates],
        )
        published = {"model": "org/m-8B", "accelerators": 1.0, "inter_token_latency_seconds": 0.02}
        benchmarks = pd.DataFrame(
            [
                published
                | {"accelerator": "A100", "output_tokens_per_second_per_gpu": 900.0, "joules_per_output_token": 1.0},
                published
                | {"accelerator": "B200", "output_tokens_per_second_per_gpu": 2000.0, "joules_per_output_token": 0.3},
                published
                | {"accelerator": "B200", "output_tokens_per_second_per_gpu": 9000.0, "joules_per_output_token": 0.1}
                | {"inter_token_latency_seconds": 0.06},
            ]
        )
        # Eight hours of each date at 37.5 tok/s per GPU, half octave 10: 300 W under a limit of 400 W.
        dates = intervals[[*interval, "deployment", "date"]].drop_duplicates()
        curve = dates.assign(load_bin=10, intervals=8, gpu_seconds=115200.0, tokens=4.32e6, joules=300 * 115200.0)
        limited = dates.assign(meters=4, meters_with_limit=4, power_limit_watts_min=400.0, power_limit_watts_max=400.0)
        goodput = intervals.assign(requests=100, good_requests_low=100)[intervals["matched_output_tokens"] > 0]
        # A load test of a fifth engine of that size, which names the engine: not more than 90 tok/s.
        test = {"model": "m", "device_type": "a100", "requests_basis": "stated", "engine": "e", "gpus": 1.0}
        phases = pd.DataFrame(
            [test | {"output_tokens_per_second": 90.0, "failed_requests": 0, "tpot_p99_seconds": 0.02}]
        )
        types = pd.DataFrame(
            {"device_type": ["a100", "b200-sxm"], "gpus": 1, "valid_from": ["2020-11-01", "2025-01-01"]}
        )
        types = types.assign(memory_gib=80.0, memory_bandwidth_gb_per_second=2039.0)
        types = types.assign(idle_watts_bare=55.0, power_limit_watts=400.0)
        types = types.assign(idle_watts_loaded=None, embodied_kgco2e=None)
        models = pd.DataFrame([{"model": "m-8B", "kv_bytes_per_element": 2.0}])
        bits = {"precision": ["int8", "int4"], "weight_bytes_per_parameter": [1.03, 0.58]}
        for name, frame in {
            "reference.models": models,
            "reference.weight_precisions": pd.DataFrame(bits),
            "marts.deployment_usage": held,
            "marts.model_footprints": footprints,
            "marts.model_intervals": intervals,
            "marts.pressure_hourly": pressure,
            "marts.benchmark_efficiency": benchmarks,
            "marts.efficiency_curve_daily": curve,
            "marts.goodput_hourly": goodput,
            "marts.load_test_phases": phases,
            "marts.power_limits_daily": limited,
            "reference.device_types": types,
        }.items():
            connection.register("frame", frame)
            connection.execute(f"create table {name} as select * from frame")
        connection.execute("alter table marts.deployment_usage alter last_seen_date type date")
        connection.execute("alter table marts.deployment_usage alter as_of_date type date")
        for name in ("preemptions", "kv_cache_usage_ratio_max"):
            connection.execute(f"alter table marts.pressure_hourly alter {name} type double")
        connection.execute("insert into fleet.sites (site, time_zone) values ('west', 'America/Los_Angeles')")
        connection.execute("insert into fleet.models (model, min_replicas) values ('m', 1)")
        connection.execute("update fleet.models set slo_attainment_ratio = 0.95")
        others = ("_engines", "_budgets", "_cost_days", "_months", "_month_rests", "_boards", "_capacity_prices")
        others += ("_changes", "_change_hours", "_date_hours", "_load_prices")
        create_advice_models(connection, *(name for name in advice_models() if not name.endswith(others)))
        # Four boards of one node, at 2 USD an hour each.
        names = ("site", "deployment", "model", "device_type", "meter_scope", "role")
        holder = "/".join(str(DEPLOYMENT[name]) for name in names)
        connection.execute(
            "create table intermediate.int_advised_boards as select * from (values (?, ?, 'n0', ?, 4.0))"
            " as t (site, device_type, unit, holder, gpus)",
            [DEPLOYMENT["site"], DEPLOYMENT["device_type"], holder.replace(str(DEPLOYMENT["deployment"]), "d0")],
        )
        connection.execute(
            "create table intermediate.int_advised_capacity_prices as select site, device_type,"
            " date '2026-10-29' as on_date, 'on_demand' as paid_as, null::double as gpus, 2.0 as usd_per_gpu_hour,"
            " null::date as valid_from, null::date as valid_to from intermediate.int_advised_boards"
        )
        yield connection


def test_hours_are_the_sites_and_every_interval_is_counted(marts: duckdb.DuckDBPyConnection) -> None:
    rows, tests = write_right_sizing(marts)
    found = rows.set_index("kind")
    assert sorted(found.index) == ["fewer_replicas", "newer_device", "sleep_outside_hours"]
    # 150 tok/s need 187.5: two replicas of 100; the hour of 250 is one of 672 in which they would have been short.
    assert found.loc["fewer_replicas", "recommended_gpus"] == 2
    assert found.loc["fewer_replicas", "risk_ratio"] == pytest.approx(1 / 672)
    assert found.loc["fewer_replicas", "backtest_short_ratio"] == pytest.approx(1 / 168)
    # 16 hours of each day on the site's own clock; no hour of the last week broke them.
    assert found.loc["sleep_outside_hours", "idle_hours_per_week"] == 7 * 16
    assert found.loc["sleep_outside_hours", "backtest_short_ratio"] == 0
    # Within 50 ms a token: 0.5 × 2000 tok/s and 0.3 J, not the 0.1 J of the slow setting.
    assert found.loc["newer_device", "recommended_device_type"] == "b200-sxm"
    assert found.loc["newer_device", "saving_kwh_month"] == pytest.approx(0.7 * 80 * 0.73 * 1.25)
    assert sorted(tests["kind"]) == sorted(found.index)


def test_an_hour_without_enough_is_pressed_and_a_size_is_measured_by_its_best(
    marts: duckdb.DuckDBPyConnection,
) -> None:
    """One interval of an hour in which requests waited, the hour of a preemption, the one of a full cache. 250 tok/s
    of four engines with 8 requests each at most: 7.8 to one. In production an engine did 100, in its test 90."""
    for change, at in (
        ("queued_intervals = 1", "2026-10-27 19:00"),
        ("preemptions = 2", "2026-10-14 10:00"),
        ("kv_cache_usage_ratio_max = 0.9", "2026-10-14 11:00"),
        ("kv_cache_usage_ratio_max = 0.89", "2026-10-14 12:00"),
    ):
        marts.execute(f"update marts.pressure_hourly set {change} where hour_start_at = timestamptz '{at}+00'")
    pressed = marts.execute(
        "select strftime(interval_start_at, '%m-%d %H') from intermediate.int_advised_intervals where is_pressed"
        " order by all"
    ).fetchall()
    assert pressed == [("10-14 10",), ("10-14 11",), ("10-27 19",)]
    fastest = marts.execute("select request_tokens_per_second from intermediate.int_advised_usage").fetchall()
    assert fastest == [(pytest.approx(250 / 32),)]
    # A third of the hours has 150 tok/s: so has the 99th percentile, and the median of what is not below it.
    busiest = "select busiest_request_tokens_per_second, tpot_slo_seconds from intermediate.int_advised_usage"
    assert marts.execute(busiest).fetchall() == [(pytest.approx(150 / 32), None)]
    marts.execute("update fleet.models set tpot_slo_seconds = 0.04").fetchall()
    assert marts.execute(busiest).fetchall() == [(pytest.approx(150 / 32), 0.04)]
    marts.execute("update fleet.models set tpot_slo_seconds = null").fetchall()
    measured = "select * from intermediate.int_advised_measured_sizes order by all"
    assert marts.execute(measured).fetchall() == [("m", "a100", "unified", 1, 100)]
    marts.execute("update marts.load_test_phases set output_tokens_per_second = 120, gpus = 2").fetchall()
    assert marts.execute(measured).fetchall()[1:] == [("m", "a100", "unified", 2, 120)]
    # A test that failed requests, that was slower than the SLO, or of which the engine is not known, is none.
    for change in (
        "failed_requests = 1",
        "tpot_p99_seconds = 0.06, failed_requests = 0",
        "tpot_p99_seconds = 0.01, engine = null",
    ):
        marts.execute("update fleet.models set tpot_slo_seconds = 0.05").fetchall()
        marts.execute(f"update marts.load_test_phases set {change}").fetchall()
        assert len(marts.execute(measured).fetchall()) == 1


@pytest.mark.parametrize(("tokens", "hours"), [(0, 7 * 16), (1, 7 * 16 - 1)])
def test_an_hour_of_which_a_part_is_missing_is_not_seen_unless_it_worked(
    marts: duckdb.DuckDBPyConnection, tokens: int, hours: int
) -> None:
    """Three o'clock at night of one Wednesday: the other three had no requests then."""
    marts.execute(
        "update marts.model_intervals set interval_seconds = 1800, matched_output_tokens = ?, matched_total_tokens = ?"
        " where interval_start_at = timestamptz '2026-10-14 10:00+00'",
        [tokens, tokens],
    ).fetchall()
    rows, _ = write_right_sizing(marts)
    assert rows.set_index("kind").loc["sleep_outside_hours", "idle_hours_per_week"] == hours


def test_a_limit_that_the_fleet_worked_under_is_a_power_cap(marts: duckdb.DuckDBPyConnection) -> None:
    """14 of 28 dates under 300 W, 240 W drawn: 60 W less in 224 of 672 hours of 4 GPUs is 80 W; × 0.73 × PUE 1.25. One
    of 672 hours asked for more than was seen. No GPU is freed, and the dates held back know one limit: no replay."""
    lower = "date < date '2026-10-15'"
    marts.execute(f"update marts.efficiency_curve_daily set joules = 240 * gpu_seconds where {lower}")
    marts.execute(
        f"update marts.power_limits_daily set power_limit_watts_min = 300, power_limit_watts_max = 300 where {lower}"
    )
    rows, _ = write_right_sizing(marts)
    (row,) = rows[rows["kind"] == "power_cap"].to_dict("records")
    assert (row["current_power_limit_watts"], row["recommended_power_limit_watts"]) == (400, 300)
    assert (row["reason_code"], row["evidence_basis"]) == ("seen_at_lower_limit", "lower_limit_within_slo")
    assert row["saving_kwh_month"] == pytest.approx(80 * 0.73 * 1.25)
    assert (row["saving_low"], row["saving_high"]) == pytest.approx((73, 73))
    assert (row["saving_energy_usd_month"], row["saving_kgco2e_month"]) == pytest.approx((73 * 0.2, 73 * 0.4))
    assert row["recommended_capacity_tokens_per_second"] == 150
    assert row["risk_ratio"] == pytest.approx(1 / 672)
    assert (row["current_gpus"], row["recommended_gpus"], row["exclusive_group_id"]) == (4, 4, "west/d0/m/unified")
    assert row["confidence"] == "high"
    assert pd.isna(row["saving_usd_month_if_released"]) and pd.isna(row["backtest_held"])


@pytest.mark.parametrize(
    "change",
    [
        "update marts.goodput_hourly set good_requests_low = 90 where date < date '2026-10-15'",
        "delete from marts.goodput_hourly where date < date '2026-10-15'",
        "update marts.power_limits_daily set meters_with_limit = 3",
        "update marts.power_limits_daily set power_limit_watts_min = 299"
        " where date between '2026-10-02' and '2026-10-14'",
        "update marts.efficiency_curve_daily set load_bin = 4 where date < date '2026-10-15'",
        "update marts.model_intervals set matched_output_tokens = matched_output_tokens / 2"
        " where date < date '2026-10-15'",
        "update marts.pressure_hourly set queued_intervals = 12",
    ],
    ids=["slo_broken", "slo_not_judged", "a_board_is_silent", "mixed_dates", "other_loads", "less_carried", "queueing"],
)
def test_a_lower_limit_that_did_not_serve_or_was_not_seen_is_none(
    marts: duckdb.DuckDBPyConnection, change: str
) -> None:
    lower = "date < date '2026-10-15'"
    marts.execute(f"update marts.efficiency_curve_daily set joules = 240 * gpu_seconds where {lower}")
    marts.execute(
        f"update marts.power_limits_daily set power_limit_watts_min = 300, power_limit_watts_max = 300 where {lower}"
    )
    marts.execute(change)
    rows, _ = write_right_sizing(marts)
    assert "power_cap" not in set(rows["kind"])


def test_a_power_limit_is_tried_where_boards_always_had_their_highest_one(marts: duckdb.DuckDBPyConnection) -> None:
    """400 W on all dates. All loads draw 360 W then, more than 0.8 of that; at 300 W none would be limited. The change
    that saves is preferred. Of 28 dates one under 300 W is a second limit, and no evidence of it."""
    rows, _ = write_right_sizing(marts)
    assert "try_it" not in set(rows["kind"])
    marts.execute("update marts.efficiency_curve_daily set joules = 360 * gpu_seconds")
    rows, _ = write_right_sizing(marts)
    (tried,) = rows[rows["kind"] == "try_it"].to_dict("records")
    assert (tried["reason_code"], tried["is_preferred"]) == ("one_power_limit", False)
    assert (tried["current_power_limit_watts"], tried["trial_power_limit_watts"], tried["trial_days"]) == (400, 320, 7)
    marts.execute(
        "update marts.power_limits_daily set power_limit_watts_min = 300, power_limit_watts_max = 300"
        " where date = '2026-10-10'"
    )
    rows, _ = write_right_sizing(marts)
    assert "try_it" not in set(rows["kind"])


def test_the_table_is_described_and_the_same_each_time(marts: duckdb.DuckDBPyConnection) -> None:
    write_right_sizing(marts)
    digest = "select count(*), bit_xor(hash(t)) from published.right_sizing as t"
    first = marts.execute(digest).fetchall()
    write_right_sizing(marts)
    assert marts.execute(digest).fetchall() == first
    comments = marts.execute(
        "select column_name, comment from duckdb_columns() where table_name = 'right_sizing'"
    ).fetchall()
    assert comments == [(name, meaning) for name, (_, meaning) in COLUMNS.items()]
    assert marts.execute("select count(*) from duckdb_tables() where temporary").fetchall() == [(0,)]


def test_a_fleet_of_which_nothing_is_booked_has_an_empty_table(marts: duckdb.DuckDBPyConnection) -> None:
    marts.execute("delete from marts.deployment_usage")
    rows, tests = write_right_sizing(marts)
    assert (len(rows), len(tests)) == (0, 0)
    assert marts.execute("select count(*) from published.right_sizing").fetchall() == [(0,)]
