"""A publication in which every branch of each query of a reader has rows: report, workbook, headline.

Add here the row that a new branch needs. Keep out what a reader shows of it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.report import publications
from tests.report.publications import KEYS, NEWEST, advice, cost, fleet_day, model_day

MONTH = NEWEST.replace(day=1)
MIDNIGHT = datetime(NEWEST.year, NEWEST.month, NEWEST.day, tzinfo=UTC)
CURVE = {**KEYS, "as_of_date": NEWEST, "model": "m1", "tokens_basis": "output"}
WORK = {
    "model": "m1", "precision": "fp8", "compared_input_length_tokens": 1024, "compared_output_length_tokens": 1024,
}  # fmt: skip
# The seventh is in the line `other models`.
MODELS = [f"m{number}" for number in range(1, 8)]


def write(folder: Path) -> Path:
    """The published file."""
    return publications.write(
        folder, **_days(), **_costs(), **_loads(), **_quality(), **_advice(), **_platforms(), **_months()
    )


def _days() -> dict[str, list[dict[str, Any]]]:
    energy = {"energy_joules": 1e6, "attribution_method": "exclusive", "date": NEWEST}
    return {
        "marts_fleet_daily": [
            fleet_day(
                NEWEST - timedelta(days=days), idle_joules=5e5 + 1e4 * (days % 3),
                facility_energy_kwh=0.5 + 0.1 * (days % 3), doubt_reasons="",
            )
            for days in range(17)
        ],
        "marts_figure_intervals": [
            {"month": MONTH, "site": "__all__", "model": "__all__", "meter_scope": scope, "figure": figure, "value": 10,
                "value_low": 9, "value_high": 11, "metered_ratio": 0.5, "interval_basis": "meters_and_stated_inputs"}
            for figure, scope in (
                ("known_cost_usd", "__all__"), ("known_cost_usd_per_output_mtok", "__all__"),
                ("facility_energy_kwh", "__all__"), ("location_kgco2e", "__all__"),
                ("joules_per_output_token", "board"),
            )
        ],
        "marts_model_daily": [
            *(model_day(NEWEST, model, doubt_reasons="") for model in MODELS),
            # A row that is metered by node, beside those that are metered by board.
            model_day(NEWEST, "m1", meter_scope="node"),
            model_day(NEWEST, "__unallocated__", output_tokens=None),
            model_day(NEWEST, "priced", energy_cost_usd=1, capacity_cost_usd=2),
        ],
        "marts_model_hourly": [
            {**KEYS, "date": NEWEST, "hour_start_at": MIDNIGHT, "deployment": "llm/m1", "model": "m1",
                "facility_energy_kwh": 2, "location_gco2e": 200},
        ],
        "marts_site_carbon_hourly": [
            {"date": NEWEST, "hour_start_at": MIDNIGHT, "site": "west", "zone": "DE", "carbon_basis": "hourly",
                "location_gco2e_per_kwh": 100},
        ],
        "marts_energy_ledger": [
            {**energy, "energy_source": "counter", "idle_basis": "measured", "host_basis": "measured"},
            {**energy, "energy_source": "gauge"},
        ],
        "marts_sci_daily": [
            {"date": NEWEST, "model": "m1", "sci_basis": "location", "scope2_location_gco2e": 10,
                "scope3_embodied_gco2e": 5, "sci_gco2e": 15, "output_tokens": 100},
        ],
        "marts_run_windows": [
            {"window_id": "test", "model": "m1", "meter_scope": "board", "mean_watts": 300, "reason_code": "ok",
                "start_at": MIDNIGHT, "end_at": MIDNIGHT + timedelta(hours=1)},
        ],
    }  # fmt: skip


def _costs() -> dict[str, list[dict[str, Any]]]:
    bases = {"variable": 10, "usage": 50, "allocation": 80, "fully_loaded": 90}
    return {
        "marts_cost_daily": [
            *(cost(NEWEST, model, usd, basis=basis) for basis, usd in bases.items() for model in MODELS),
            cost(NEWEST, "m1", 5, "demand_charge"),
            cost(NEWEST, "__remainder__", 20, basis="allocation", deployment="__remainder__"),
            *(cost(NEWEST, name, 3, deployment=name) for name in ("__unused_commitment__", "__unmetered__")),
        ],
        "marts_cost_anomalies_daily": [
            {"date": NEWEST, "model": "m1", "part": "energy", "cost_usd": 1234.5, "usual_usd": 100.25,
                "difference_usd": 1134.25, "is_anomaly": True},
        ],
        "marts_cost_reconciliation_monthly": [
            {"billing_month": MONTH, "site": "west", "kind": "electricity", "billed_usd": 103, "computed_cost_usd": 100,
                "difference_usd": 3, "difference_ratio": 0.03, "is_booked_whole": True},
            # Billed for other hours than those booked: not compared.
            {"billing_month": MONTH, "site": "west", "kind": "rental", "billed_usd": 50, "computed_cost_usd": 20,
                "is_booked_whole": False},
        ],
        "marts_budget_monthly": [
            {"as_of_date": NEWEST, "billing_month": MONTH, "budget": budget, "scope": "team", "scope_name": "a",
                "basis": "allocation", "budget_usd": 100, "forecast_usd": 120.5, "expected_overrun_usd": 20.5,
                "is_in_progress": True}
            for budget in ("a", "research")
        ],
        "marts_token_class_cost_daily": [
            {**KEYS, "date": NEWEST, "model": "m1", "basis": "fully_loaded", "token_class": "output", "tokens": 1e6,
                "price_method": "list", "cost_usd": 3},
        ],
        "marts_tenant_daily": [
            {"date": NEWEST, "team": "a", "request_team": None, "namespace": "llm", "tenant": "t", "requests": 5,
                "output_tokens": 1000, "fully_loaded_cost_usd": 2},
        ],
    }  # fmt: skip


def _loads() -> dict[str, list[dict[str, Any]]]:
    # m1 has two deployments, so its name is of both; m2 has one.
    deployments = [("llm/m1", "m1", 2e6), ("lab/m1", "m1", 1e6), ("llm/m2", "m2", 5e5)]
    return {
        "marts_efficiency_curve": [
            {**CURVE, "deployment": deployment, "model": model, "load_bin": 0, "tokens_per_second_per_gpu": 40,
                "joules_per_token": 2, "joules": joules, "intervals": 20, "is_level": True, "is_best": True}
            for deployment, model, joules in deployments
        ],
        "marts_efficiency_curve_daily": [
            {**CURVE, "deployment": "llm/m1", "date": NEWEST, "load_bin": 0, "joules": 800, "tokens": 100,
                "gpu_seconds": 5},
        ],
        "marts_partial_load_cost": [
            {**CURVE, "deployment": deployment, "model": model, "cost_part": "capacity", "capacity_ratio": 0.5,
                "is_actual": True, "price_ratio": 2, "effective_cost_usd_per_mtok": 4,
                "is_capacity_lower_bound": False, "capacity_basis": "slo", "watts_basis": "measured"}
            for deployment, model, _ in deployments
        ],
        "marts_idle_power": [
            {**KEYS, "date": NEWEST, "deployment": f"llm/{model}", "model": model, "account": "parked",
                "idle_facility_kwh": 10, "idle_energy_cost_usd": 1, "idle_capacity_cost_usd": 10}
            for model in MODELS
        ],
    }  # fmt: skip


def _quality() -> dict[str, list[dict[str, Any]]]:
    held = {"invariant": "tokens_are_booked_once", "table_name": "token_ledger", "broken_rows": 3, "remedy": "book it"}
    meter = {
        "date": NEWEST, "meter_scope": "board", "site": "west", "source": "dcgm", "metric": "energy",
        "metered_joules": 1e6, "booked_joules": 1e6, "difference_joules": 0, "cross_check_source": "zeus",
        "cross_check_joules": 1.08e6,
    }  # fmt: skip
    return {
        "marts_reconciliation_daily": [
            {**meter, "meter": "GPU-1", "cross_check_ratio": 0.08},
            {**meter, "meter": "GPU-2", "cross_check_ratio": -0.06},
        ],
        "marts_held_back_dates": [
            {**held, "date": NEWEST},  # an earlier version is published
            {**held, "date": NEWEST - timedelta(days=2)},
        ],
        "marts_held_back_tables": [held],
        "marts_unplaced_meters": [
            {"date": NEWEST, "site": "west", "meter": "shelly-rack1", "energy_joules": 7.2e6,
                "fleet_file_line": "- {labels: {outlet: shelly-rack1}, node: …}", "proposal_basis": "correlation",
                "watts_correlation": 0.97},
        ],
    }  # fmt: skip


def _advice() -> dict[str, list[dict[str, Any]]]:
    pair = {"shares_with": "llm/m5", "saving_kwh_month": 5, "saving_energy_usd_month": 2, "confidence": "low"}
    return {
        # The surest first: by confidence, and not by what is saved.
        "published_right_sizing": [
            advice("m1", "fewer_gpus", confidence="high", saving_kwh_month=1, saving_energy_usd_month=10,
                avoidable_later_usd_month=5, avoidable_from=NEWEST),
            advice("m2", "fewer_gpus", confidence="medium", saving_kwh_month=2, saving_energy_usd_month=20),
            advice("m3", "fewer_gpus", confidence="low", saving_kwh_month=3, saving_energy_usd_month=30),
            advice("m6", "insufficient_data", reason_code="short_lookback"),
            *(
                advice(model, "try_it", reason_code="data_sheet_only", current_replicas=4, current_gpus_per_replica=2,
                    trial_replicas=2, trial_gpus_per_replica=gpus, recommended_gpus=8, freed_gpus=None,
                    move_to_node=node)
                for model, gpus, node in (("m5", 1, "n4"), ("m7", 2, None))
            ),
            *(
                advice(model, "try_it", trial_precision="int4", trial_replicas=1, trial_gpus_per_replica=gpus,
                    current_gpus_per_replica=2 * gpus, freed_gpus=None, reason_code="fewer_bits_fit")
                for model, gpus in (("m9", 1), ("m10", 2))
            ),
            *(
                advice(model, "try_it", reason_code=reason, current_gpus_per_replica=8, trial_replicas=1,
                    trial_gpus_per_replica=4, recommended_gpus=8, freed_gpus=None)
                for model, reason in (("m11", "latency_not_shown"), ("m12", "no_latency_objective"))
            ),
            advice("m8", "try_it", trial_power_limit_watts=320, current_power_limit_watts=400, freed_gpus=None),
        ],
        "published_consolidation": [advice("m4", "colocate", **pair)],
        "marts_free_boards": [
            {"as_of_date": NEWEST, "site": "west", "device_type": "a6000", "gpus_now": 1, "gpus_mean": 1,
                "cost_usd_month": 300, "is_spare": reason == "spare", "reason_code": reason, "fitting_deployment": None,
                "all_free_since_at": MIDNIGHT}
            for reason in ("unallocated", "spare", "engine_without_energy")
        ],
    }  # fmt: skip


def _months() -> dict[str, list[dict[str, Any]]]:
    """A month that is open, one that is closed, one that changed since."""
    month = {
        "site": "west", "booked_hours": 665, "month_hours": 744, "closed_cost_usd": 100, "adjustment_usd": 7,
        "known_cost_usd": 93, "idle_cost_usd": 60, "forecast_usd": 120, "is_cost_complete": True, "currency": "EUR",
        "closed_cost_in_currency": 90, "doubt_reasons": "",
    }  # fmt: skip
    states = (("open", MONTH), ("closed", MONTH.replace(month=9)), ("adjusted", MONTH.replace(month=8)))
    paid = {
        "month": MONTH, "site": "west", "closed_cost_usd": 10, "known_cost_usd": 10, "is_cost_complete": True,
        "currency": "EUR",
    }  # fmt: skip
    payer = {**paid, "tenant": "acme", "model": "m1", "output_tokens": 1e6, "doubt_reasons": ""}
    invoice = {"month": MONTH, "site": "west", "billed_usd": 103, "computed_usd": 100}
    kind = {"month": MONTH, "site": "west", "model": "m1", "tokens": 1e6, "known_cost_usd": 5, "doubt_reasons": ""}
    return {
        "finance_months": [{**month, "status": status, "month": on} for status, on in states],
        "finance_cost": [{**paid, "team": "a", "model": "m1", "part": "energy", "is_cash": True}],
        # The thirteenth is with all others.
        "finance_chargeback": [
            {**payer, "payer": f"team {number:02}"} for number in range(14)
        ],
        "finance_unit_cost": [{**kind, "token_kind": "output", "list_cost_usd": 3}, {**kind, "token_kind": "input"}],
        "finance_budgets": [
            {"month": MONTH, "budget": "a", "scope": "team", "name": "a", "budget_usd": 100, "spent_usd": 90,
                "forecast_usd": 120, "expected_overrun_usd": 20, "is_in_progress": True},
        ],
        "finance_invoices": [
            {**invoice, "kind": "electricity", "difference_usd": 3},
            {**invoice, "kind": "rental"},  # billed for other hours than those booked
        ],
        "finance_commitments": [
            {"month": MONTH, "site": "west", "device_type": "h100", "committed_gpu_hours": 8, "used_gpu_hours": 6},
        ],
        "finance_bridge": [
            {"month": MONTH, "compared_month": MONTH.replace(month=9), "is_of_whole_months": True, "days": 30,
                "site": "west", "model": "m1", "part": "energy", "before_usd": 100, "calendar_usd": 3,
                "coverage_usd": 0, "price_usd": 20, "volume_usd": -5, "efficiency_usd": -1, "idle_usd": 4, "new_usd": 0,
                "gone_usd": 0, "adjustments_usd": 0, "after_usd": 121, "is_cost_complete": True},
        ],
        "finance_restatements": [
            {"publication_id": "p", "restated_at": MIDNIGHT, "month": MONTH, "date": NEWEST, "site": "west",
                "model": "m1", "figure": "cost", "part": "energy", "unit": "USD", "before": 10, "after": 12,
                "change": 2, "reason": "late data"},
        ],
        "finance_advice_score": [
            {"deployment": "llm/m1", "advice": "fewer_gpus", "outcome": "realised", "first_advised_on": NEWEST,
                "last_advised_on": NEWEST, "promised_kwh_per_month": 10, "what_changed": "fewer_gpus",
                "changed_on": NEWEST, "measured_kwh_per_month": 9, "measured_kwh_per_month_low": 8,
                "measured_kwh_per_month_high": 10, "queued_ratio_before": 0, "queued_ratio_after": 0.25},
            {"deployment": "llm/m2", "outcome": "not_advised", "what_changed": "off", "changed_on": NEWEST},
            {"deployment": "llm/m3", "advice": "spin_down", "outcome": "open", "first_advised_on": MONTH,
                "last_advised_on": NEWEST},
        ],
        # Joules by both bases; a run that booked nothing, of which none are known; and the one that is publishing.
        "finance_ledger_cost": [
            {"run_id": "a", "measured_until": "end", "measured_at": MIDNIGHT, "gpu_days": 20, "core_seconds": 30,
                "joules": 4e4, "joules_basis": "measured", "held_bytes_per_gpu_day": 3.5e6},
            {"run_id": "b", "measured_until": "end", "measured_at": MIDNIGHT - timedelta(days=1), "core_seconds": 5,
                "held_bytes_per_gpu_day": 1e6},
            {"run_id": "c", "measured_until": "publication", "measured_at": MIDNIGHT + timedelta(days=1), "gpu_days": 5,
                "core_seconds": 15, "joules": 1e4, "joules_basis": "stated", "held_bytes_per_gpu_day": 9e6},
        ],
        "finance_savings": [{"deployment": "llm/m1", "model": "m1", "advice": "fewer_gpus", "freed_accelerators": 4}],
        "finance_carbon": [
            {"month": MONTH, "team": "a", "model": "m1", "location_kgco2e": 3, "market_kgco2e": 2,
             "facility_energy_kwh": 8},
        ],
    }  # fmt: skip


def _platforms() -> dict[str, list[dict[str, Any]]]:
    result = {
        **WORK, "is_latest": True, "is_comparable": True, "is_on_platform_frontier": True, "is_on_frontier": True,
        "output_tokens_per_second_per_user": 46, "total_tokens_per_second_per_gpu": 7210,
    }  # fmt: skip
    return {
        "marts_platform_results": [
            {**result, "origin": "published", "platform": "gb300"},
            {**result, "origin": "own_window", "platform": "h200", "result_id": "sweep"},
        ],
        "marts_platform_crossover": [
            {**WORK, "kind": "interactivity", "selection": "all", "ownership": "hyperscaler",
                "is_change_of_leader": True, "from_platform": "gb300", "to_platform": "mi355x",
                "has_nearby_points": True, "at_output_tokens_per_second_per_user": 84, "from_usd_per_mtok": 0.2,
                "to_usd_per_mtok": 1.2},
        ],
    }  # fmt: skip
