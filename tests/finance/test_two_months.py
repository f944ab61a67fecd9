"""What finance reads of two months, beside amounts that were worked out by hand from what `two_months` plants."""

from __future__ import annotations

import csv
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import openpyxl
import pytest

from pipelines.publishing.publication_manifest import REPORT, WORKBOOK
from tests.finance.two_months import Nights, run_nights

pytestmark = pytest.mark.rest

# Hours of the months, and of October before and after the 16th.
SEPTEMBER, OCTOBER, CALM, BUSY = 720, 744, 360, 384
# USD of September and October, all sites and models, by part.
PARTS = {
    "capacity": (7200, 7440),  # 10 USD an hour
    "energy": (Fraction(172, 1000) * SEPTEMBER, Fraction(172, 1000) * CALM + Fraction(244, 1000) * BUSY),
    "demand_charge": (Fraction(172, 10), Fraction(244, 10)),
    "operations": (744, 744),
}


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    return run_nights(tmp_path_factory.mktemp("months"))


def usd(value: Fraction | float) -> Any:
    """To a tenth of a cent: kWh of an interval are rounded to a millionth, tens of thousands of times."""
    return pytest.approx(float(value), abs=1e-3)


def by_name(rows: list[tuple]) -> dict[Any, Any]:
    return {name: tuple(map(float, amounts)) for name, *amounts in rows}


def test_what_the_months_cost(nights: Nights) -> None:
    found = nights.query(
        "select part, sum(known_cost_usd) filter (month = '2026-09-01'),"
        " sum(known_cost_usd) filter (month = '2026-10-01')"
        " from finance.cost group by part having sum(known_cost_usd) <> 0"
    )
    corrected = {**PARTS, "operations": (754, 744)}
    assert by_name(found) == {part: (usd(one), usd(other)) for part, (one, other) in corrected.items()}
    assert sum(float(one) for one, _ in PARTS.values()) == usd(8085.04)
    assert sum(float(other) for _, other in PARTS.values()) == usd(8364.016)


def test_a_closed_month_keeps_what_it_was_charged_with(nights: Nights) -> None:
    assert nights.printed["close September"].splitlines()[0] == "2026-09 is closed: 8,085.04 USD, fully loaded"
    assert nights.printed["close October"].splitlines()[0] == "2026-10 is closed: 8,374.02 USD, fully loaded"
    found = nights.query(
        "select strftime(month, '%m'), status, closed_cost_usd, adjustment_usd, known_cost_usd, closed_cost_in_currency"
        " from finance.months order by month"
    )
    assert [row[:2] for row in found] == [("09", "adjusted"), ("10", "closed")]
    # In October a unit of the currency is 1.25 USD.
    assert [tuple(map(float, row[2:])) for row in found] == [
        (usd(8085.04), 0, usd(8095.04), usd(8085.04)),
        (usd(8374.016), usd(10), usd(8364.016), usd(8374.016 / 1.25)),
    ]


def test_who_pays(nights: Nights) -> None:
    """chat pays for its 4 boards and two thirds of the 2 free ones, mail for 2 and one third; 60 % of chat are acme's.

    Energy of September: chat 1.44 kW, mail 0.18, free 0.1. The peak is shared by kWh, the rest by boards.
    """
    chat = (
        10 * SEPTEMBER * Fraction(4, 8) + Fraction(1440, 10_000) * SEPTEMBER + Fraction(144, 10) + 744 * Fraction(4, 8)
    )
    free = 10 * SEPTEMBER * Fraction(2, 8) + Fraction(100, 10_000) * SEPTEMBER + Fraction(10, 10) + 744 * Fraction(2, 8)
    alpha = chat + free * Fraction(2, 3)
    found = nights.query(
        "select payer || ' ' || tenant, closed_cost_usd from finance.chargeback where month = '2026-09-01'"
        " and closed_cost_usd <> 0"
    )
    assert by_name(found) == {
        "alpha acme": (usd(alpha * Fraction(3, 5)),),
        "alpha zeta": (usd(alpha * Fraction(2, 5)),),
        "beta No request log": (usd(Fraction("8085.04") - alpha),),
    }
    # The 10 USD of September's operations are paid in October: half of them for 4 boards, and so on.
    adjusted = nights.query(
        "select payer || ' ' || coalesce(names.tenant, adjusted.tenant), sum(adjustment_usd)"
        " from published.chargeback_adjustments as adjusted"
        " left join (select distinct tenant_key, tenant from finance.chargeback) as names"
        " on adjusted.tenant = names.tenant_key group by 1 having abs(sum(adjustment_usd)) > 0.0001"
    )
    of_alpha = 10 * (Fraction(1, 2) + Fraction(1, 4) * Fraction(2, 3))
    assert by_name(adjusted) == {
        "alpha acme": (usd(of_alpha * Fraction(3, 5)),),
        "alpha zeta": (usd(of_alpha * Fraction(2, 5)),),
        "beta No request log": (usd(10 - of_alpha),),
    }


def test_the_bridge_from_september_to_october(nights: Nights) -> None:
    """By hand, before September was corrected. Half as many tokens again, so volume is half of what chat's work would
    have cost in a September of 744 hours, and efficiency what it did not cost more; chat's idle floor is the 90 W that
    its type draws parked."""
    longer = Fraction(OCTOBER, SEPTEMBER)
    # What chat's work cost in September: 4 boards, their 270 W above the floor, its share of the peak.
    work = {
        "capacity": 10 * SEPTEMBER * Fraction(4, 8) * longer,
        "energy": Fraction(108, 1000) * SEPTEMBER * longer,
        "demand_charge": Fraction(144, 10),
        "operations": 744 * Fraction(4, 8),
    }
    # How much more work that was in October: hours, kWh above the floor, kWh.
    more = {
        "capacity": Fraction(1),
        "operations": Fraction(1),
        "energy": (108 * CALM + 180 * BUSY) / Fraction(108 * OCTOBER),
        "demand_charge": (144 * CALM + 216 * BUSY) / Fraction(144 * OCTOBER),
    }
    found = by_name(nights.bridge)
    assert found.keys() == PARTS.keys()
    for part, (before, after) in PARTS.items():
        calendar = before * (longer - 1) if part in ("capacity", "energy") else 0
        volume, efficiency = work[part] / 2, work[part] * (more[part] - Fraction(3, 2))
        price = _dearer_peak() if part == "demand_charge" else 0
        idle = after - before - calendar - volume - efficiency - price
        assert (part, found[part]) == (
            part,
            tuple(map(usd, (before, calendar, 0, price, volume, efficiency, idle, 0, 0, 0, after))),
        )


def _dearer_peak() -> Fraction:
    """By what a kWh's share of the peak became dearer: for chat and for mail, with their shares of what was free."""
    found = Fraction(0)
    of_free = {"chat": Fraction(2, 3), "mail": Fraction(1, 3)}
    for model, watts in {"chat": (1440, 2160), "mail": (180, 180)}.items():
        kwh = [Fraction(watts[0] * OCTOBER, 1000), Fraction(watts[0] * CALM + watts[1] * BUSY, 1000)]
        before = Fraction(172, 10) * Fraction(watts[0], 1720)
        hours = Fraction(244, 10) / OCTOBER
        after = hours * (CALM * Fraction(watts[0], 1720) + BUSY * Fraction(watts[1], 2440))
        free = hours * (CALM * Fraction(100, 1720) + BUSY * Fraction(100, 2440)) * of_free[model]
        found += (after + free) * (1 - (before / kwh[0]) / (after / kwh[1]))
    return found


def test_what_was_adjusted_afterwards_is_a_step_of_its_own(nights: Nights) -> None:
    """October got the 10 USD, and September is charged 10 USD less than is known: 20 of the 288.976 USD."""
    sums = [sum(map(float, column)) for column in list(zip(*nights.query(BRIDGE_NOW), strict=True))[1:]]
    before, *steps, after = sums
    assert (before, after, steps[-1]) == (usd(8085.04), usd(8374.016), usd(20))
    assert before + sum(steps) == usd(after)


def test_what_was_restated_and_why(nights: Nights) -> None:
    """mail's 2 boards: 90 W for 12 hours less the 5 minutes in which the last sample of the morning counts not."""
    found = nights.query(
        "select figure, part, strftime(min(date), '%m-%d'), strftime(max(date), '%m-%d'), sum(before), sum(after),"
        " reason"
        " from finance.restatements group by figure, part, reason order by figure, part"
    )
    half = Fraction(180, 1000) * (12 - Fraction(5, 60))
    whole = Fraction(180, 1000) * 24
    # A third of what the free boards draw, 0.1 kW, is mail's.
    share = Fraction(100, 1000) * 24 / 3
    assert [(*row[:4], *map(float, row[4:6]), row[6]) for row in found] == [
        ("cost", "energy", "10-28", "10-28", usd((half + share) / 10), usd((whole + share) / 10), "late data"),
        ("cost", "operations", "09-01", "09-30", usd(744), usd(754), "price"),
        ("electricity", None, "10-28", "10-28", usd(half), usd(whole), "late data"),
    ]


def test_focus_has_a_frozen_month_and_its_correction(nights: Nights) -> None:
    assert nights.focus("2026-09").read_bytes() == nights.frozen
    months = {}
    for month in ("2026-09", "2026-10"):
        with nights.focus(month).open(newline="", encoding="utf-8") as lines:
            months[month] = list(csv.DictReader(lines))
    costs = {month: sum(Decimal(row["EffectiveCost"]) for row in rows) for month, rows in months.items()}
    assert (float(costs["2026-09"]), float(costs["2026-10"])) == (usd(8085.04), usd(8374.016))
    corrections = [row for row in months["2026-10"] if row["ChargeClass"] == "Correction"]
    assert float(sum(Decimal(row["EffectiveCost"]) for row in corrections)) == usd(10)
    assert {(row["ChargePeriodStart"][:10], row["ChargePeriodEnd"][:10]) for row in corrections} == {
        ("2026-09-01", "2026-10-01")
    }
    # 6 boards are committed, and 8 are there to use them.
    used = [row for row in months["2026-09"] if row["CommitmentDiscountStatus"] == "Used"]
    assert {row["CommitmentDiscountStatus"] for row in months["2026-09"]} == {"", "Used"}
    assert float(sum(Decimal(row["EffectiveCost"]) for row in used)) == usd(6 * SEPTEMBER)
    assert float(sum(Decimal(row["CommitmentDiscountQuantity"]) for row in used)) == usd(6 * SEPTEMBER)


def test_what_was_idle(nights: Nights) -> None:
    """Four of 8 boards all the time, and 90 W of each of chat's; the peak by the idle share of the kWh of each hour."""
    idle_kwh = Fraction(640 * OCTOBER, 1000)
    peak = Fraction(244, 10) / OCTOBER * (CALM * Fraction(640, 1720) + BUSY * Fraction(640, 2440))
    expected = Fraction(10 * OCTOBER + 744, 2) + idle_kwh / 10 + peak
    ((found,),) = nights.query("select sum(idle_cost_usd) from finance.months where month = '2026-10-01'")
    assert float(found) == usd(expected) == usd(4147.3123)


def test_what_stopping_mail_saves_and_when(nights: Nights) -> None:
    """The 2 boards on demand are those that are free already, so mail's 2 are committed ones: 2 × 730 h × 1 USD, from
    the commitment's end on. A stopped board draws the 55 W of its type without a model, 35 W less."""
    ((*found, since),) = nights.query(
        "select advice, freed_accelerators::double, avoidable_now_usd_per_month::double,"
        " avoidable_later_usd_per_month::double, not_avoidable_usd_per_month::double,"
        " energy_saving_usd_per_month::double, avoidable_from from finance.savings where deployment = 'llm/mail'"
    )
    assert found == ["spin_down", 2, 0, usd(1460), 0, pytest.approx(2 * 0.035 * 730 * 0.1, abs=0.01)]
    assert since == date(2027, 1, 1)
    book = openpyxl.load_workbook(nights.fleet.published / WORKBOOK, data_only=True)
    rows = {row[0].value: [cell.value for cell in row] for row in book["What to do"].iter_rows(min_row=5)}
    assert rows["llm/mail"][5:8] == [0, pytest.approx(5.11, abs=0.01), usd(1460)]
    (mail,) = (line for line in nights.ask("table", "advice").splitlines() if line.startswith("llm/mail "))
    assert "1460.00 from 2027-01-01" in mail


def test_the_terminal_has_the_same_amounts(nights: Nights) -> None:
    rows = [" ".join(line.split()) for line in nights.printed["corrected"].splitlines()]
    assert "2026-10 open 100.0% 8,374.02 10.00 8,364.02 49.6% – 6,699.21" in rows
    assert "2026-09 adjusted 100.0% 8,085.04 – 8,095.04 49.8% – 8,085.04" in rows
    changed = nights.ask("table", "changes")
    assert changed.startswith("2026-10 against 2026-09: +288.98 USD: ")
    assert "adjustments of closed months +20.00" in changed


def test_the_report_has_the_same_amounts(nights: Nights) -> None:
    page = (nights.fleet.published / REPORT).read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    assert "October 2026 is closed, 100 % of it booked. It cost <b>8,374.0 USD</b>" in page
    assert "October 2026 cost <b>288.98 USD</b> more than September (8,374.0 USD against 8,085.0 USD)" in page
    assert "September by +10.00 USD (price)" in page
    assert "8,374.0 USD</b> of October 2026 <bdi>alpha</bdi> pays 5,624.2 USD (67 %)" in page


def test_the_workbook_has_the_same_amounts(nights: Nights) -> None:
    book = openpyxl.load_workbook(nights.fleet.published / WORKBOOK, data_only=True)
    months = [[cell.value for cell in row] for row in book["Months"].iter_rows(min_row=5)]
    assert [(f"{row[0]:%Y-%m}", row[2], *row[5:8]) for row in months] == [
        ("2026-10", "closed", usd(8374.016), usd(10), usd(8364.016)),
        ("2026-09", "adjusted", usd(8085.04), 0, usd(8095.04)),
    ]
    (changes,) = ([cell.value for cell in row] for row in book["Changes"].iter_rows(min_row=5))
    assert (changes[5], changes[-1], changes[-2]) == (usd(8085.04), usd(8374.016), usd(20))
    assert sum(changes[5:-1]) == usd(changes[-1])
    paid = {(row[0].value, row[1].value, row[2].value): row[7].value for row in book["Who pays"].iter_rows(min_row=5)}
    assert sum(value for (month, *_), value in paid.items() if f"{month:%Y-%m}" == "2026-10") == usd(8374.016)
    currency = book["Currency"]
    assert (currency["F3"].value, currency["G3"].value) == (usd(8085.04 + 8374.016), usd(8085.04 + 8374.016 / 1.25))


BRIDGE_NOW = """
select part, sum(before_usd), sum(calendar_usd), sum(coverage_usd), sum(price_usd), sum(volume_usd),
    sum(efficiency_usd), sum(idle_usd), sum(new_usd), sum(gone_usd), sum(adjustments_usd), sum(after_usd)
from finance.bridge group by part
"""
