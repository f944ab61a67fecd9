"""The figures of the fleet report on a few rows, with sentences worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.report import platform_figures
from pipelines.report.axes import numeric
from pipelines.report.page import page
from tests.report import publications
from tests.report.publications import KEYS, NEWEST, cost, fleet_day, model_day
from tests.report.test_report import section

MIDNIGHT = datetime(2026, 10, 28, tzinfo=UTC)
CURVE = {**KEYS, "as_of_date": NEWEST, "deployment": "llm/busy", "model": "busy", "tokens_basis": "output"}
WORK = {
    "model": "DeepSeek-R1", "precision": "fp8", "compared_input_length_tokens": 1024,
    "compared_output_length_tokens": 1024,
}  # fmt: skip
RESULT = {**WORK, "is_latest": True, "is_comparable": True, "is_on_platform_frontier": True}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with each figure that has rows of its own."""
    hours = [MIDNIGHT + timedelta(hours=n) for n in range(2)]
    path = publications.write(
        tmp_path_factory.mktemp("figures"),
        marts_fleet_daily=[fleet_day(NEWEST, facility_energy_kwh=50)],
        marts_model_daily=[model_day(NEWEST, "busy")],
        # 80 USD are paid by models on allocation, all 100 fully loaded; 90 of the 100 are capacity.
        marts_cost_daily=[
            cost(NEWEST, "busy", 70, basis="allocation"),
            cost(NEWEST, "busy", 10, "energy", basis="allocation"),
            cost(NEWEST, "__remainder__", 20, basis="allocation", deployment="__remainder__"),
            cost(NEWEST, "busy", 90),
            cost(NEWEST, "busy", 10, "energy"),
        ],
        marts_efficiency_curve=[
            {**CURVE, "load_bin": n, "tokens_per_second_per_gpu": load, "joules_per_token": joules, "joules": 1e6,
                "intervals": 20, "is_level": n < 2, "is_best": n == 1, "is_knee": False}
            for n, (load, joules) in enumerate([(10, 8), (40, 2), (80, 1.5)])
        ],
        # 900 J over 200 tokens are 4.5 J; 200 tokens in 10 GPU-seconds are 20 a second: 2.25 times the best level.
        marts_efficiency_curve_daily=[
            {**CURVE, "date": NEWEST, "load_bin": 0, "joules": 800, "tokens": 100, "gpu_seconds": 5},
            {**CURVE, "date": NEWEST, "load_bin": 1, "joules": 100, "tokens": 100, "gpu_seconds": 5},
        ],
        marts_idle_power=[
            {**KEYS, "date": NEWEST, "deployment": "llm/busy", "model": "busy", "account": account,
                "idle_facility_kwh": kwh, "idle_energy_cost_usd": kwh / 10, "idle_capacity_cost_usd": kwh}
            for account, kwh in (("parked", 30), ("idle_floor", 10))
        ],
        marts_free_boards=[
            {"as_of_date": NEWEST, "site": "west", "device_type": "a6000", "gpus_now": 2, "gpus_mean": 1.5,
                "cost_usd_month": 660, "is_spare": False, "reason_code": "unallocated",
                "saving_usd_month_if_released": 600, "saving_kwh_month_if_switched_off": 40},
            {"as_of_date": NEWEST, "site": "west", "device_type": "a6000", "gpus_now": 1, "gpus_mean": 1,
                "cost_usd_month": 330, "is_spare": True, "reason_code": "spare"},
            {"as_of_date": NEWEST, "site": "west", "device_type": "a6000", "gpus_now": 4, "gpus_mean": 4,
                "cost_usd_month": 1320, "is_spare": False, "reason_code": "engine_without_energy"},
        ],
        marts_partial_load_cost=[
            {**CURVE, "cost_part": part, "capacity_ratio": load, "is_actual": is_actual, "price_ratio": 1 / load,
                "effective_cost_usd_per_mtok": 2 / load, "is_capacity_lower_bound": False, "capacity_basis": "slo",
                "watts_basis": "measured"}
            for part in ("capacity", "energy") for load, is_actual in ((0.5, False), (1.0, False), (0.25, True))
        ],
        marts_cost_reconciliation_monthly=[
            {"billing_month": NEWEST.replace(day=1), "site": "west", "kind": kind, "billed_usd": billed,
                "computed_cost_usd": 100, "difference_usd": billed - 100, "difference_ratio": (billed - 100) / 100,
                "is_booked_whole": True}
            for kind, billed in (("electricity", 103), ("rental", 101), ("hosting", 99.999))
        ],
        # 2 and 4 kWh at 100 and 400 g: 1,800 g over 6 kWh are 300 g each; the mean hour of the grid has 250.
        marts_model_hourly=[
            {**KEYS, "date": NEWEST, "hour_start_at": at, "deployment": "llm/busy", "model": "busy",
                "facility_energy_kwh": kwh, "location_gco2e": kwh * factor}
            for at, kwh, factor in zip(hours, (2, 4), (100, 400), strict=True)
        ],
        marts_site_carbon_hourly=[
            {"date": NEWEST, "hour_start_at": at, "site": "west", "zone": "DE", "carbon_basis": "hourly",
                "location_gco2e_per_kwh": factor}
            for at, factor in zip(hours, (100, 400), strict=True)
        ],
        marts_platform_results=[
            {**RESULT, "origin": "published", "platform": "gb300", "output_tokens_per_second_per_user": 46.3,
                "total_tokens_per_second_per_gpu": 7210.8, "is_on_frontier": True},
            {**RESULT, "origin": "published", "platform": "h200", "output_tokens_per_second_per_user": 32.2,
                "total_tokens_per_second_per_gpu": 286.9, "is_on_frontier": False},
            {**RESULT, "origin": "own_window", "platform": "h200", "result_id": "sweep", "is_on_frontier": False,
                "output_tokens_per_second_per_user": 30, "total_tokens_per_second_per_gpu": 250},
        ],
        marts_platform_crossover=[
            {**WORK, "kind": "interactivity", "selection": "all", "ownership": "hyperscaler",
                "is_change_of_leader": True, "from_platform": "gb300", "to_platform": "mi355x",
                "has_nearby_points": True, "at_output_tokens_per_second_per_user": 84.1,
                "at_output_tokens_per_second_per_user_low": 62, "at_output_tokens_per_second_per_user_high": 91.5,
                "from_usd_per_mtok": 0.178, "to_usd_per_mtok": 1.24},
        ],
        marts_energy_ledger=[
            {"date": NEWEST, "energy_source": source, "idle_basis": basis, "host_basis": "measured",
                "attribution_method": "exclusive", "energy_joules": joules}
            for source, basis, joules in (("counter", None, 3e6), ("gauge", "device_type_reference", 1e6))
        ],
        marts_held_back_dates=[
            {"date": NEWEST - timedelta(days=1), "invariant": "every_metered_joule_is_booked_once",
                "table_name": "energy_ledger", "broken_rows": 3, "remedy": "book the date again"},
        ],
    )  # fmt: skip
    return page(path)


@pytest.mark.parametrize(
    ("figure", "sentence"),
    [
        (
            "cost-parts",
            "The fleet cost 100 USD in the last 28 dates, 90 % of it capacity. What models are charged of it depends on"
            " the basis: 80 USD on allocation and 100 USD on fully loaded.",
        ),
        (
            "efficiency-curves",
            "On 2026-10-28, while it served, busy took 4.50 J per token at 20.0 tokens/s per GPU, 2.25 times the 2.00 J"
            " of the best load seen (40.0 tokens/s per GPU).",
        ),
        (
            "idle-energy",
            "Idle energy was 40 kWh in the last 28 dates, 80 % of the fleet's 50 kWh with hosts and cooling: 4 USD of"
            " electricity. The hours in which nothing ran cost 40 USD besides. The model with the most is busy (40 kWh,"
            " 75 % of it parked).",
        ),
        (
            "free-boards",
            "3 accelerators are free (2.5 on average in the last 28 dates) and cost 990 USD a month; the hours of those"
            " that are unallocated are worth 600 USD a month, saved once they can be handed back; switching them off"
            " saves 40 kWh. 4 more accelerators may be in use:"
            " an engine on the node has no joules.",
        ),
        (
            "partial-load",
            "busy paid most for unused capacity: in the last 28 dates, at 25 % of the load that its accelerators could"
            " carry, a million output tokens cost 8.00 USD, 4.0 times the 2.00 USD of full accelerators (hours and"
            " electricity).",
        ),
        (
            "bills",
            "Bills of October 2026 are 304.00 USD, 4.00 USD more than what is computed for the same hours; the biggest"
            " difference is electricity at west: 3.00 USD (3.0 %).",
        ),
        (
            "carbon-by-hour",
            "In the last 1 date the fleet emitted 2 kg CO2e, most in the hour from 2026-10-28 01:00 UTC (1.60 kg); its"
            " kWh emitted 300.0 g each, where the grid's mean hour had 250.0 g (factors: hourly).",
        ),
        (
            "platforms",
            "For DeepSeek-R1 (fp8), 1,024 input and 1,024 output tokens, the highest published throughput is 7,211"
            " tokens/s per GPU on gb300, at 46.3 tokens/s for a user; the fleet's own best load test has 250 on h200,"
            " at"
            " 30.0.",
        ),
        (
            "platform-crossover",
            "For DeepSeek-R1 (fp8), 1,024 input and 1,024 output tokens, the cheapest platform changes 1 time as users"
            " ask for more speed, first from gb300 to mi355x above 84.1 tokens/s for a user, between 62.0 and 91.5 by"
            " what was measured (from 0.178 USD to 1.240 USD"
            " per million tokens); at 1 of them both platforms were measured nearby.",
        ),
        (
            "estimates",
            "75.0 % of the newest date's energy was read from energy counters; for 25.0 % the idle floor (the power"
            " without requests) is a reference of the device type. The power of the host is stated in the fleet file"
            " for 0.0 %, and for 0.0 % it is assumed, by the power limits of the accelerators and what they draw.",
        ),
        (
            "held-back",
            "1 date is held back because 1 rule does not hold; what was published of them before stays.",
        ),
        ("next", "In addition 2 accelerators are free, whose hours are worth 600 USD a month: that is saved once"),
    ],
)  # fmt: skip
def test_sentences_follow_from_their_rows(made: str, figure: str, sentence: str) -> None:
    assert sentence in section(made, figure)


def test_a_bill_that_differs_by_no_cent_differs_by_no_percent(made: str) -> None:
    shown = section(made, "bills")
    assert "west electricity 103.00 100.00 3.00 3.0 %" in shown
    assert "west hosting 100.00 100.00 0.00 0.0 %" in shown


def test_the_table_of_idle_energy_has_each_amount_in_its_column(made: str) -> None:
    shown = section(made, "idle-energy")
    assert "USD electricity USD accelerator hours busy idle floor 10.0 unknown unknown 1.00 10.00" in shown


def test_axes_mark_round_values() -> None:
    assert [tick for _, tick in numeric([0.3, 7.9], 0, 100).ticks] == ["0", "2", "4", "6", "8"]
    # From 0.3 to 70 equal steps would flatten all but the largest.
    axis = numeric([0.3, 70], 0, 100)
    assert (axis.is_log, [tick for _, tick in axis.ticks]) == (
        True,
        ["0.2", "0.5", "1", "2", "5", "10", "20", "50", "100"],
    )
    assert not axis.holds(0)
    assert [tick for _, tick in numeric([], 0, 100).ticks] == ["0", "0.25", "0.5", "0.75", "1"]
    assert [tick for _, tick in numeric([0, 7_038], 0, 100, ticks=5).ticks] == ["0", "2,000", "4,000", "6,000", "8,000"]


def test_a_report_of_a_missing_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"nothing\.duckdb"):
        page(tmp_path / "nothing.duckdb")


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (62.0, 91.5, ", between 62.0 and 91.5 by what was measured"),
        (62.0, None, ", at least 62.0 by what was measured"),
        (None, 91.5, ", at most 91.5 by what was measured"),
        (None, None, ", with no bound by what was measured"),
    ],
)
def test_a_change_of_the_cheapest_platform_has_its_bounds_or_why_not(
    low: float | None, high: float | None, words: str
) -> None:
    assert platform_figures.bounds({"low": low, "high": high}) == words
