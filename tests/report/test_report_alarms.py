"""The alarms of the fleet report: one of each kind, with sentences worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.report.page import page
from tests.report import publications
from tests.report.publications import NEWEST, fleet_day
from tests.report.test_report import section

ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


def meter(name: str, cross_check_joules: float, **changes: Any) -> dict[str, Any]:
    """A row of marts.reconciliation_daily: 1 MJ by the booked reading, and what the second one measured."""
    return {
        "date": NEWEST, "meter_scope": "board", "meter": name, "site": "west", "source": "dcgm", "metric": ENERGY,
        "metered_joules": 1e6, "booked_joules": 1e6, "cross_check_source": "zeus",
        "cross_check_joules": cross_check_joules, "cross_check_ratio": (cross_check_joules - 1e6) / 1e6, **changes,
    }  # fmt: skip


def alarms(folder: Path, **tables: publications.Rows) -> str:
    return section(page(publications.write(folder, marts_fleet_daily=[fleet_day(NEWEST)], **tables)), "alarms")


@pytest.mark.parametrize(
    ("cross_check_joules", "source", "found"),
    [
        (1_080_000, "zeus", f"zeus measured 8.0 % more than {ENERGY} of dcgm"),
        (2_500_000_000, "zeus", f"zeus measured 249,900.0 % more than {ENERGY} of dcgm"),
        (940_000, "zeus", f"zeus measured 6.0 % less than {ENERGY} of dcgm"),
        (940_000, "dcgm", f"dcgm measured 6.0 % less than {ENERGY} of dcgm"),
    ],
    ids=["more", "many times more", "less", "two metrics of one source"],
)
def test_two_meters_that_disagree_are_an_alarm(
    tmp_path: Path, cross_check_joules: float, source: str, found: str
) -> None:
    shown = alarms(tmp_path, marts_reconciliation_daily=[meter("GPU-1", cross_check_joules, cross_check_source=source)])
    assert f"1 × two sources differ; the newest is of 2026-10-28: GPU-1, {found}." in shown


@pytest.mark.parametrize("cross_check_joules", [1_050_000, 950_000, 1_000_000])
def test_two_meters_within_five_percent_are_none(tmp_path: Path, cross_check_joules: float) -> None:
    shown = alarms(tmp_path, marts_reconciliation_daily=[meter("GPU-1", cross_check_joules)])
    assert "No alarm in the last 28 dates" in shown


def test_an_unusual_cost_is_an_alarm(tmp_path: Path) -> None:
    unusual = {
        "date": NEWEST, "model": "busy", "part": "energy", "cost_usd": 1234.5, "usual_usd": 100.25,
        "difference_usd": 1134.25, "is_anomaly": True,
    }  # fmt: skip
    usual = {**unusual, "model": "silent", "is_anomaly": False}
    shown = alarms(tmp_path, marts_cost_anomalies_daily=[unusual, usual])
    assert "1 × unusual cost; the newest is of 2026-10-28: busy, energy, 1,234.50 USD instead of 100.25 USD." in shown
