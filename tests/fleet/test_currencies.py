"""The reporting currency of a fleet file: one rate per month, and one line for what is wrong with it."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from pipelines.fleet.fleet_errors import FleetError
from pipelines.fleet.fleet_file import load_fleet

FLEET = """
fleet: tiny
period: {{start: 2026-10-01}}
sources: [{{name: agents, kind: spool}}]
reporting_currency: {stated}
"""


def rates(tmp_path: Path, stated: str) -> list[dict]:
    path = tmp_path / "tiny.yaml"
    path.write_text(FLEET.format(stated=stated))
    fleet = load_fleet(path, {"WATTLEDGER_DATA": str(tmp_path / "data")})
    assert fleet.reporting_currency is not None
    return list(fleet.reporting_currency.rows())


def test_a_rate_is_of_a_whole_month(tmp_path: Path) -> None:
    assert rates(tmp_path, "{currency: EUR, rates: [{month: 2026-10, usd_per_unit: 1.08}]}") == [
        {"currency": "EUR", "month": date(2026, 10, 1), "usd_per_unit": 1.08}
    ]


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("{currency: EUR}", "rates: got none, expected one per month"),
        ("{currency: USD, rates: [{month: 2026-10, usd_per_unit: 1}]}", "in which every amount is anyway"),
        (
            "{currency: EUR, rates: [{month: 2026-10, usd_per_unit: 1.1}, {month: 2026-10, usd_per_unit: 1.2}]}",
            "got two of 2026-10, expected one rate per month",
        ),
        ("{currency: EUR, rates: [{month: 2026-13, usd_per_unit: 1.1}]}", "2026-13"),
        ("{currency: EUR, rates: [{month: 2026-10, usd_per_unit: 0}]}", "usd_per_unit"),
        ("{currency: euro, rates: [{month: 2026-10, usd_per_unit: 1.1}]}", "currency"),
    ],
)
def test_a_wrong_currency_is_one_line(tmp_path: Path, stated: str, expected: str) -> None:
    with pytest.raises(FleetError) as refusal:
        rates(tmp_path, stated)
    (line,) = refusal.value.problems if hasattr(refusal.value, "problems") else str(refusal.value).splitlines()[1:]
    assert "reporting_currency" in line
    assert expected in line
