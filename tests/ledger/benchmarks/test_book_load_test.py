"""A load test in phases, from AIPerf's files and two boards' meters to tokens, seconds, joules and dollars per phase.

The shape is Artificial Analysis' System Load Test: 1, 2, 4 … 64, then 64 more queries at a time, three minutes each,
1,000 tokens in and 1,000 out. The boards draw a steady power in each phase, so every figure can be made by hand.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.books import Book

DAY = date(2026, 10, 15)
START = datetime(2026, 10, 15, 12, tzinfo=UTC)
SECONDS = 180
TTFT_SECONDS = 0.5


class Phase(NamedTuple):
    """Queries at a time, seconds that each takes, watts of each of the two boards meanwhile."""

    concurrency: int
    latency_seconds: int
    board_watts: int

    @property
    def requests(self) -> int:
        return self.concurrency * SECONDS // self.latency_seconds


PHASES = [
    Phase(1, 10, 200),
    Phase(2, 10, 220),
    Phase(4, 12, 250),
    Phase(8, 15, 300),
    Phase(16, 18, 360),
    Phase(32, 20, 450),
    Phase(64, 30, 550),
    Phase(128, 60, 560),
]
# By hand, from the lines above. Output tok/s: requests × 1000 / 180; J/token: two boards' watts / that; per user:
# 999 / (s − 0.5). Energy: (two boards + 100 W of host) × 180 s × PUE 1.2 × 0.10 USD/kWh; beside it the capacity of a
# phase: 2 GPUs × 0.05 h × 2 USD = 0.2 USD.
EXPECTED = {
    # concurrency: (requests, output tok/s, tok/s per user, J/output token, energy USD, USD per output Mtok)
    1: (18, 100.0, 105.15789473684211, 4.0, 0.003, 11.277777777777779),
    2: (36, 200.0, 105.15789473684211, 2.2, 0.00324, 5.645555555555556),
    4: (60, 333.3333333333333, 86.8695652173913, 1.5, 0.0036, 3.3933333333333335),
    8: (96, 533.3333333333334, 68.89655172413794, 1.125, 0.0042, 2.1270833333333333),
    16: (160, 888.8888888888889, 57.08571428571429, 0.81, 0.00492, 1.28075),
    32: (288, 1600.0, 51.23076923076923, 0.5625, 0.006, 0.7152777777777778),
    64: (384, 2133.3333333333335, 33.86440677966102, 0.515625, 0.0072, 0.5395833333333333),
    128: (384, 2133.3333333333335, 16.789915966386555, 0.525, 0.00732, 0.5398958333333333),
}


def starts() -> list[datetime]:
    return [START + timedelta(minutes=4 * number) for number in range(len(PHASES))]


def write_artifacts(folder: Path) -> None:
    for phase, start_at in zip(PHASES, starts(), strict=True):
        run = folder / f"concurrency{phase.concurrency}"
        run.mkdir(parents=True)
        config = {
            "models": {"items": [{"name": "meta/llama-3.3-70b"}]},
            "endpoint": {"urls": ["http://lab-1:8000"]},
            "phases": [{"name": "profiling", "kind": "profiling", "concurrency": phase.concurrency}],
        }
        (run / "profile_export_aiperf.json").write_text(json.dumps({"input_config": config}))
        with (run / "profile_export.jsonl").open("w") as file:
            for number in range(phase.requests):
                turn = number // phase.concurrency
                start_ns = int(start_at.timestamp()) * 10**9 + turn * phase.latency_seconds * 10**9
                metadata = {
                    "session_num": number,
                    "x_request_id": f"{phase.concurrency}-{number}",
                    "request_start_ns": start_ns,
                    "request_end_ns": start_ns + phase.latency_seconds * 10**9,
                    "benchmark_phase": "profiling",
                    "was_cancelled": False,
                }
                metrics = {
                    "time_to_first_token": {"value": TTFT_SECONDS * 1000, "unit": "ms"},
                    "usage_prompt_tokens": {"value": 1000, "unit": "tokens"},
                    "usage_completion_tokens": {"value": 1000, "unit": "tokens"},
                }
                file.write(json.dumps({"metadata": metadata, "metrics": metrics, "error": None}) + "\n")


def write_power(path: Path) -> None:
    """Both boards every 10 s from a minute before the first phase to a minute after the last: 100 W when idle."""
    lines = ["at,node,uuid,kind,watts"]
    seconds = int((starts()[-1] - START).total_seconds()) + SECONDS
    for after in range(-60, seconds + 61, 10):
        at = START + timedelta(seconds=after)
        watts = next(
            (p.board_watts for p, s in zip(PHASES, starts(), strict=True) if 0 <= (at - s).total_seconds() <= SECONDS),
            100,
        )
        lines += [f"{at.isoformat()},lab-1,GPU-{board},NVIDIA H100 80GB HBM3,{watts}" for board in ("a", "b")]
    path.write_text("\n".join(lines) + "\n")


def write_tokens(path: Path) -> None:
    """The engine's own count of generated tokens every 10 s: it rises evenly in a phase, and not between phases."""
    lines = ["at,instance,model,tokens"]
    seconds = int((starts()[-1] - START).total_seconds()) + SECONDS
    for after in range(-60, seconds + 61, 10):
        at = START + timedelta(seconds=after)
        done = [min(max((at - start).total_seconds() / SECONDS, 0), 1) for start in starts()]
        tokens = sum(phase.requests * 1000 * part for phase, part in zip(PHASES, done, strict=True))
        lines.append(f"{at.isoformat()},lab-1:8000,meta/llama-3.3-70b,{tokens}")
    path.write_text("\n".join(lines) + "\n")


def sweep_book(folder: Path, **more: object) -> Book:
    """The same load test on a grid of 10 s, with the counter of the engine that holds both boards."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokens(folder / "tokens.csv")
    power = {
        "path": "power.csv",
        "time": "at",
        "labels": {"Hostname": "node", "UUID": "uuid", "modelName": "kind"},
        "values": {"DCGM_FI_DEV_POWER_USAGE": "watts"},
    }
    tokens = {
        "path": "tokens.csv",
        "time": "at",
        "labels": {"instance": "instance", "model_name": "model"},
        "values": {"vllm:generation_tokens_total": "tokens"},
    }
    sources = [
        {"name": "boards", "kind": "files", "interval_seconds": 10, "site": "lab", "files": [power]},
        {"name": "engine", "kind": "files", "interval_seconds": 10, "site": "lab", "files": [tokens]},
    ]
    boards = [
        {"device_uuid": f"GPU-{board}", "engine": "lab-1:8000", "start_at": f"{DAY}T00:00:00Z"} for board in ("a", "b")
    ]
    return load_test_book(folder, grid_seconds=10, sources=sources, assignments=boards, **more)


def entries(folder: Path) -> dict[str, Any]:
    """The load test's keys of a fleet file, and the files that they name, written into `folder`."""
    write_artifacts(folder / "artifacts")
    write_power(folder / "power.csv")
    power = {
        "path": "power.csv",
        "time": "at",
        "labels": {"Hostname": "node", "UUID": "uuid", "modelName": "kind"},
        "values": {"DCGM_FI_DEV_POWER_USAGE": "watts"},
    }
    return {
        "sources": [{"name": "boards", "kind": "files", "interval_seconds": 10, "site": "lab", "files": [power]}],
        "requests": [{"name": "load", "kind": "aiperf", "path": "artifacts", "node": "lab-1"}],
        "sites": [{"name": "lab", "zone": "unknown", "pue": 1.2, "tariff": [{"usd_per_kwh": 0.1}]}],
        "nodes": [{"name": "lab-1", "site": "lab", "host_watts": 100}],
        "models": [{"name": "llama-3.3-70b", "aliases": ["meta/llama-3.3-70b"]}],
    }


def load_test_book(folder: Path, **more: object) -> Book:
    """The load test, landed and booked in a folder of its own; `more` keys are written into its fleet file."""
    fleet = {
        "fleet": "bench",
        "grid_seconds": 60,
        "period": {"start": DAY, "end": DAY + timedelta(days=1)},
        **entries(folder),
        "cost_rates": [{"device_type": "h100-sxm5-80gb", "usd_per_gpu_hour": 2.0, "source": "the lab's contract"}],
        **more,
    }
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(fleet, sort_keys=False))
    made = Book.of(path, folder / "data")
    made.run()
    return made


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    return load_test_book(tmp_path_factory.mktemp("load_test"))


@pytest.mark.long
def test_every_phase_has_its_throughput_latency_joules_and_dollars(book: Book) -> None:
    found = book.query(
        """
        select cast(stated_concurrency as integer), requests, output_tokens_per_second,
            output_tokens_per_second_per_user, joules_per_output_token, cast(energy_cost_usd as double),
            compute_cost_usd_per_output_mtok
        from marts.load_test_phases order by start_at
        """
    )
    assert {row[0]: row[1:] for row in found} == {
        concurrency: pytest.approx(row, rel=1e-9) for concurrency, row in EXPECTED.items()
    }


def test_a_phase_has_all_its_columns(book: Book) -> None:
    (found,) = book.query(
        """
        select * exclude (joules_per_output_token, joules_per_total_token, energy_cost_usd_per_output_mtok,
            capacity_cost_usd_per_output_mtok, compute_cost_usd_per_output_mtok, output_tokens_per_second,
            total_tokens_per_second, output_tokens_per_second_per_user)
        replace (
            -- As readers round: the ledger's rows have twelve digits.
            round(energy_cost_usd, 6) as energy_cost_usd, round(capacity_cost_usd, 6) as capacity_cost_usd,
            round(compute_cost_usd, 6) as compute_cost_usd
        )
        from marts.load_test_phases where window_id = 'load/concurrency64'
        """
    )
    start_at = START + timedelta(minutes=24)
    assert found == (
        DAY,
        "load/concurrency64",
        start_at,
        start_at + timedelta(seconds=SECONDS),
        "lab-1",
        None,
        "llama-3.3-70b",
        "h100-sxm5-80gb",
        2.0,
        180.0,
        64.0,  # stated
        64.0,  # 384 requests × 30 s / 180 s
        "load",
        "stated",
        384,
        0,
        384_000,
        None,  # cached tokens are unreported
        384_000,
        768_000,
        "requests",
        pytest.approx((30 - TTFT_SECONDS) / 999),
        *(TTFT_SECONDS,) * 3,
        *(30.0,) * 3,
        "board",
        1100.0,
        "gauge_mean",
        198_000,  # 2 × 550 W × 180 s
        Decimal("0.0072"),
        Decimal("0.2"),
        Decimal("0.2072"),
        True,
        "ok",
        None,  # no date is held back
        True,
    )


def test_the_phases_are_run_windows_like_any_other(book: Book) -> None:
    found = book.query("select window_id, mean_watts, joules_per_output_token, is_valid from marts.run_windows")
    assert dict((row[0], row[1:]) for row in found) == {
        f"load/concurrency{phase.concurrency}": (
            2.0 * phase.board_watts,
            pytest.approx(EXPECTED[phase.concurrency][3]),
            True,
        )
        for phase in PHASES
    }


def test_an_own_load_test_is_among_the_results_of_platforms(book: Book) -> None:
    """768,000 tokens in 180 s on 2 accelerators; 0.2072 USD for them; 1,100 W on 2 boards. No published result has this
    model and these lengths, so no phase is compared with one."""
    found = book.query(
        """
        select platform, model, architecture, gpus, concurrency, input_length_tokens, output_length_tokens,
            total_tokens_per_second_per_gpu, own_usd_per_mtok, measured_joules_per_token, power_basis, ttft_p99_seconds,
            comparable_reason, run_url
        from marts.platform_results where origin = 'own_window' and result_id = 'load/concurrency64'
        """
    )
    assert found == [
        (
            "h100",
            "Llama-3.3-70B",
            "dense",
            2.0,
            64.0,
            1000.0,
            1000.0,
            pytest.approx(2133.3333333333335),
            pytest.approx(0.2697916667, rel=1e-9),
            pytest.approx(0.2578125),
            "measured_board",
            TTFT_SECONDS,
            "lengths_differ",
            None,
        )
    ]
    assert book.query("select count(*) from marts.platform_results") == [(len(PHASES),)]


def test_the_tests_of_the_new_mart_hold(book: Book) -> None:
    assert book.failed_tests() == set()


# By hand from PHASES, 18 intervals of 10 s in each: tok/s over two boards; watts of a board, of the last two phases
# (1066.67 tok/s both) their mean; J/token is the quotient.
CURVE = {
    # load_bin: (intervals, tok/s per GPU, W per GPU, J/token)
    11: (18, 50.0, 200.0, 4.0),
    13: (18, 100.0, 220.0, 2.2),
    14: (18, 166.66666666666666, 250.0, 1.5),
    16: (18, 266.6666666666667, 300.0, 1.125),
    17: (18, 444.44444444444446, 360.0, 0.81),
    19: (18, 800.0, 450.0, 0.5625),
    20: (36, 1066.6666666666667, 555.0, 0.5203125),
}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Book:
    return sweep_book(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The same telemetry without the load test's files; two phases have windows, of 12 and of 11 intervals."""
    # 115 s are 5 s more than 11 intervals, and not 12 whole ones.
    windows = [("twelve", "llama-3.3-70b", 120), ("eleven", "llama-3.3-70b", 115), ("of another model", "qwen", 180)]
    inline = [
        {"window_id": name, "model": model, "start_at": start_at, "end_at": start_at + timedelta(seconds=seconds)}
        for (name, model, seconds), start_at in zip(windows, starts(), strict=False)
    ]
    return sweep_book(tmp_path_factory.mktemp("production"), requests=[], run_windows={"inline": inline})


def curve_of(book: Book) -> dict[int, tuple]:
    found = book.query(
        """
        select load_bin, intervals, tokens_per_second_per_gpu, watts_per_gpu, joules_per_token, window_intervals,
            level_basis
        from marts.efficiency_curve where is_level = (level_basis is not null)
        """
    )
    return {row[0]: row[1:] for row in found}


@pytest.mark.rest
def test_a_short_sweep_has_levels_by_its_windows(sweep: Book) -> None:
    assert curve_of(sweep) == {
        load_bin: (*[pytest.approx(figure, rel=1e-9) for figure in row], row[0], "run_windows")
        for load_bin, row in CURVE.items()
    }


@pytest.mark.rest
def test_a_short_sweep_has_a_form(sweep: Book) -> None:
    """Least squares over the seven levels; the best point is the highest load, and 800 tok/s are within a tenth of it
    (0.5625 <= 1.1 x 0.5203). Left-out errors by seven lines without a level each."""
    (found,) = sweep.query(
        """
        select reason_code, levels, form, intercept_watts_per_gpu, slope_joules_per_token, loo_error_watts,
            constant_loo_error_watts, best_tokens_per_second_per_gpu, knee_tokens_per_second_per_gpu
        from marts.efficiency_fit
        """
    )
    assert found[:3] == ("ok", 7, "linear")
    assert found[3:] == pytest.approx(
        (194.0957626, 0.33731159, 14.554680557, 140.924526688, 1066.6666666667, 800.0), rel=1e-7
    )


@pytest.mark.rest
def test_production_of_minutes_has_no_level_and_twelve_intervals_of_a_window_have(production: Book) -> None:
    in_windows = {11: (12, "run_windows"), 13: (11, None)}
    assert curve_of(production) == {
        load_bin: (*[pytest.approx(figure, rel=1e-9) for figure in row], *in_windows.get(load_bin, (0, None)))
        for load_bin, row in CURVE.items()
    }
    found = production.query("select levels, reason_code, form from marts.efficiency_fit")
    assert found == [(1, "too_few_load_levels", None)]


@pytest.mark.rest
def test_the_tests_of_the_curve_hold(sweep: Book, production: Book) -> None:
    for book in (sweep, production):
        assert book.failed_tests() == set()
