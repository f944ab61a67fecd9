"""What of a publication is an alarm, with amounts worked out by hand; and the cases that look alike and are none."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipelines.alarming import ledger_alarms
from pipelines.alarming.alarm import Alarm
from pipelines.alarming.delivery import after_run
from pipelines.alarming.ledger_alarms import QUERIES, published_alarms
from pipelines.alarming.run_alarms import run_alarms
from pipelines.alarming.run_outcome import Found, Outcome, together
from pipelines.fleet.fleet_file import Fleet
from pipelines.warehouse import database, statements
from tests.alarming.test_receivers import NIGHT, fleet_with
from tests.query_branches import without_rows
from tests.report import publications
from tests.report.publications import NEWEST, fleet_day

BUDGET = {
    "as_of_date": NEWEST, "billing_month": NEWEST.replace(day=1), "budget": "chat", "scope": "team",
    "scope_name": "chat", "budget_usd": 1000.0, "spent_usd": 900.0, "forecast_usd": 1025.5, "forecast_low_usd": 1010.0,
    "forecast_high_usd": 1040.0, "expected_overrun_usd": 25.5, "is_in_progress": True,
}  # fmt: skip
UNUSUAL = {
    "date": NEWEST, "scope": "model_part", "site": "west", "model": "busy", "part": "energy", "cost_usd": 1234.5,
    "usual_usd": 100.25, "difference_usd": 1134.25, "is_anomaly": True,
}  # fmt: skip
WHOLE_FLEET = {**UNUSUAL, "scope": "fleet", "site": "__all__", "model": "__all__", "part": "__all__"}
SAVING = {
    "month": NEWEST.replace(day=1), "site": "west", "deployment": "llm/idle", "model": "idle", "advice": "spin_down",
    "device_type": "a6000", "freed_accelerators": 8.0, "saving_now_usd_per_month": 1200.5,
    "saving_kwh_per_month": 100.0, "confidence": "high", "as_of_date": NEWEST,
}  # fmt: skip
BROKEN = {
    "date": NEWEST, "invariant": "every_metered_joule_is_booked_once", "table_name": "reconciliation_daily",
    "row_number": 1, "row_key": "meter GPU-1", "found": 1_000_100.0, "unit": "J booked", "expected": "1,000,000",
    "remedy": "keep the warehouse, and report the rows", "broken_rows": 1,
}  # fmt: skip
DAY = {
    "marts_fleet_daily": [fleet_day(NEWEST)],
    "marts_cost_daily": [publications.cost(NEWEST, "busy", 12.25, basis="allocation"),
        publications.cost(NEWEST, "busy", 12.25, basis="usage")],
    "marts_site_footprint_daily": [{"date": NEWEST, "site": site, "facility_energy_kwh": 0.5} for site in ("a", "b")],
}  # fmt: skip
# Of each query: rows of which each branch is reached by one.
ROWS: dict[str, publications.Rows] = {
    "finance_savings": [SAVING],
    "marts_budget_monthly": [BUDGET, {**BUDGET, "budget": "spent", "spent_usd": 1001.0}],
    "marts_cost_anomalies_daily": [UNUSUAL, {**WHOLE_FLEET, "date": NEWEST.replace(day=27)}],
    "marts_held_back_dates": [BROKEN],
}
TWO_DATES = [publications.publication(start_date=NEWEST.replace(day=27))]


def published(folder: Path, **tables: publications.Rows) -> Fleet:
    """A fleet with such a publication, which hears of advice from 1,000 USD a month on."""
    fleet = fleet_with(folder, advice_usd_per_month=1000)
    publications.write(fleet.published, **tables)
    return fleet


def alarms(folder: Path, **tables: publications.Rows) -> tuple[Alarm, ...]:
    return published_alarms(published(folder, **tables), {"costs_are_usual": "see cost_change_daily"}).alarms


@pytest.mark.parametrize("kind", QUERIES)
def test_every_branch_of_a_query_runs_on_rows(kind: str, tmp_path: Path) -> None:
    fleet = published(tmp_path, published_publication=TWO_DATES, **DAY, **ROWS)
    query = statements.read(ledger_alarms.__file__, QUERIES[kind][0])
    parameters = {"usd_per_month": 1000} if kind == "advice" else None
    with closing(database.connect(fleet.snapshot, read_only=True)) as connection:
        assert without_rows(connection, query, parameters) == []


def test_a_budget_that_will_break_warns_and_one_that_is_spent_is_an_error(tmp_path: Path) -> None:
    spent = {**BUDGET, "budget": "web", "scope": "site", "scope_name": "west", "spent_usd": 1100.25}
    # What becomes of the month is not known yet: it is spent all the same.
    spent |= dict.fromkeys(["forecast_usd", "forecast_low_usd", "forecast_high_usd", "expected_overrun_usd"])
    kept = {**BUDGET, "budget": "kept", "forecast_usd": 1000.0, "expected_overrun_usd": 0.0}
    over = {**BUDGET, "budget": "last month", "is_in_progress": False}
    remedy = (
        "see finance.cost and finance.bridge for what it is spent on and what changed; follow advice"
        " (finance.savings), or change the budget in the fleet file"
    )
    assert alarms(tmp_path, marts_budget_monthly=[BUDGET, spent, kept, over]) == (
        Alarm(
            "budget", "chat 2026-10", "warning", "the budget chat of team chat will be exceeded in October 2026",
            "900.00 of 1,000.00 USD spent by the end of 2026-10-28; 1,025.50 USD expected by the end of the month"
            " (1,010.00 to 1,040.00)",
            remedy, amount_of="over the budget", usd=25.5,
        ),
        Alarm(
            "budget", "web 2026-10", "error", "the budget web of site west is spent in October 2026",
            "1,100.25 of 1,000.00 USD spent by the end of 2026-10-28",
            remedy, amount_of="over the budget", usd=100.25,
        ),
    )  # fmt: skip


def test_an_unusual_cost_of_the_booked_dates_is_an_alarm(tmp_path: Path) -> None:
    earlier = {**UNUSUAL, "date": NEWEST.replace(day=20), "model": "earlier"}
    usual = {**UNUSUAL, "model": "usual", "is_anomaly": False}
    (found,) = alarms(tmp_path, marts_cost_anomalies_daily=[UNUSUAL, WHOLE_FLEET, earlier, usual])
    assert found == Alarm(
        "cost", "west busy energy", "warning", "the cost of west, busy, energy is unusual",
        "2026-10-28: 1,234.50 USD instead of 100.25 USD", "see cost_change_daily", "2026-10-28T00:00:00+00:00",
        amount_of="against what is usual", usd=1134.25,
    )  # fmt: skip
    assert found.how_much == "1,134.25 USD against what is usual"


def test_the_fleets_own_cost_is_an_alarm_where_no_model_explains_it(tmp_path: Path) -> None:
    (found,) = alarms(tmp_path, marts_cost_anomalies_daily=[WHOLE_FLEET])
    assert (found.name, found.what) == ("__all__ __all__ __all__", "the cost of the fleet is unusual")


def test_advice_is_an_alarm_from_the_stated_amount_on(tmp_path: Path) -> None:
    less = {**SAVING, "deployment": "llm/less", "saving_now_usd_per_month": 999.99}
    exactly = {**SAVING, "deployment": "llm/exactly", "saving_now_usd_per_month": 1000.0}
    exactly |= dict.fromkeys(["freed_accelerators", "saving_kwh_per_month", "confidence"])
    unknown = {**SAVING, "deployment": "llm/unknown", "saving_now_usd_per_month": None}
    tables: dict[str, Any] = {"finance_savings": [SAVING, less, exactly, unknown]}
    fleet = published(tmp_path, **tables)
    remedy = (
        "see what it takes in the fleet report (`wattledger report`) and in published.right_sizing or"
        " published.consolidation"
    )
    assert published_alarms(fleet, {}).alarms == (
        Alarm(
            "advice", "spin_down west llm/idle a6000", "info", "llm/idle: spin_down saves 1,200.50 USD a month at once",
            "8 accelerators (a6000) of west are freed; 100.0 kWh a month; confidence high",
            remedy, amount_of="a month", usd=1200.5, joules=360e6,
        ),
        Alarm(
            "advice", "spin_down west llm/exactly a6000", "info",
            "llm/exactly: spin_down saves 1,000.00 USD a month at once", "",
            remedy, amount_of="a month", usd=1000.0,
        ),
    )  # fmt: skip
    # Without an amount in the fleet file no advice is one.
    assert published_alarms(fleet_with(tmp_path), {}).alarms == ()


def test_a_date_that_is_held_back_is_an_alarm_and_its_checks_are_none(tmp_path: Path) -> None:
    fleet = published(tmp_path, marts_held_back_dates=[BROKEN], **DAY)
    found = published_alarms(fleet, {})
    assert found.alarms == (
        Alarm(
            "held_back", "2026-10-28", "error", "2026-10-28 is held back: every_metered_joule_is_booked_once",
            "marts.reconciliation_daily, meter GPU-1: 1,000,100 J booked, expected 1,000,000",
            "keep the warehouse, and report the rows", "2026-10-28T00:00:00+00:00",
            amount_of="published of the date before", usd=12.25, joules=3.6e6,
        ),
    )  # fmt: skip
    check = Found("marts/reconciliation_daily", "every_metered_joule_is_booked_once", passed=False, is_error=True)
    outcome = Outcome(NIGHT, is_success=True, checks=(check, replace(check, name="days_add_up_to_months")))
    assert [one.name for one in run_alarms(outcome, found.held_back)] == [
        "marts/reconciliation_daily days_add_up_to_months"
    ]


def test_a_command_of_several_runs_fails_where_one_of_them_did() -> None:
    was_late = Found("raw/landings", "power_answered", passed=False, is_error=True, text="of May")
    was_fine = replace(was_late, passed=True, text="")
    other = Found("raw/series", "families_stay", passed=True, is_error=False)
    first = Outcome(NIGHT, is_success=True, checks=(was_late, other), is_whole=False, began_at=NIGHT)
    last = Outcome(NIGHT, is_success=True, checks=(was_fine, replace(other, passed=False)))
    assert together([last]) == last
    both = together([first, last])
    assert (both.checks, both.is_whole, both.began_at) == ((was_late, replace(other, passed=False)), True, NIGHT)
    assert not both.is_good
    failed = replace(first, is_success=False, failures=("full",))
    assert (together([failed, last]).is_success, together([failed, last]).failures) == (False, ("full",))


def test_a_failed_run_has_what_a_date_is_about(tmp_path: Path) -> None:
    written = tmp_path / "message"
    command = {"name": "pager", "kind": "command", "command": ["sh", "-c", f"cat > {written}"]}
    fleet = fleet_with(tmp_path, command)
    publications.write(fleet.published, **DAY)
    outcome = Outcome(NIGHT, is_success=False, failures=("full",), remedies={})
    assert after_run(fleet, outcome, NIGHT) == []
    assert '"amount_of": "on the newest published date", "usd": 12.25, "joules": 3600000.0' in written.read_text()
    # Nothing is published: no amount, and not 0.
    fleet.snapshot.unlink()
    (fleet.root / "alarms.json").unlink()
    assert after_run(fleet, outcome, datetime(2026, 10, 29, tzinfo=UTC)) == []
    assert "usd" not in written.read_text()


def test_a_publication_that_cannot_be_read_costs_its_own_alarms_alone(tmp_path: Path) -> None:
    written = tmp_path / "message"
    fleet = fleet_with(tmp_path, {"name": "pager", "kind": "command", "command": ["sh", "-c", f"cat > {written}"]})
    publications.write(fleet.published, marts_budget_monthly=[BUDGET])
    good = Outcome(NIGHT, is_success=True, remedies={})
    after_run(fleet, good, NIGHT)
    whole = fleet.snapshot.read_bytes()
    fleet.snapshot.write_bytes(b"no database")
    assert after_run(fleet, replace(good, is_success=False, failures=("full",)), NIGHT) == []
    message = json.loads(written.read_text())
    assert [(one["status"], one["name"]) for one in message["alarms"]] == [("new", "run"), ("new", "publication")]
    assert message["alarms"][1]["which"].startswith("IOException: IO Error: ")
    fleet.snapshot.write_bytes(whole)
    after_run(fleet, good, NIGHT)
    message = json.loads(written.read_text())
    assert [(one["status"], one["name"]) for one in message["alarms"]] == [("over", "run"), ("over", "publication")]


def found(name: str, rows: str = "", rows_found: int = 1, **changes: Any) -> Alarm:
    check = Found("marts/energy_ledger", name, passed=False, is_error=False, rows=rows, rows_found=rows_found)
    (alarm,) = run_alarms(Outcome(NIGHT, is_success=True, checks=(replace(check, **changes),)), ())
    return alarm


@pytest.mark.parametrize(
    ("check", "kind"),
    [
        ("source_cluster_answers", "source"),
        ("requests_gateway_answers", "source"),
        ("sources_speak", "source"),
        ("families_stay", "drift"),
        ("cross_checks_agree", "drift"),
        ("labels_and_samples_are_readable", "check"),
    ],
)
def test_a_check_is_of_a_kind(check: str, kind: str) -> None:
    assert found(check).kind == kind


def test_the_amount_of_a_check_is_what_all_its_rows_add_up_to() -> None:
    rows = "| meter | kwh |\n| --- | --- |\n| GPU-1 | 1.5 |\n| GPU-2 | 0.5 |"
    assert found("power_has_a_model", rows, 2).joules == 7.2e6
    assert found("power_has_a_model", rows, 51).joules is None  # of 51 rows two are known
    assert found("power_has_a_model", rows.replace("0.5", "None"), 2).joules is None
    assert found("power_has_a_model", rows.replace("GPU-1", "GPU | 1"), 2).joules is None
    usd = "| date | difference_usd |\n| --- | --- |\n| 2026-10-28 | -3.25 |"
    assert found("compute_cost_is_one_amount", usd).usd == -3.25
    assert found("nodes_have_one_name", "| node |\n| --- |\n| a |").how_much == ""


def test_what_to_do_is_the_checks_own() -> None:
    text = "1 row\n  source cluster\n  Expected: samples\n  What to do: see whether it runs"
    assert (found("sources_speak", text=text).remedy, found("sources_speak", text=text).which) == (
        "see whether it runs",
        "1 row\n  source cluster\n  Expected: samples",
    )
    assert (
        found("sources_speak", text="1 row", remedy="as its description has it").remedy == "as its description has it"
    )
