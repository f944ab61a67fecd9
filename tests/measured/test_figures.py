"""docs/measured.md: its figures are those of the recordings' files, and the ledger's are the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.books import Book
from tests.measured import figures
from tests.optional import PROJECT

PAGE = (PROJECT / "docs" / "measured.md").read_text()
# What the page shows by name, and the title of its rows there.
SHOWN = {
    **{f"generate_128_at_{n}": "prompts of 128" for n in (1, 2, 4, 8, 16, 32, 64, 128)},
    "decode_2048_at_16": "decode alone, 2,048 in the cache",
    **{f"generate_2048_at_{n}": "prompts of 2,048" for n in (1, 4, 16, 32)},
}


def test_the_page_shows_the_stretches_as_their_files_have_them() -> None:
    windows = figures.windows()
    lines = [
        f"| {title} | {name.rpartition('_')[2]} | {row.output_tokens_per_second:,.0f} | {row.watts:.0f} "
        f"| {row.joules_per_output_token:.4f} |"
        for name, title in SHOWN.items()
        for row in [windows.loc[name]]
    ]
    table = re.search(r"<!-- stretches -->\n.*\n.*\n((?:.*\n)*)<!-- end -->", PAGE)
    assert table is not None
    assert table[1].splitlines() == lines


def test_the_page_shows_idle_prefill_and_decode_as_their_files_have_them() -> None:
    windows = figures.windows()
    watts = windows["watts"].round(1)
    assert f"| bare, before anything used CUDA | {watts['bare_idle_a']} W | {watts['bare_idle_b']} W |" in PAGE
    assert f"| the model loaded, no request | {watts['loaded_idle_a']} W | {watts['loaded_idle_b']} W |" in PAGE
    prefill, decode, both = (
        windows.loc[name] for name in ("prefill_2048_at_16", "decode_2048_at_16", "generate_2048_at_16")
    )
    of_input = prefill.joules / prefill.input_tokens
    assert (
        f"computes {prefill.input_tokens / 15:,.0f} input tokens/s at {prefill.watts:.0f} W: {of_input:.4f} J" in PAGE
    )
    apart = both.input_tokens * of_input + both.output_tokens * decode.joules_per_output_token
    assert f"they give {apart:,.0f} J, and {both.joules:,.0f} J were measured" in PAGE
    assert f"| {of_input / decode.joules_per_output_token:.3f} at 16 requests" in PAGE


@pytest.mark.parametrize(("run", "apart_percent"), [("first", 0.02), ("second", 0.10)])
def test_the_counter_moves_ten_times_a_second_and_the_gauge_is_a_second_long(run: str, apart_percent: float) -> None:
    at, joules = figures.changes(run)
    assert np.percentile(np.diff(at), [1, 50, 99]) == pytest.approx([0.1, 0.1, 0.1], abs=0.001)
    errors = {window: figures.gauge_error_watts(run, window) for window in (0.1, 0.5, 0.9, 1.0, 1.1, 1.5, 2.0)}
    assert min(errors, key=errors.__getitem__) == 1.0
    at, joules = figures.counter(run)
    gauged = np.trapezoid(*reversed(figures.samples(run, "nvml_power_watts")))
    assert round(abs(gauged / (joules[-1] - joules[0]) - 1) * 100, 2) == apart_percent


def test_the_page_shows_the_steepest_steps() -> None:
    steps = [np.max(np.diff(joules) / np.diff(at)) for run in figures.RUNS for at, joules in [figures.counter(run)]]
    tenths = [np.max(np.diff(joules) / np.diff(at)) for run in figures.RUNS for at, joules in [figures.changes(run)]]
    most = f"{max(steps):,.0f} W by one step, where the board drew {max(tenths):.0f} W over a tenth of a second"
    assert most in PAGE
    assert f"{figures.windows()['watts'].max():.0f} W over any stretch" in PAGE


def test_gauge_and_nvidia_smi_are_as_near_as_the_page_has_it() -> None:
    windows = figures.windows()
    apart = (windows["gauge_watts"] / windows["smi_watts"] - 1).abs()
    assert apart.max() <= 0.003
    low = 1 - (windows["gauge_watts"] / windows["watts"])[windows["output_tokens"] > 0]
    least, most = (f"{ratio * 100:.1f}" for ratio in (low.min(), low.max()))
    assert f"it is {least} to {most} % too low" in PAGE


def test_the_first_look_of_the_script_was_right() -> None:
    for name, row in figures.windows().iterrows():
        look = figures.first_look(row.run)[str(name).removesuffix("_a").removesuffix("_b")]
        assert look["counter_joules"] == pytest.approx(row.joules, rel=2e-3)
        assert look.get("output_tokens", 0) == row.output_tokens
        assert look.get("input_tokens", 0) == row.input_tokens


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    marts = ("run_windows", "model_daily", "reconciliation_daily", "token_reconciliation_daily", "series_daily")
    book = Book.of(PROJECT / "fleets" / "measured.yaml", tmp_path_factory.mktemp("measured"), marts=marts)
    book.run()
    return book


@pytest.mark.long
def test_the_ledger_has_the_joules_and_tokens_of_the_files(book: Book) -> None:
    booked = book.query(
        "select window_id, energy_joules::double, mean_watts, output_tokens, is_valid, doubt_reasons"
        " from marts.run_windows"
    )
    assert {name: tuple(row) for name, *row in booked} == {
        name: (pytest.approx(row.joules, rel=1e-6), pytest.approx(row.watts, rel=1e-6), row.output_tokens, True, "")
        for name, row in figures.windows().iterrows()
    }
    metered = {
        node: pytest.approx(joules[-1] - joules[0], abs=1e-3)
        for run, node in figures.RUNS.items()
        for _, joules in [figures.counter(run)]
    }
    rows = "select node, sum(energy_joules)::double, bool_or(has_glitch) from marts.energy_ledger group by node"
    assert {node: joules for node, joules, _ in book.query(rows)} == metered
    assert not any(has_glitch for *_, has_glitch in book.query(rows))
    metrics = {"cached_input": "vllm_prompt_tokens_cached_total", "output": "vllm_generation_tokens_total"}
    counted = {of: sum(figures.samples(run, name)[1][-1] for run in figures.RUNS) for of, name in metrics.items()}
    of_class = "select token_class, sum(tokens)::double from marts.token_ledger where token_class <> 'input' group by 1"
    assert dict(book.query(of_class)) == counted


@pytest.mark.rest
def test_the_ledger_is_in_no_doubt(book: Book) -> None:
    assert book.broken() == {}
    rows = "select meter_scope, difference_joules::double, cross_check_ratio < 0.002 from marts.reconciliation_daily"
    assert book.query(rows) == [("board", 0, True)] * 2
    assert book.query("select distinct doubt_reasons from marts.model_daily") == [("",)]
