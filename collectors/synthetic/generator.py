"""The `synthetic` source: raw telemetry of an invented fleet, generated instead of stored.

Add here how a scenario's true values (`collectors.synthetic.demo_truth`) appear on the pages of dcgm-exporter and
vLLM: labels, counters that reset, scrapes that fail, wrong samples. What is planted, and when, is in
`collectors.synthetic.demo_fleet`. Keep out the numbers of the scenario, and all state: the sample of a minute is the
same in every window that contains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

import numpy as np

from collectors.samples import Batch, Family, Window, microseconds, sample_batch
from collectors.series import SeriesRegister
from collectors.synthetic import demo_fleet, demo_truth
from collectors.synthetic.demo_fleet import Board, Engine, Run
from collectors.synthetic.demo_truth import DAY

EPOCH_US = microseconds(demo_fleet.EPOCH)
MINUTE_US = 60_000_000

UTIL, MEMORY = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"
PROMPT, GENERATION = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
BY_SOURCE = "vllm:prompt_tokens_by_source_total"
RUNNING, WAITING, START = "vllm:num_requests_running", "vllm:num_requests_waiting", "process_start_time_seconds"


@cache
def _spans(board: Board) -> list[tuple[int, int, dict[str, str]]]:
    """(first sample, end sample, pod labels) of a board, without gaps; an unallocated board has no pod labels."""
    held: list[tuple[int, int, dict[str, str]]] = []
    for engine in demo_fleet.ENGINES:
        for run in engine.runs:
            if engine.node == board.node and board.gpu in run.gpus:
                labels = {"namespace": engine.namespace, "pod": run.pod, "container": engine.container}
                if held and held[-1][2] == labels and held[-1][1] == run.bound:
                    held[-1] = (held[-1][0], run.gone, labels)
                else:
                    held.append((run.bound, run.gone, labels))
    spans, at = [], 0
    for first, end, labels in held:
        spans += [(at, first, {}), (first, end, labels)] if first > at else [(first, end, labels)]
        at = end
    return [*spans, (at, demo_fleet.FOREVER, {})] if at < demo_fleet.FOREVER else spans


def _engine_labels(engine: Engine, run: Run) -> dict[str, str]:
    return {
        "namespace": engine.namespace,
        "pod": run.pod,
        "container": engine.container,
        "instance": run.address,
        "Hostname": engine.node,
    }


class _Page:
    """The rows of one day and one stream, series after series, each in time order."""

    def __init__(self, day: int, start_us: int, end_us: int, step: int) -> None:
        self.day, self.start_us, self.end_us, self.step = day, start_us, end_us, step
        self.series_ids: list[np.ndarray] = []
        self.observed_us: list[np.ndarray] = []
        self.values: list[np.ndarray] = []

    def scrapes(self, node: str, offset_ms: int, first: int, end: int) -> np.ndarray:
        """Minutes of the day, counted from its midnight, in which the target answers within the window."""
        origin_us = EPOCH_US + self.day * DAY * MINUTE_US + offset_ms * 1000
        low = max(-((origin_us - self.start_us) // MINUTE_US), first - self.day * DAY, 0)
        high = min(-((origin_us - self.end_us) // MINUTE_US), end - self.day * DAY, DAY)
        minutes = np.arange(low, max(high, low))
        answers = (minutes + self.day * DAY) % self.step == 0
        for gap in demo_fleet.GAPS:
            if gap.node == node:
                at = minutes + self.day * DAY
                answers &= (at < gap.first) | (at >= gap.end)
        answered: np.ndarray = minutes[answers]
        return answered

    def add(self, series: int, offset_ms: int, minutes: np.ndarray, values: np.ndarray) -> None:
        origin_us = EPOCH_US + self.day * DAY * MINUTE_US + offset_ms * 1000
        self.series_ids.append(np.full(len(minutes), series, dtype=np.int64))
        self.observed_us.append(origin_us + minutes * MINUTE_US)
        self.values.append(values.astype(np.float64))

    def batch(self, stream: str) -> Batch | None:
        if not any(map(len, self.values)):
            return None
        parts = (self.series_ids, self.observed_us, self.values)
        return Batch(stream, sample_batch(*(np.concatenate(part) for part in parts)))


class SyntheticCollector:
    """Generates the scenario's telemetry for any window. ValueError: unknown scenario, interval not whole minutes."""

    def __init__(self, source: str, scenario: str = "demo", interval_seconds: float = 60) -> None:
        if scenario != "demo":
            raise ValueError(f"scenario: {scenario!r} is not known; expected 'demo'")
        if interval_seconds <= 0 or interval_seconds % 60 != 0:
            raise ValueError(f"interval_seconds: {interval_seconds!r}; expected whole minutes (60, 120, …)")
        self.source = source
        self.step = int(interval_seconds) // 60

    def collect(self, window: Window, families: Mapping[str, Family], register: SeriesRegister) -> Iterator[Batch]:
        """Batches of one UTC day and one stream. Nothing exists before 2026-09-28T00:00Z."""
        first_day = max((window.start_us - EPOCH_US) // (DAY * MINUTE_US), 0)
        last_day = (window.end_us - 1 - EPOCH_US) // (DAY * MINUTE_US)
        for day in range(first_day, last_day + 1):
            pages = {stream: _Page(day, window.start_us, window.end_us, self.step) for stream in ("power", "tokens")}
            self._boards(day, pages, families, register)
            self._engines(day, pages, families, register)
            for stream, page in pages.items():
                batch = page.batch(stream)
                if batch is not None:
                    register.observe(batch.samples)
                    yield batch

    def _boards(
        self, day: int, pages: Mapping[str, _Page], families: Mapping[str, Family], register: SeriesRegister
    ) -> None:
        truth = demo_truth.day_truth(day)
        values: dict[str, Callable[[], np.ndarray]] = {
            demo_fleet.POWER: lambda: truth.milliwatts[:, :DAY] / 1000.0,
            demo_fleet.ENERGY: lambda: demo_truth.energy_counters(day),
            UTIL: lambda: demo_truth.utilisation(day),
            MEMORY: lambda: truth.memory_mib[:, :DAY],
        }
        for metric, matrix_of in values.items():
            if metric not in families:
                continue
            family, matrix = families[metric], matrix_of().astype(np.float64)
            page = pages[family.stream]
            for fault in demo_fleet.FAULTS:
                if fault.metric == metric and fault.minute // DAY == day:
                    matrix[demo_truth.ROW[fault.node, fault.gpu], fault.minute % DAY] = fault.value
            for row, board in enumerate(demo_fleet.BOARDS):
                if metric == demo_fleet.ENERGY and not board.kind.has_energy_counter:
                    continue
                offset_ms = demo_fleet.BOARD_SCRAPE_MS[board.node]
                for first, end, pod_labels in _spans(board):
                    minutes = page.scrapes(board.node, offset_ms, first, end)
                    for twice, node, gpu, start, stop in demo_fleet.DUPLICATES:
                        if (twice, node, gpu) == (metric, board.node, board.gpu):
                            at = minutes + day * DAY
                            minutes = np.repeat(minutes, np.where((at >= start) & (at < stop), 2, 1))
                    if len(minutes):
                        series = register.series_id(family, _board_labels(board) | pod_labels)
                        page.add(series, offset_ms, minutes, matrix[row, minutes])

    def _engines(
        self, day: int, pages: Mapping[str, _Page], families: Mapping[str, Family], register: SeriesRegister
    ) -> None:
        if not families.keys() & {PROMPT, GENERATION, BY_SOURCE, RUNNING, WAITING, START}:
            return
        moved, until = demo_truth.day_truth(day).tokens[:, :, :DAY].sum(axis=1), demo_truth.tokens_until(day)
        for row, engine in enumerate(demo_fleet.ENGINES):
            offset_ms = demo_fleet.ENGINE_SCRAPE_MS[engine.node]
            running, waiting = demo_truth.requests(engine, moved[row], np.arange(day * DAY, day * DAY + DAY))
            for run in engine.runs:
                if run.first >= day * DAY + DAY or run.gone <= day * DAY:
                    continue
                since_start = (
                    until[row] - demo_truth.tokens_at(run.first - 1)[row][:, None] + np.array(run.base)[:, None]
                )
                prompt = since_start[demo_truth.COMPUTED] + since_start[demo_truth.CACHED]
                rows = [
                    (PROMPT, {}, prompt),
                    (GENERATION, {}, since_start[demo_truth.OUTPUT]),
                    (BY_SOURCE, {"source": "local_compute"}, since_start[demo_truth.COMPUTED]),
                    (BY_SOURCE, {"source": "local_cache_hit"}, since_start[demo_truth.CACHED]),
                    (BY_SOURCE, {"source": "external_kv_transfer"}, np.zeros(DAY)),
                    (RUNNING, {}, running),
                    (WAITING, {}, waiting),
                    (START, {}, np.full(DAY, run.process_start_seconds)),
                ]
                for metric, extra, values in rows:
                    if metric not in families:
                        continue
                    page = pages[families[metric].stream]
                    minutes = page.scrapes(engine.node, offset_ms, run.first, run.gone)
                    if len(minutes) == 0:
                        continue
                    # The Python process's own family knows no model: a real page labels only vLLM's.
                    own = {} if metric == START else {"model_name": engine.served_name, "engine": "0"}
                    series = register.series_id(families[metric], _engine_labels(engine, run) | own | extra)
                    page.add(series, offset_ms, minutes, values[minutes])


def _board_labels(board: Board) -> dict[str, str]:
    return {
        "gpu": str(board.gpu),
        "UUID": board.device_uuid,
        "device": f"nvidia{board.gpu}",
        "modelName": board.kind.model_name,
        "Hostname": board.node,
    }
