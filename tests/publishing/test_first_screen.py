"""The five things that the report, the terminal and `serve` open with.

November has two sites; October is over. Of the models `big` has the most tokens, `idle` none, and `split` is metered at
boards and at its node.
"""

from __future__ import annotations

from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.publishing import first_screen
from pipelines.publishing.parts import Parts
from pipelines.report import page
from tests.report import publications
from tests.report.publications import advice

OCTOBER, NOVEMBER = date(2026, 10, 1), date(2026, 11, 1)


def month(of: date, site: str, **changes: Any) -> dict[str, Any]:
    row = {
        "month": of, "site": site, "booked_hours": 360, "month_hours": 720, "known_cost_usd": 100, "idle_cost_usd": 50,
        "forecast_usd": 200, "is_cost_complete": True, "facility_energy_kwh": 30,
    }  # fmt: skip
    return {**row, **changes}


def model(name: str, joules: float, tokens: float, **changes: Any) -> dict[str, Any]:
    row = {
        "month": NOVEMBER, "site": "west", "model": name, "meter_scope": "board", "energy_joules": joules,
        "matched_joules": joules, "output_tokens": tokens, "total_tokens": tokens, "matched_output_tokens": tokens,
        "doubt_reasons": "",
    }  # fmt: skip
    return {**row, **changes}


MONTHS = [
    month(OCTOBER, "west", known_cost_usd=999, facility_energy_kwh=999),
    month(NOVEMBER, "west"),
    month(NOVEMBER, "east", known_cost_usd=300, idle_cost_usd=70, forecast_usd=500, facility_energy_kwh=10),
]
MODELS = [
    model("big", 2_000, 1_000),
    model("split", 900, 300),
    model("split", 100, 300, meter_scope="node"),
    model("small", 40, 10, doubt_reasons="hidden_processes", doubted_tokens=10, doubted_tokens_ratio=1.0),
    model("least", 40, 5),
    model("idle", 5_000, 0),
    model("__unallocated__", 5_000, 0),
    model("big", 7, 1, month=OCTOBER),
]
ADVICE = [
    advice("less", "fewer_gpus", saving_now_usd_month=10, saving_kwh_month=900),
    advice("most", "spin_down", saving_now_usd_month=7_000, saving_kwh_month=None),
    advice("other", "spin_down", saving_now_usd_month=9_000, saving_kwh_month=1, is_preferred=False),
]
METERED = {
    "month": NOVEMBER, "site": "__all__", "model": "__all__", "meter_scope": "__all__", "figure": "facility_energy_kwh",
    "metered_ratio": 0.25,
}  # fmt: skip


def shown(folder: Path, **tables: Any) -> dict[str, str]:
    rows = {
        "finance_months": MONTHS,
        "marts_model_monthly": MODELS,
        "published_right_sizing": ADVICE,
        "marts_figure_intervals": [METERED],
        **tables,
    }
    path = publications.write(folder, **rows)
    with closing(duckdb.connect(str(path), read_only=True)) as connection:
        found = dict(first_screen.things(connection, parts := Parts()))
    assert parts.failed == []
    return found


def test_they_are_of_the_newest_month_and_of_all_sites(tmp_path: Path) -> None:
    """400 USD, 120 of it idle, 700 at the end; 40 kWh; 2,000 J / 1,000; 900 J of the boards / 300; 40 J / 10."""
    assert shown(tmp_path) == {
        "cost of 2026-11": "400.00 USD so far (50.0% booked), 30.0% of it idle; 700.00 at its end",
        "J per output token": "big 2.0000, split 3.0000, small 4.0000?",
        "electricity": "40.0 kWh with hosts and cooling: 25.0% of it metered, the rest assumed",
        "change first": "llm/most: spin down, saves 7,000.00 USD a month",
        "what is wrong": "in doubt: small (hidden_processes)",
    }


def test_what_is_not_known_is_not_0(tmp_path: Path) -> None:
    nothing = {"known_cost_usd": None, "idle_cost_usd": None, "forecast_usd": None, "facility_energy_kwh": None}
    found = shown(
        tmp_path / "a",
        finance_months=[month(NOVEMBER, "west", **nothing)],
        marts_model_monthly=[model("idle", 5_000, 0)],
        published_right_sizing=[],
        marts_figure_intervals=[],
    )
    assert list(found.values()) == [
        "not known: no price",
        "no model with tokens",
        "not known: no meter",
        "no advice yet",
        "nothing is held back, in doubt or over its budget",
    ]
    found = shown(
        tmp_path / "b",
        finance_months=[
            month(NOVEMBER, "west", booked_hours=720, is_cost_complete=False),
            month(NOVEMBER, "east", booked_hours=720, forecast_usd=None),
        ],
        published_right_sizing=[advice("kept", "keep", saving_now_usd_month=None, saving_kwh_month=None)],
        marts_figure_intervals=[],
        marts_held_back_dates=[{"date": NOVEMBER, "invariant": name} for name in ("a", "b")],
        finance_budgets=[
            {"month": NOVEMBER, "budget": "research", "expected_overrun_usd": 1},
            {"month": NOVEMBER, "budget": "held", "expected_overrun_usd": 0},
            {"month": OCTOBER, "budget": "old", "expected_overrun_usd": 9},
        ],
    )
    assert found["cost of 2026-11"] == "≥ 200.00 USD, 50.0% of it idle"
    assert found["electricity"] == "60.0 kWh with hosts and cooling"
    assert found["change first"] == "nothing that saves at once"
    assert found["what is wrong"] == (
        "1 date held back; in doubt: small (hidden_processes); over budget at the month's end: research"
    )


def test_an_older_publication_has_none(tmp_path: Path) -> None:
    path = publications.write(tmp_path)
    with closing(duckdb.connect(str(path))) as connection:
        assert first_screen.things(connection, Parts()) == []
        connection.execute("drop schema finance cascade")
        assert first_screen.things(connection, Parts()) == []
    assert '<dl class="first">' not in page.page(path)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "\u202egpt"])
def test_the_report_has_them_in_the_same_words_with_harmless_names(tmp_path: Path, name: str) -> None:
    days = [publications.model_day(publications.NEWEST, name)]
    path = publications.write(
        tmp_path, finance_months=MONTHS, marts_model_monthly=[model(name, 20, 10)], marts_model_daily=days,
        marts_fleet_daily=[publications.fleet_day(publications.NEWEST)],
    )  # fmt: skip
    opening = page.page(path).partition('<dl class="first">')[2].partition("</dl>")[0]
    assert "400.00 USD so far (50.0% booked), 30.0% of it idle; 700.00 at its end" in opening.replace("\xa0", " ")
    assert " 2.0000" in opening.replace("\xa0", " ")
    assert name not in opening
