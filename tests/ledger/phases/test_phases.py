"""Planted joules per token: what `phase_fit` finds of them in generated weeks, and what it rejects."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import nnls

from pipelines.warehouse.raw_tables import create_tables
from tests.books import Book, demo_fleet, on
from tests.given import nothing_is_held_back

SEEDS, DAYS, PER_DAY = 200, 14, 48  # two weeks of half-hours
KEYS = {"site": "w", "deployment": "d", "device_type": "a100", "meter_scope": "board", "role": "unified"}


def planted(seed: int) -> tuple[float, float, np.ndarray, np.ndarray, np.ndarray]:
    """Joules of a computed input and of an output token, both tokens and productive joules of each interval.

    Requests rise and fall by the day; the length of prompts and answers drifts on its own; the meter is 1 % off by day
    and each interval 3 %.
    """
    chance = np.random.default_rng(seed)
    input_joules, output_joules = chance.uniform(0.05, 0.5), chance.uniform(0.3, 3)
    hour = np.arange(DAYS * PER_DAY) % PER_DAY / PER_DAY
    requests = chance.poisson(300 * (1 + 0.8 * np.sin(2 * np.pi * hour)))
    computed = requests * 800 * chance.lognormal(0, 0.5, hour.size)
    output = requests * 250 * chance.lognormal(0, 0.5, hour.size)
    off = 1 + np.repeat(chance.normal(0, 0.01, DAYS), PER_DAY) + chance.normal(0, 0.03, hour.size)
    return input_joules, output_joules, computed, output, (input_joules * computed + output_joules * output) * off


def fitted(book: Book, weeks: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]) -> dict[str, dict]:
    """Rows of phase_fit by model, from (computed input tokens, output tokens, productive joules) per interval."""
    dates = [date(2026, 10, 1) + timedelta(days=n // PER_DAY) for n in range(DAYS * PER_DAY)]
    intervals = pd.concat(
        pd.DataFrame(
            {"date": dates, "model": model, "x": computed, "y": output, "e": joules, **KEYS},
        )
        for model, (computed, output, joules) in weeks.items()
    )
    with book.connection() as connection:
        create_tables(connection)
        connection.execute("create schema if not exists marts")
        connection.register("given", intervals)
        connection.execute(
            """
            create or replace table marts.model_intervals as
            select * exclude (x, y, e), 1800::decimal(28, 6) as matched_gpu_seconds,
                e::decimal(28, 6) as matched_joules,
                e::decimal(28, 6) as matched_productive_joules, x::decimal(28, 6) as matched_computed_input_tokens,
                y::decimal(28, 6) as matched_output_tokens, (x + y)::decimal(28, 6) as matched_total_tokens
            from given
            """
        )
        connection.execute(
            """
            create or replace table marts.model_daily as
            select date, site, deployment, model, device_type, meter_scope, role,
                sum(matched_productive_joules)::decimal(28, 6) + 1000 as productive_joules
            from marts.model_intervals group by all
            """
        )
        connection.unregister("given")
        connection.execute("create or replace table marts.unmetered_devices (date date)")
        connection.execute(
            "create or replace table marts.phase_sums_daily"
            " (date date, model varchar, device_type varchar, meter_scope varchar, concurrency double)"
        )
        nothing_is_held_back(connection)
    book.dbt("run", "--select", "int_lookback", "int_curve_days", "phase_fit", "phase_energy")
    with book.connection(read_only=True) as connection:
        found = connection.execute("select * from marts.phase_fit").df()
    return {row["model"]: row for row in found.to_dict("records")}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    folder = tmp_path_factory.mktemp("phases")
    last = on("10-01") + timedelta(days=DAYS)
    return Book.of(demo_fleet(folder, on("10-01"), last, grid_seconds=1800), folder / "data")


def test_planted_joules_per_token_are_found_within_the_stated_intervals(book: Book) -> None:
    weeks = {f"m{seed}": planted(seed) for seed in range(SEEDS)}
    fits = fitted(book, {model: week[2:] for model, week in weeks.items()})
    assert {fit["reason_code"] for fit in fits.values()} == {"ok"}
    for model in ("m0", "m1", "m2"):
        _, _, computed, output, joules = weeks[model]
        coefficients, _ = nnls(np.column_stack([computed, output]), joules)
        found = [fits[model][name] for name in ("joules_per_computed_input_token", "joules_per_output_token")]
        assert found == pytest.approx(list(coefficients), rel=1e-6)
    errors = {}
    for name, at in (("joules_per_computed_input_token", 0), ("joules_per_output_token", 1)):
        held = [fit[f"{name}_low"] <= weeks[model][at] <= fit[f"{name}_high"] for model, fit in fits.items()]
        missed = [abs(fit[name] / weeks[model][at] - 1) for model, fit in fits.items()]
        errors[name] = (np.mean(held), np.median(missed), np.max(missed))
        print(f"{name}: {sum(held)} of {SEEDS} inside 95 % intervals; missed by {np.median(missed):.2%} in the median")
    for coverage, median, _ in errors.values():
        assert (
            0.9 <= coverage <= 0.99
        )  # two standard errors of 200 draws about 0.95 are 3 %; t by dates is a little wide
        assert median < 0.02
    # Phases of every date: prefill by the planted share, and all of it adds up, the 1000 J without tokens as well.
    shares = book.query(
        "select model, (sum(productive_joules) filter (where phase = 'prefill')"
        " / sum(productive_joules) filter (where phase <> 'unknown'))::double,"
        " sum(productive_joules) filter (where phase = 'unknown')::double from marts.phase_energy group by model"
    )
    for model, share, unknown in shares:
        input_joules, output_joules, computed, output, _ = weeks[model]
        truth = input_joules * computed.sum()
        assert share == pytest.approx(truth / (truth + output_joules * output.sum()), abs=0.02), model
        assert unknown == 1000 * DAYS
    assert len(shares) == SEEDS
    assert book.failed_tests("phases_add_up_to_productive_energy") == set()


def test_what_the_tokens_cannot_separate_is_rejected(book: Book) -> None:
    _, _, computed, output, joules = planted(0)
    fits = fitted(
        book,
        {
            "together": (computed, computed / 4, joules),
            "never": (computed, output * 0, joules),
            "unrelated": (computed, output, np.random.default_rng(1).lognormal(10, 1, joules.size)),
            # Watts that saturate: half the joules of an interval do not follow its tokens.
            "bent": (computed, output, 4e5 * joules / (joules + joules.mean() / 8)),
            "free_prompts": (computed, output, 2.0 * output * (1 - 0.02 * computed / computed.max())),
        },
    )
    reasons = {model: fit["reason_code"] for model, fit in fits.items()}
    assert reasons == {
        "together": "tokens_move_together",
        "never": "tokens_move_together",
        "unrelated": "error_too_large",
        "bent": "error_too_large",
        "free_prompts": "ok",
    }
    # Without the bound, input tokens would have negative joules.
    assert fits["free_prompts"]["joules_per_output_token"] == pytest.approx(2, rel=0.02)
    assert fits["free_prompts"]["joules_per_computed_input_token"] == 0
    assert all(np.isnan(fits[model]["joules_per_output_token"]) for model in reasons if reasons[model] != "ok")
