"""The page for Prometheus: every figure under its name, and what is unknown or over without a sample."""

from __future__ import annotations

import math
import subprocess
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

import pipelines
from pipelines.named_figures.figures_in_doubt import InDoubt
from pipelines.serving import metrics
from pipelines.serving.published_day import PublishedDay
from tests import optional
from tests.served_states import GIB, NOW, healthy, model_day, model_today, troubled


def samples(page: bytes) -> dict[tuple[str, ...], float]:
    """(name, values of its labels but the fleet's, in the order of the labels' names) -> value."""
    return {
        (one.name, *(value for name, value in sorted(one.labels.items()) if name != "fleet")): one.value
        for family in text_string_to_metric_families(page.decode())
        for one in family.samples
    }


def test_each_figure_of_a_healthy_fleet() -> None:
    found = samples(metrics.page(healthy(), NOW))
    gpt = ("board", "gpt-oss-120b")
    today = {
        "energy_joules": 3e6, "mean_watts": 700, "newest_interval_watts": 650.5, "output_tokens": 20_000,
        "input_and_output_tokens": 80_000, "joules_per_output_token": 150, "joules_per_token": 37.5,
        "estimated_idle_energy_ratio": 0.25, "estimated_location_gco2e": 2400, "estimated_compute_cost_usd": 14.5,
        "estimated_compute_cost_usd_per_output_mtok": 725,
    }  # fmt: skip
    assert {name: found["wattledger_today_" + name, *gpt] for name in today} == today
    last_day = {
        "energy_joules": 6e6, "mean_watts": 690, "output_tokens": 40_000, "input_and_output_tokens": 160_000,
        "joules_per_output_token": 140, "joules_per_token": 35, "idle_energy_ratio": 0.2, "location_gco2e": 4800,
        "compute_cost_usd": 24, "compute_cost_usd_per_output_mtok": 600,
    }  # fmt: skip
    assert {name: found["wattledger_last_day_" + name, *gpt] for name in last_day} == last_day
    # 6 October 2026, 00:00 UTC.
    assert found["wattledger_last_booked_day_timestamp_seconds",] == 1791244800
    assert found["wattledger_today_closed_until_timestamp_seconds",] == 1791244800 + 86400 + 14 * 3600 + 15 * 60
    assert found["wattledger_today_source_read", "cluster"] == 1
    assert found["wattledger_check_passed", "source_cluster_answers", "error", "raw/landings"] == 1
    assert (found["wattledger_last_run_seconds",], found["wattledger_last_run_successful",]) == (91.5, 1)
    assert found["wattledger_data_bytes", "warehouse"] == 3 * GIB
    assert found["wattledger_ticks_total", "made"] == 170
    assert found["wattledger_build_info", pipelines.__version__] == 1


def test_a_model_in_doubt_has_a_sample_for_each_reason() -> None:
    state, doubt = healthy(), InDoubt(("above_limit", "hidden_processes"), is_energy=True, is_tokens=True)
    assert state.today is not None
    models = [model_today("chat", 1e6, doubt=doubt), model_today("mail", 1e6)]
    day = PublishedDay(NOW.date() - timedelta(days=1), [model_day("chat", 6e6, doubt=doubt), model_day("mail", 6e6)])
    page = metrics.page(replace(state, today=replace(state.today, models=models), last_day=day), NOW)
    assert {key: value for key, value in samples(page).items() if "in_doubt" in key[0]} == {
        (f"wattledger_{kind}_in_doubt", "board", "chat", reason): 1
        for kind in ("today", "last_day")
        for reason in ("above_limit", "hidden_processes")
    }


def test_what_is_unknown_has_no_sample() -> None:
    found = samples(metrics.page(healthy(), NOW))
    free = {name for name, *labels in found if "__unallocated__" in labels}
    assert "wattledger_today_energy_joules" in free
    assert not {name for name in free if "token" in name or "usd" in name}
    assert not any(math.isnan(value) for value in found.values())


@pytest.mark.parametrize(
    ("later", "shows_today"),
    [(timedelta(minutes=19), True), (timedelta(minutes=20), False), (timedelta(hours=10), False)],
)
def test_figures_of_an_old_tick_vanish_and_its_time_stays(*, later: timedelta, shows_today: bool) -> None:
    found = {name for name, *_ in samples(metrics.page(healthy(), NOW + later))}
    assert ("wattledger_today_energy_joules" in found) == shows_today
    assert ("wattledger_today_source_read" in found) == shows_today
    assert {"wattledger_today_tick_timestamp_seconds", "wattledger_last_day_energy_joules"} <= found


def test_figures_of_yesterday_vanish_at_midnight() -> None:
    """A tick of 23:59 is a minute old, and of another day."""
    midnight = NOW.replace(hour=0, minute=0, second=20)
    state = healthy(midnight - timedelta(seconds=10))
    assert state.today is not None
    ticked = replace(state, today=replace(state.today, on=NOW.date() - timedelta(days=1)))
    found = {name for name, *_ in samples(metrics.page(ticked, midnight))}
    assert "wattledger_today_energy_joules" not in found
    assert "wattledger_today_energy_joules" in {name for name, *_ in samples(metrics.page(state, midnight))}


def test_a_fleet_of_which_nothing_is_known() -> None:
    found = {name for name, *_ in samples(metrics.page(metrics.State("new"), NOW))}
    assert found == {"wattledger_build_info"}


def test_of_very_many_models_those_with_the_most_energy_are_shown() -> None:
    state = healthy()
    assert state.today is not None
    models = [model_today(f"model-{n}", 1000.0 + n) for n in range(metrics.MOST_MODELS + 5)]
    found = samples(metrics.page(replace(state, today=replace(state.today, models=models)), NOW))
    shown = {labels[1] for name, *labels in found if name == "wattledger_today_energy_joules"}
    assert len(shown) == metrics.MOST_MODELS
    assert not shown & {f"model-{n}" for n in range(5)}
    assert found["wattledger_today_models_left_out",] == 5
    assert found["wattledger_last_day_models_left_out",] == 0


def test_hostile_names_stay_labels() -> None:
    state = healthy()
    assert state.today is not None
    name = 'a"b\\c\nd{e="f"} 1'
    hostile = replace(state, today=replace(state.today, models=[model_today(name, 1.0)]))
    assert samples(metrics.page(hostile, NOW))["wattledger_today_energy_joules", "board", name] == 1.0


@pytest.mark.needs("prometheus")
@pytest.mark.parametrize("state", [healthy(), troubled(), metrics.State("new")])
def test_promtool_finds_nothing_against_the_rules_of_names(state: metrics.State) -> None:
    _, promtool = optional.required("prometheus")
    page = metrics.page(state, NOW)
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
    # The twin: what it does find.
    wrong = page.replace(b"wattledger_last_run_seconds", b"wattledger_last_run_milliseconds")
    done = subprocess.run([promtool, "check", "metrics"], input=wrong, capture_output=True, check=False)
    assert (b"milliseconds" in done.stderr + done.stdout) == (wrong != page)
