"""Devices without a power meter: their GPU time, activity and tokens are known, their energy is NULL and never 0."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from pipelines.booking.alarms import ALARMS
from tests.booking.test_alarms import ALL, ENGINE, HEALTHY, OUTPUT, Planted, alarming, book_of, found
from tests.shapes import Seen, Shape

ACTIVITY, MEMORY = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"
SERVING = {"UUID": "GPU-a", "Hostname": "n1", "namespace": "llm", "pod": "p-0"}
# Pods that no engine knows: one on two boards, one that reports memory alone; and an unallocated board.
TRAINING = [{"UUID": f"GPU-{name}", "Hostname": "n2", "namespace": "lab", "pod": "train-0"} for name in "bc"]
SILENT = {"UUID": "GPU-d", "Hostname": "n2", "namespace": "lab", "pod": "notebook"}
FREE = {"UUID": "GPU-e", "Hostname": "n2"}
TRACE: Planted = [
    (ACTIVITY, SERVING, ALL, 40, 0),
    (MEMORY, SERVING, ALL, 70_000, 0),
    *((ACTIVITY, board, ALL, 90, 0) for board in TRAINING),
    (MEMORY, SILENT, ALL, 1_000, 0),
    (ACTIVITY, FREE, ALL, 0, 0),
    (OUTPUT, ENGINE, ALL, 1e6, 600),  # 600 in 300 s
]


SHAPE_OF_TRACE = alarming("trace", TRACE)
METERED: Planted = [
    *HEALTHY,
    (ACTIVITY, {"UUID": "GPU-a", "Hostname": "n1", "namespace": "llm", "pod": "p-0"}, ALL, 40, 0),
    ("wall_power_watts", {"node": "n2"}, ALL, 1500, 0),
    (ACTIVITY, FREE, ALL, 50, 0),  # on n2
]
SHAPE_OF_METERED = alarming("metered", METERED)


@pytest.fixture(scope="module")
def trace(shared_book: Callable[[Shape], Seen]) -> Seen:
    """A site without metered power."""
    return shared_book(SHAPE_OF_TRACE)


def test_usage_has_the_gpus_and_no_energy(trace: Seen) -> None:
    held = trace.query(
        "select deployment, model, meter_scope, gpus, replicas, days, coverage_ratio, round(gpu_activity_ratio, 9),"
        " round(demand_tokens_per_second_mean, 2) from marts.deployment_usage order by deployment"
    )
    assert held == [
        ("lab/notebook.trace", "__unknown__", "none", 1, 1, 2, 0, None, None),
        ("lab/train-0.trace", "__unknown__", "none", 2, 1, 2, 0, 0.9, None),
        ("llm/m.trace", "m.trace", "none", 1, 1, 2, 0, 0.4, 2.0),
    ]
    energies = (
        "mean_watts, parked_watts_per_gpu, device_kwh_month, facility_kwh_month, usd_per_kwh, gco2e_per_kwh,"
        " energy_cost_usd_month, location_kgco2e_month"
    )
    assert trace.query(f"select distinct {energies} from marts.deployment_usage") == [(None,) * 8]


def test_the_book_has_no_meter_of_theirs(trace: Seen) -> None:
    for mart in ("energy_ledger", "reconciliation_daily", "model_intervals"):
        assert trace.query(f"select count(*) from marts.{mart}") == [(0,)]
    assert trace.query("select distinct has_power from marts.token_ledger") == [(False,)]


def test_advice_names_the_gpus_and_saves_nothing_that_is_not_known(trace: Seen) -> None:
    savings = "saving_kwh_month, saving_energy_usd_month, saving_usd_month_if_released, saving_kgco2e_month"
    for table in ("right_sizing", "consolidation"):
        rows = trace.query(
            f"select deployment, kind, reason_code, current_gpus, {savings}, saving_low, saving_high, confidence"
            f" from published.{table} order by deployment"
        )
        unknown = (None,) * 7
        assert rows == [
            ("lab/notebook.trace", "insufficient_data", "power_not_metered", 1, *unknown),
            ("lab/train-0.trace", "insufficient_data", "power_not_metered", 2, *unknown),
            ("llm/m.trace", "insufficient_data", "power_not_metered", 1, *unknown),
        ]
    assert trace.query("select distinct current_watts from published.consolidation") == [(None,)]
    evidence = "select json_extract_string(evidence, 'gpu_activity_ratio') from published.right_sizing order by 1"
    assert trace.query(evidence) == [("0.4",), ("0.9",), (None,)]


def test_an_alarm_names_how_many_and_where_and_what_to_do(trace: Seen) -> None:
    assert found(trace)["devices_have_power"] == [("trace", 5, date(2026, 10, 1), date(2026, 10, 2))]
    (alarm,) = [alarm for alarm in ALARMS if alarm.name == "devices_have_power"]
    assert alarm.expected == "a power or energy series of every device that reports activity or memory"
    assert "land their power as well" in alarm.remedy


def test_every_data_test_holds_without_any_power(trace: Seen) -> None:
    assert trace.failed_tests() == set()


@pytest.mark.rest
def test_a_device_without_power_changes_nothing_of_those_with_power(tmp_path: Path) -> None:
    metered = book_of(tmp_path / "metered", HEALTHY, marts=())
    both = book_of(tmp_path / "both", [*HEALTHY, *((ACTIVITY, board, ALL, 90, 0) for board in TRAINING)], marts=())
    # A rack holds them as well.
    others = {"unmetered_devices", "deployment_usage", "rack_usage_daily", "rack_economics_daily"}
    assert {k: v for k, v in both.hashes().items() if k not in others} == {
        k: v for k, v in metered.hashes().items() if k not in others
    }
    mine = "select * from marts.deployment_usage where meter_scope = 'board'"
    assert both.query(mine) == metered.query(mine) != []
    assert both.query("select deployment, gpus from marts.deployment_usage where meter_scope = 'none'") == [
        ("lab/train-0", 2)
    ]


def test_what_a_meter_of_the_board_or_its_node_measures_is_not_without_power(
    shared_book: Callable[[Shape], Seen],
) -> None:
    book = shared_book(SHAPE_OF_METERED)
    assert book.query("select count(*) from marts.unmetered_devices") == [(0,)]
    assert book.query("select distinct meter_scope from marts.deployment_usage") == [("board",)]
    assert "devices_have_power" not in found(book)
    assert book.query("select max(date) from marts.energy_ledger where node = 'n2.metered'") == [(date(2026, 10, 2),)]
