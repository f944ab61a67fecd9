"""`make measure` on a pretended board of 300 W: what counts, and that Wattledger books the files to the token."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.measured.load import Load, Page
from bench.measured.plan import FULL, Stretch
from tests.books import Book
from tests.measured.rehearsal import PLAN
from tests.optional import PROJECT
from tests.test_imports import imports

HARDWARE = Path(__file__).parent / "hardware"
FILES = {
    "fleet.yaml", "log.txt", "nvidia_smi.csv", "nvml_calls.json", "nvml_polled.csv", "requests.jsonl", "results.json",
    "spool.tar",
}  # fmt: skip


def ran(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python with the pretended hardware."""
    paths = {"PYTHONPATH": str(HARDWARE), "PATH": f"{HARDWARE}:{os.environ['PATH']}"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=PROJECT,
        env={**os.environ, **paths, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


# --- what counts ---


class Steps:
    """An engine whose every step takes one second of its own clock; a prompt is two steps."""

    mode = "steps"

    def __init__(self) -> None:
        self.seconds = 0.0

    def start(self, requests: int, prompt_tokens: int, output_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens

    def prefill(self) -> Iterator[int]:
        for _ in range(2):
            self.decode()
            yield self.prompt_tokens // 2

    def rewind(self) -> None: ...

    def decode(self) -> None:
        self.seconds += 1


class Expected(NamedTuple):
    """What is counted of ten seconds."""

    requests: int
    cancelled_requests: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    first_token_seconds: list[float]


# By hand. Generate: a batch takes 2 + 2 steps; of the third its prompt and first token end at 10, the next step at 11.
# Prefill: five batches of 2 steps, the fifth ends at 10. Decode: three of 3 steps, and one step.
@pytest.mark.parametrize(
    ("stretch", "expected"),
    [
        (Stretch("generate", 4, 16, 3), Expected(3 * 4, 4, 3 * 16 * 4, 0, (3 + 3 + 1) * 4, [2.0] * 3)),
        (Stretch("prefill", 2, 32, 1), Expected(5 * 2, 0, 5 * 32 * 2, 0, 5 * 2, [2.0] * 5)),
        (Stretch("decode", 4, 16, 3), Expected(4 * 4, 4, 4 * 16 * 4, 4 * 16 * 4, (3 * 3 + 1) * 4, [1.0] * 4)),
    ],
    ids=["generate", "prefill", "decode"],
)
def test_a_token_counts_when_its_step_has_ended(stretch: Stretch, expected: Expected) -> None:
    engine, page, log = Steps(), Page(), io.StringIO()
    engine.start(*stretch[1:])
    counts = Load(engine, page, log, lambda: engine.seconds).keep_up(stretch, stretch.name, until=10.0)
    assert vars(counts) == expected._asdict()
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert len({line["id"] for line in lines}) == expected.requests
    cut_off = [line["ended_at"] for line in lines if line["status"] == "cancelled"]
    assert cut_off == [10_000_000] * expected.cancelled_requests
    assert sum(line["usage"]["prompt_tokens"] for line in lines) == expected.input_tokens
    assert sum(line["usage"]["completion_tokens"] for line in lines) == expected.output_tokens
    labels = {"model_name": "llama-8b-random", "engine": "0"}
    value = page.registry.get_sample_value
    assert value("vllm:prompt_tokens_total", labels) == expected.input_tokens
    assert value("vllm:prompt_tokens_cached_total", labels) == expected.cached_input_tokens
    assert value("vllm:generation_tokens_total", labels) == expected.output_tokens
    aborted = value("vllm:request_success_total", labels | {"finished_reason": "abort"})
    assert aborted == expected.cancelled_requests


def test_what_is_measured() -> None:
    assert [stretch.concurrency for stretch in FULL.stretches if stretch.prompt_tokens == 128] == [
        1,
        2,
        4,
        8,
        16,
        32,
        64,
        128,
    ]
    kinds = Counter(stretch.kind for stretch in FULL.stretches if stretch.prompt_tokens == 2048)
    assert kinds == {"generate": 4, "prefill": 1, "decode": 1}
    assert 3600 % FULL.stretch_seconds == 0
    # Each stretch and its warm-up.
    assert len(FULL.stretches) * 2 * FULL.stretch_seconds <= 420


def test_it_needs_pytorch_and_packages_of_the_agent_alone() -> None:
    needed = {
        (path.stem, module.split(".")[0])
        for path in (PROJECT / "bench" / "measured").glob("*.py")
        for module in imports(path)
        if module.split(".")[0] not in {*sys.stdlib_module_names, "bench"}
    }
    assert needed == {
        ("llama", "torch"), ("load", "prometheus_client"), ("nvml_calls", "pynvml"), ("run", "prometheus_client"),
        ("run", "pynvml"),
    }  # fmt: skip


# --- where it cannot ---


@pytest.mark.parametrize(
    ("words", "reason"),
    [((), "measure: no NVIDIA accelerator here"), (("-S",), f"measure: {sys.executable} lacks torch")],
    ids=["no driver", "no packages"],
)
def test_a_host_that_cannot_measure_gets_one_line_and_status_2(
    words: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    ended = ran(*words, "-m", "bench.measured", "--out", str(tmp_path / "out"), PRETENDED_BOARDS="0")
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1), ended.stderr
    assert ended.stderr.startswith(reason)
    assert not (tmp_path / "out").exists()


# --- the rehearsal ---


class Rehearsed(NamedTuple):
    """A folder of a whole run, and what its results and its log of requests have."""

    folder: Path
    results: dict[str, Any]
    requests: list[dict[str, Any]]

    def tokens(self, tenant: str, kind: str) -> int:
        return sum(request["usage"][kind] for request in self.requests if request["tenant"] == tenant)


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Rehearsed:
    folder = tmp_path_factory.mktemp("measured") / "run"
    ended = ran("-m", "tests.measured.rehearsal", str(folder))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = (folder / "requests.jsonl").read_text(encoding="utf-8").splitlines()
    return Rehearsed(folder, json.loads((folder / "results.json").read_text()), [json.loads(line) for line in lines])


def test_a_run_leaves_eight_files(rehearsed: Rehearsed) -> None:
    assert {path.name for path in rehearsed.folder.iterdir()} == FILES
    columns, first, *_ = (rehearsed.folder / "nvidia_smi.csv").read_text().splitlines()
    # Without power.draw.average, which this nvidia-smi does not know.
    assert columns.startswith(
        "timestamp, index, uuid, name, power.draw [W], power.draw.instant [W], utilization.gpu [%]"
    )
    assert first.split(", ")[4:6] == ["300.00 W", "300.00 W"]
    calls = json.loads((rehearsed.folder / "nvml_calls.json").read_text())
    assert calls["power_instant_milliwatts"] == {"answer": 300_000}
    assert calls["power_average_milliwatts"] == {"refused": "Not Supported"}
    polled = [line.split(",") for line in (rehearsed.folder / "nvml_polled.csv").read_text().splitlines()]
    assert polled[0] == ["part", "time_ns", "name", "value"]
    assert {part for part, *_ in polled[1:]} == {"bare_idle", "from_idle_to_load", "under_load"}


def test_stretches_start_on_the_grid_and_have_what_the_log_has(rehearsed: Rehearsed) -> None:
    stretches = {window["window_id"]: window for window in rehearsed.results["windows"] if "shape" in window}
    assert set(stretches) == {stretch.name for stretch in PLAN.stretches}
    for name, window in stretches.items():
        assert datetime.fromisoformat(window["start_at"]).timestamp() % 2 == 0
        assert window["output_tokens"] == rehearsed.tokens(name, "completion_tokens")
        assert window["counter_joules"] == pytest.approx(600, rel=0.01)
        assert window["gauge_joules"] == pytest.approx(600)
    # 40 steps of 50 ms: four batches of 2 + 7 steps, of the fifth the prompt and 3 tokens; on a busy machine fewer.
    assert 0 < stretches["generate_16_at_4"]["output_tokens"] <= (4 * 8 + 3) * 4
    assert rehearsed.tokens("warm_up", "completion_tokens") > 0


def test_the_fleet_file_books_each_stretch(rehearsed: Rehearsed, tmp_path: Path) -> None:
    book = Book.of(rehearsed.folder / "fleet.yaml", tmp_path, marts=("run_windows", "load_test_phases", "token_ledger"))
    book.fleet.root.mkdir(parents=True)
    with tarfile.open(rehearsed.folder / "spool.tar") as spool:
        spool.extractall(book.fleet.root, filter="data")
    book.run()
    windows = {window["window_id"]: window for window in rehearsed.results["windows"]}
    booked = book.query(
        "select window_id, reason_code, energy_joules, output_tokens, joules_per_output_token from marts.run_windows"
    )
    assert {window_id: reason for window_id, reason, *_ in booked} == dict.fromkeys(windows, "ok")
    for window_id, _, joules, tokens, joules_per_token in booked:
        # 300 W times its seconds, of which a stretch has 2: 600 J.
        assert float(joules) == pytest.approx(300 * windows[window_id]["seconds"], rel=0.01)
        assert tokens == (counted := rehearsed.tokens(window_id, "completion_tokens"))
        assert joules_per_token == (pytest.approx(600 / counted, rel=0.01) if counted else None)
    phases = book.query(
        "select window_id, requests, failed_requests, cast(output_tokens as bigint) from marts.load_test_phases"
    )
    assert set(phases) == {
        (name, window["requests"], window["cancelled_requests"], window["output_tokens"])
        for name, window in windows.items()
        if "shape" in window
    }
    # What the agent scraped of the page, warm-ups included, is what the log has.
    usages = [request["usage"] for request in rehearsed.requests]
    assert dict(book.query("select token_class, cast(sum(tokens) as bigint) from marts.token_ledger group by all")) == {
        "input": sum(usage["prompt_tokens"] for usage in usages),
        "cached_input": sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages),
        "output": sum(usage["completion_tokens"] for usage in usages),
    }
