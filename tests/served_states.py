"""What a `serve` may know of a fleet, stated by hand: a healthy fleet, and one of which each alert has a reason.

Add here a state that several tests need. Keep out assertions.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from pipelines.named_figures.figures_in_doubt import InDoubt
from pipelines.serving.metrics import State
from pipelines.serving.published_day import ModelDay, PublishedDay
from pipelines.today.today_file import ModelToday, SourceToday, Today
from pipelines.upkeep.dagster_history import CheckState, EndedRun

NOW = datetime(2026, 10, 7, 14, 17, 30, tzinfo=UTC)
GIB = 2**30


def model_today(name: str, joules: float, **changes: float | InDoubt | None) -> ModelToday:
    made = ModelToday(
        model=name, meter_scope="board", energy_joules=joules, mean_watts=700.0, newest_interval_watts=650.5,
        output_tokens=20_000.0, total_tokens=80_000.0, joules_per_output_token=150.0, joules_per_total_token=37.5,
        estimated_idle_energy_ratio=0.25, estimated_facility_energy_kwh=12.0, estimated_location_gco2e=2400.0,
        estimated_compute_cost_usd=14.5, estimated_compute_cost_usd_per_output_mtok=725.0,
    )  # fmt: skip
    return made._replace(**changes)


def model_day(name: str, joules: float, **changes: float | InDoubt | None) -> ModelDay:
    made = ModelDay(
        model=name, meter_scope="board", energy_joules=joules, mean_watts=690.0, output_tokens=40_000.0,
        total_tokens=160_000.0, joules_per_output_token=140.0, joules_per_total_token=35.0, idle_energy_ratio=0.2,
        location_gco2e=4800.0, compute_cost_usd=24.0, compute_cost_usd_per_output_mtok=600.0,
    )  # fmt: skip
    return made._replace(**changes)


def healthy(now: datetime = NOW) -> State:
    """Ticked half a minute ago, yesterday is booked, every check passed. Free accelerators have no tokens, no J/token
    and no price."""
    free = {
        name: None
        for name in (
            "output_tokens", "total_tokens", "joules_per_output_token", "joules_per_total_token",
            "estimated_compute_cost_usd", "estimated_compute_cost_usd_per_output_mtok",
        )
    }  # fmt: skip
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    closed = max(midnight, now - timedelta(minutes=2, seconds=30))
    today = Today(
        fleet="mine", is_synthetic=False, on=now.date(), asked_until_at=now - timedelta(seconds=30),
        closed_until_at=closed, seconds=4.25,
        models=[
            model_today("gpt-oss-120b", 3e6),
            model_today("__unallocated__", 1e6, estimated_idle_energy_ratio=1.0, **free),
        ],
        sources=[SourceToday("cluster", now - timedelta(seconds=40), False, None)],
        differences=[],
    )  # fmt: skip
    checks = [
        CheckState("marts/fleet_daily", "dates_use_todays_settings", "warn", True),
        CheckState("raw/landings", "source_cluster_answers", "error", True),
    ]
    return State(
        fleet="mine",
        today=today,
        last_day=PublishedDay(now.date() - timedelta(days=1), [model_day("gpt-oss-120b", 6e6)]),
        last_run=EndedRun(now - timedelta(hours=12), 91.5, True, checks),
        bytes_by_layer={"warehouse": 3 * GIB, "publications": GIB},
        ticks={"made": 170, "skipped": 2, "failed": 0},
        runs_nights=True,
    )


def troubled(now: datetime = NOW) -> State:
    """The same fleet: its newest tick is 21 minutes old, a source does not answer, a run and a check failed, the last
    booked day began 54 hours ago, J/token rose by a half and more, a model is idle and in doubt."""
    state = healthy(now)
    assert state.today is not None
    assert state.last_run is not None
    refused = SourceToday("cluster", now - timedelta(minutes=21), False, "connection refused")
    doubt = InDoubt(("hidden_processes",), is_energy=False, is_tokens=True)
    idle = model_today(
        "gpt-oss-120b", 3e6, joules_per_output_token=211.0, estimated_idle_energy_ratio=0.91, doubt=doubt
    )
    failed = CheckState("raw/landings", "source_cluster_answers", "error", False)
    return replace(
        state,
        today=replace(state.today, sources=[refused], models=[idle]),
        last_day=PublishedDay(date(2026, 10, 5), [model_day("gpt-oss-120b", 6e6)]),
        last_run=replace(state.last_run, is_successful=False, checks=[failed]),
    )
