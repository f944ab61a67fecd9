"""The generated fleet: the same samples whatever window asks, meters that agree with the truth, each event in place."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.samples import SAMPLE_SCHEMA, Family, Window
from collectors.series import SeriesRegister
from collectors.synthetic.demo_fleet import BOARDS, ENGINES
from collectors.synthetic.demo_truth import truth
from collectors.synthetic.generator import SyntheticCollector

POWER, ENERGY = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
UTIL, MEMORY = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"
PROMPT, GENERATION = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
BY_SOURCE = "vllm:prompt_tokens_by_source_total"
RUNNING, WAITING, START = "vllm:num_requests_running", "vllm:num_requests_waiting", "process_start_time_seconds"
FAMILIES = {name: Family(name, "power", "dcgm_exporter") for name in (POWER, ENERGY, UTIL, MEMORY)} | {
    name: Family(name, "tokens", "vllm") for name in (PROMPT, GENERATION, BY_SOURCE, RUNNING, WAITING, START)
}
STEADY_HOUR = Window(datetime(2026, 10, 14, 20, tzinfo=UTC), datetime(2026, 10, 14, 21, tzinfo=UTC))


def at(month: int, day: int, hour: int = 0, minute: int = 0, second: float = 0) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=UTC) + timedelta(minutes=minute, seconds=second)


class Page:
    """What one window held: samples as a table, series by id."""

    def __init__(self, window: Window, metrics=tuple(FAMILIES), interval_seconds: float = 60) -> None:
        register = SeriesRegister("synthetic", window)
        families = {name: FAMILIES[name] for name in metrics}
        batches = list(SyntheticCollector("synthetic", "demo", interval_seconds).collect(window, families, register))
        self.streams = [batch.stream for batch in batches]
        self.table = pa.Table.from_batches([batch.samples for batch in batches], schema=SAMPLE_SCHEMA)
        self.series = {row["series_id"]: row for row in register.series_table().to_pylist()}
        for row in self.series.values():
            row["labels"] = json.loads(row["labels"])
        self.chunks = {row["series_id"]: row for row in register.chunk_table().to_pylist()}

    def ids(self, metric: str, **labels: str) -> list[int]:
        return [
            key
            for key, row in self.series.items()
            if row["metric"] == metric and labels.items() <= row["labels"].items()
        ]

    def read(self, metric: str, **labels: str) -> tuple[list[datetime], np.ndarray]:
        """Times and values of the one series that fits."""
        (key,) = self.ids(metric, **labels)
        rows = self.table.filter(pc.equal(self.table["series_id"], key))
        return rows["observed_at"].to_pylist(), rows["value"].to_numpy()


def rows(table: pa.Table) -> pa.Table:
    return table.sort_by([("series_id", "ascending"), ("observed_at", "ascending")]).combine_chunks()


def same(left: pa.Table, right: pa.Table) -> bool:
    left, right = rows(left), rows(right)
    return left.num_rows == right.num_rows and all(
        np.array_equal(left[name].to_numpy(), right[name].to_numpy(), equal_nan=name == "value")
        for name in ("series_id", "observed_at", "value")
    )


@pytest.fixture(scope="module")
def move_day() -> Page:
    return Page(Window(at(10, 15), at(10, 16)))


def test_every_window_is_a_slice_of_its_days():
    days = Page(Window(at(10, 17), at(10, 20))).table  # a gap over midnight, a NaN

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.integers(0, 3 * 86_400_000 - 1), min_size=2, max_size=2, unique=True).map(sorted))
    def holds(edges_ms):
        start_at, end_at = (at(10, 17) + timedelta(milliseconds=edge) for edge in edges_ms)
        asked = Page(Window(start_at, end_at)).table
        expected = days.filter(
            pc.and_(pc.greater_equal(days["observed_at"], start_at), pc.less(days["observed_at"], end_at))
        )
        assert same(asked, expected)

    holds()


def test_a_day_has_the_same_bits_on_every_machine():
    table = rows(Page(Window(at(10, 8), at(10, 9))).table)
    digest = hashlib.sha256()
    for name in ("series_id", "observed_at", "value"):
        digest.update(table[name].to_numpy().astype(f"<{'f8' if name == 'value' else 'i8'}").tobytes())
    assert (table.num_rows, digest.hexdigest()[:16]) == (198_600, "782c05a0d0464e41")


def test_only_the_families_asked_for_are_generated_and_each_in_its_stream():
    window = Window(at(10, 2), at(10, 2, 1))
    page = Page(window, metrics=(POWER, START))
    assert page.streams == ["power", "tokens"]
    assert {row["metric"] for row in page.series.values()} == {POWER, START}
    assert {row["source_kind"] for row in page.series.values()} == {"dcgm_exporter", "vllm"}
    assert page.table.num_rows == 26 * 60 + 5 * 60


def test_nothing_exists_before_the_fleet_was_switched_on():
    assert Page(Window(at(9, 20), at(9, 28))).table.num_rows == 0
    assert (
        Page(Window(at(9, 20), at(9, 28, 0, 1))).table.num_rows
        == Page(Window(at(9, 28), at(9, 28, 0, 1))).table.num_rows
    )


def test_a_longer_interval_takes_every_nth_sample():
    window = Window(at(10, 2), at(10, 2, 1))
    times, _ = Page(window, (POWER,), interval_seconds=300).read(POWER, Hostname="a6000-01", gpu="0")
    assert times == [at(10, 2, 0, minute, 7.413) for minute in range(0, 60, 5)]


@pytest.mark.parametrize(("scenario", "interval_seconds"), [("other", 60), ("demo", 15), ("demo", 90), ("demo", 0)])
def test_a_wrong_setting_is_named(scenario, interval_seconds):
    with pytest.raises(ValueError, match=r"scenario: 'other'|interval_seconds: (15|90|0);"):
        SyntheticCollector("synthetic", scenario, interval_seconds)


def test_labels_are_those_of_real_pages(move_day):
    (busy,) = move_day.ids(POWER, Hostname="a100-01", gpu="3")
    assert move_day.series[busy]["labels"] == {
        "gpu": "3",
        "UUID": "GPU-aa482542-341d-5151-a4f8-d6f33cd97b0b",
        "device": "nvidia3",
        "modelName": "NVIDIA A100-SXM4-80GB",
        "Hostname": "a100-01",
        "namespace": "llm-research",
        "pod": "qwen-397b-0",
        "container": "qwen",
    }
    (cached,) = move_day.ids(BY_SOURCE, source="local_cache_hit", Hostname="a6000-02")
    assert move_day.series[cached]["labels"] == {
        "model_name": "google/gemma-4-31B-it",
        "engine": "0",
        "namespace": "llm-teaching",
        "pod": "gemma-5f6bd7c9d-jt5rn",
        "container": "gemma",
        "instance": "10.4.2.31:8000",
        "Hostname": "a6000-02",
        "source": "local_cache_hit",
    }
    (process,) = move_day.ids(START, Hostname="a6000-02")
    assert "model_name" not in move_day.series[process]["labels"]


def test_twenty_six_boards_of_which_twenty_count_energy(move_day):
    assert len({row["labels"]["UUID"] for row in move_day.series.values() if row["metric"] == POWER}) == 26
    counting = {row["labels"]["modelName"] for row in move_day.series.values() if row["metric"] == ENERGY}
    assert (len(move_day.ids(ENERGY)), counting) == (20, {"NVIDIA A100-SXM4-80GB"})


@pytest.mark.parametrize(
    ("node", "gpus", "watts", "tokens_per_second", "joules_per_token"),
    [
        ("a6000-01", 2, 597.0, 2341.0, 0.2550),
        ("a6000-02", 2, 577.0, 360.0, 1.6028),
        ("a100-01", 8, 783.0, 18.0, 43.50),
        ("a100-02", 8, 670.0, 0.0, None),
        ("a100-03", 4, 447.0, 0.0, None),
    ],
)
def test_the_steady_hour_reads_as_the_mission_did(node, gpus, watts, tokens_per_second, joules_per_token):
    page = Page(STEADY_HOUR, (POWER, PROMPT, GENERATION))
    mean_watts = sum(page.read(POWER, Hostname=node, gpu=str(gpu))[1].mean() for gpu in range(gpus))
    assert mean_watts == pytest.approx(watts, rel=5e-4)
    happened = truth(STEADY_HOUR)
    joules = sum(happened["joules"][b.device_uuid] for b in BOARDS if b.node == node and b.gpu < gpus)
    (model,) = (engine.model for engine in ENGINES if engine.node == node)
    tokens = happened["tokens"][model]["input"] + happened["tokens"][model]["output"]
    assert joules / 3600 == pytest.approx(watts, rel=5e-4)
    assert tokens / 3600 == pytest.approx(tokens_per_second, rel=5e-4)
    if joules_per_token is not None:
        assert joules / tokens == pytest.approx(joules_per_token, rel=5e-4)
        counted = sum(np.ptp(page.read(metric, Hostname=node)[1]) for metric in (PROMPT, GENERATION))
        assert counted / (59 * 60) == pytest.approx(tokens_per_second, rel=2e-3)


def test_the_energy_counter_is_the_integral_of_the_power_gauge():
    page = Page(Window(at(10, 2), at(10, 3)))
    for gpu in range(8):
        times, watts = page.read(POWER, Hostname="a100-01", gpu=str(gpu))
        counted_at, millijoules = page.read(ENERGY, Hostname="a100-01", gpu=str(gpu))
        assert counted_at == times
        assert np.array_equal(watts, np.round(watts, 3))
        assert np.array_equal(np.diff(millijoules), np.rint((watts[1:] + watts[:-1]) * 30_000.0))


def test_truth_is_additive_and_agrees_with_the_counters():
    uuid = next(b.device_uuid for b in BOARDS if (b.node, b.gpu) == ("a100-01", 0))
    whole = truth(Window(at(10, 2), at(10, 4)))
    parts = [truth(Window(at(10, 2), at(10, 2, 13, 7, 31.5))), truth(Window(at(10, 2, 13, 7, 31.5), at(10, 4)))]
    assert sum(part["joules"][uuid] for part in parts) == pytest.approx(whole["joules"][uuid], rel=1e-12)
    page = Page(Window(at(10, 2), at(10, 4)), (ENERGY, PROMPT, GENERATION, BY_SOURCE))
    times, millijoules = page.read(ENERGY, Hostname="a100-01", gpu="0")
    between = truth(Window(times[0], times[-1]))["joules"][uuid]
    assert np.ptp(millijoules) / 1000 == pytest.approx(between, rel=1e-12)
    times, prompt = page.read(PROMPT, Hostname="a6000-01")
    tokens = truth(Window(times[0], times[-1]))["tokens"]["gpt-oss-120b"]
    assert np.ptp(prompt) == tokens["input"]
    assert np.ptp(page.read(GENERATION, Hostname="a6000-01")[1]) == tokens["output"]
    assert np.ptp(page.read(BY_SOURCE, Hostname="a6000-01", source="local_cache_hit")[1]) == tokens["cached_input"]
    sources = ("local_compute", "local_cache_hit", "external_kv_transfer")
    assert np.array_equal(sum(page.read(BY_SOURCE, Hostname="a6000-01", source=name)[1] for name in sources), prompt)


@pytest.mark.parametrize(
    ("node", "last", "back", "second", "pod"),
    [
        ("a6000-01", at(10, 6, 16, 11), at(10, 6, 16, 17), 21.906, "gpt-oss-7d9f6c5b48-x2kqz"),
        ("a100-01", at(10, 12, 10, 29), at(10, 12, 10, 45), 48.140, "qwen-397b-0"),
    ],
)
def test_a_crash_starts_the_same_series_again_from_zero(node, last, back, second, pod):
    page = Page(Window(last - timedelta(minutes=30), back + timedelta(minutes=30)), (PROMPT, START))
    times, prompt = page.read(PROMPT, Hostname=node, pod=pod)
    (fall,) = np.flatnonzero(np.diff(prompt) < 0)
    assert times[fall] == last + timedelta(seconds=second)
    assert times[fall + 1] == back + timedelta(seconds=second)
    model = next(engine.model for engine in ENGINES if engine.node == node)
    assert prompt[fall + 1] == truth(Window(times[fall], times[fall + 1]))["tokens"][model]["input"]
    times, started = page.read(START, Hostname=node)
    assert len(set(started)) == 2
    assert times[fall].timestamp() < started[-1] < times[fall + 1].timestamp()


def test_a_rollout_brings_new_series_on_the_same_boards():
    page = Page(Window(at(10, 20), at(10, 21)))
    old, new = "gemma-5f6bd7c9d-jt5rn", "gemma-84c7b96f5d-q9zvh"
    assert page.read(GENERATION, pod=old)[0][-1] == at(10, 20, 17, 39, 33.518)
    times, generated = page.read(GENERATION, pod=new)
    assert times[0] == at(10, 20, 17, 47, 33.518)
    assert generated[0] < 10_000
    assert page.read(POWER, Hostname="a6000-02", gpu="1", pod=new)[0][0] == at(10, 20, 17, 41, 41.087)


def test_a_pod_moves_to_another_board_and_the_boards_run_on(move_day):
    old, new = "gpt-oss-7d9f6c5b48-x2kqz", "gpt-oss-7d9f6c5b48-m8w4t"
    held = {pod: {move_day.series[key]["labels"]["gpu"] for key in move_day.ids(POWER, pod=pod)} for pod in (old, new)}
    assert held == {old: {"0", "1"}, new: {"0", "2"}}
    assert move_day.read(POWER, gpu="1", pod=old)[0][-1] == at(10, 15, 17, 21, 7.413)
    assert move_day.read(POWER, gpu="2", pod=new)[0][0] == at(10, 15, 17, 23, 7.413)
    assert move_day.read(RUNNING, pod=new)[0][0] == at(10, 15, 17, 29, 21.906)
    for gpu in "012":
        times = [
            time
            for key in move_day.ids(POWER, Hostname="a6000-01", gpu=gpu)
            for time in move_day.table.filter(pc.equal(move_day.table["series_id"], key))["observed_at"].to_pylist()
        ]
        assert sorted(times) == [at(10, 15, 0, minute, 7.413) for minute in range(1440)]


def test_a_driver_reload_starts_the_energy_counters_again():
    page = Page(Window(at(10, 8, 7), at(10, 8, 9)), (ENERGY, POWER, START))
    for gpu in range(8):
        times, millijoules = page.read(ENERGY, Hostname="a100-02", gpu=str(gpu))
        (fall,) = np.flatnonzero(np.diff(millijoules) < 0)
        assert times[fall] == at(10, 8, 8, 0, 52.604)
        watts = page.read(POWER, Hostname="a100-02", gpu=str(gpu))[1][fall : fall + 2]
        assert 40 * min(watts) < millijoules[fall + 1] / 1000 < 40 * max(watts)
    times, started = page.read(START, Hostname="a100-02")
    assert np.diff([time.timestamp() for time in times]).max() == 16 * 60
    assert started[-1] == at(10, 8, 8, 2, 30.25).timestamp()


def test_a_node_is_silent_for_37_samples_over_midnight_and_its_counter_runs_on():
    page = Page(Window(at(10, 17, 23), at(10, 18, 1)))
    for metric, labels in ((ENERGY, {"gpu": "5"}), (POWER, {"gpu": "0"}), (PROMPT, {}), (RUNNING, {})):
        times, values = page.read(metric, Hostname="a100-01", **labels)
        gaps = np.diff([time.timestamp() for time in times])
        assert (gaps > 90).sum() == 1
        assert gaps.max() == 38 * 60
        if metric == ENERGY:
            uuid = next(b.device_uuid for b in BOARDS if (b.node, b.gpu) == ("a100-01", 5))
            bridged = int(gaps.argmax())
            happened = truth(Window(times[bridged], times[bridged + 1]))["joules"][uuid]
            assert (values[bridged + 1] - values[bridged]) / 1000 == pytest.approx(happened, rel=1e-9)
    times, _ = page.read(POWER, Hostname="a100-02", gpu="0")
    assert len(times) == 120


def test_a_gauge_only_node_misses_four_samples():
    page = Page(Window(at(10, 22, 18), at(10, 22, 20)), (POWER, PROMPT))
    for metric, labels, second in ((POWER, {"gpu": "2"}, 41.087), (PROMPT, {}, 33.518)):
        times, _ = page.read(metric, Hostname="a6000-02", **labels)
        missing = {at(10, 22, 18, minute, second) for minute in range(120)} - set(times)
        assert missing == {at(10, 22, 19, minute, second) for minute in (6, 7, 8, 9)}


def test_faults_are_where_they_are_planted():
    faults = {}
    for day in (9, 13, 16, 19):
        page = Page(Window(at(10, day), at(10, day + 1)), (POWER, ENERGY))
        for row in page.table.filter(pc.invert(pc.and_(pc.greater_equal(page.table["value"], 0),
                                                       pc.less(page.table["value"], 9.2e18)))).to_pylist():  # fmt: skip
            labels = page.series[row["series_id"]]
            where = (labels["metric"], labels["labels"]["Hostname"], labels["labels"]["gpu"])
            faults.setdefault(where, []).append((row["observed_at"], repr(row["value"])))
            assert page.chunks[row["series_id"]]["rejects"] in (1, 3)
    assert faults == {
        (POWER, "a6000-01", "0"): [
            (at(10, 9, 18, 31, 7.413), "9.223372036854776e+18"),
            (at(10, 9, 18, 44, 7.413), "9.223372036854776e+18"),
            (at(10, 9, 19, 2, 7.413), "9.223372036854776e+18"),
        ],
        (ENERGY, "a100-03", "1"): [(at(10, 13, 12, 5, 3.871), "9.223372036854776e+18")],
        (POWER, "a6000-02", "1"): [(at(10, 16, 4, 20, 41.087), "-1.0")],
        (POWER, "a100-01", "3"): [(at(10, 19, 6, 45, 18.25), "nan")],
    }


def test_ten_samples_of_one_series_come_twice():
    page = Page(Window(at(10, 21), at(10, 22)), (POWER,))
    times, watts = page.read(POWER, Hostname="a6000-01", gpu="0")
    twice = [time for time, following in pairwise(times) if time == following]
    assert twice == [at(10, 21, 15, minute, 7.413) for minute in range(10)]
    assert len(watts) == 1450
    assert sum(chunk["duplicates"] for chunk in page.chunks.values()) == 10


def test_a_board_without_a_model_idles_and_names_no_pod(move_day):
    times, watts = move_day.read(POWER, Hostname="a6000-02", gpu="2")
    (key,) = move_day.ids(POWER, Hostname="a6000-02", gpu="2")
    assert set(move_day.series[key]["labels"]) == {"gpu", "UUID", "device", "modelName", "Hostname"}
    assert len(times) == 1440
    assert watts.min() > 22
    assert watts.max() < 24
    assert (move_day.read(UTIL, Hostname="a6000-02", gpu="2")[1] == 0).all()


def test_idle_engines_say_so_and_draw_what_a_loaded_board_draws(move_day):
    for node, low, high in (("a100-02", 82, 86), ("a100-03", 110, 114)):
        assert set(move_day.read(RUNNING, Hostname=node)[1]) == {0.0}
        assert np.ptp(move_day.read(GENERATION, Hostname=node)[1]) == 0
        watts = move_day.read(POWER, Hostname=node, gpu="0")[1]
        assert low < watts.min()
        assert watts.max() < high
    running = move_day.read(RUNNING, Hostname="a100-01")[1]
    assert 300 < (running == 0).sum() < 1200
    parked = move_day.read(POWER, Hostname="a100-01", gpu="0")[1][running == 0]
    assert 69 < np.median(parked) < 73


def test_tokens_move_only_where_requests_run(move_day):
    for node in ("a6000-02", "a100-01"):
        running = move_day.read(RUNNING, Hostname=node)[1][:-1]
        moved = np.diff(move_day.read(GENERATION, Hostname=node)[1])
        assert np.array_equal(moved > 0, running > 0)


def test_gpt_oss_keeps_over_thirty_percent_of_its_day_at_night():
    for day in range(1, 28):
        night = truth(Window(at(10, day, 7), at(10, day, 13)))["tokens"]["gpt-oss-120b"]["output"] / 6  # 0-6 local
        busy = truth(Window(at(10, day, 16), at(10, day + 1)))["tokens"]["gpt-oss-120b"]["output"] / 8  # 9-17 local
        assert 0.30 < night / busy < 0.60
