"""What exporters reported of a world: metrics, labels and samples, with all that goes wrong on the way.

Add here how a world can be seen (an exporter, a relabelling, a silence, a reset). A sighting that hides something is a
fault: the book may flag it in place of the truth. Keep out what is true (`worlds`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tests.drawn.spans import Spans
from tests.drawn.worlds import SPAN_SECONDS, Board, Engine, Holding, World

Array = np.ndarray
# metric, labels, seconds after midnight, values
Seen = tuple[str, dict[str, str], Array, Array]

ENERGY, WATTS, UTIL = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL"
ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
EXPORTER = {"namespace": "gpu-operator", "pod": "dcgm-exporter-x7k2q", "container": "nvidia-dcgm-exporter"}
BOOT = -86_400.0


@dataclass
class Sighting:
    """How a world is seen. The moments are seconds after midnight; NULL means that it does not happen."""

    step_seconds: float = 60.0
    reads: tuple[str, ...] = (ENERGY, WATTS)
    is_exported: bool = False  # the scraper moved the workload's labels to exported_…
    jobs: tuple[str, ...] = ("engines",)  # that scrape each engine
    reset_at: float | None = None  # a board's counter begins anew
    restart_at: float | None = None  # an engine's counters begin anew
    dark_from: float | None = None  # the last board's meter is silent
    is_only_utilised: bool = False  # the last board is seen by its utilisation alone
    engine_ends_at: float | None = None  # the engines' samples end, the boards' go on
    faults: set[str] = field(default_factory=set)

    def series(self, world: World) -> Iterator[Seen]:
        """All that is reported of a world."""
        last = list(world.boards)[-1]
        for board in world.boards.values():
            for one in self._labelled(world, board):
                yield from self._board(world, board, one, is_last=board.uuid == last)
        for engine in world.engines.values():
            for job in self.jobs:
                yield from self._engine(world, engine, job)

    # --- boards -------------------------------------------------------------------------------------------------------

    def _labelled(self, world: World, board: Board) -> list[Holding | None]:
        """The holdings of a board, each of which its series are labelled with while it lasts; None while it is free."""
        return [one for one in world.holdings if one.board == board.uuid] or [None]

    def _board(self, world: World, board: Board, held: Holding | None, *, is_last: bool) -> Iterator[Seen]:
        start, end = (held.start, held.end) if held else (0.0, float(SPAN_SECONDS))
        at = self._moments(start, end)
        labels = self._board_labels(world, board, held)
        watts = world.watts(board)
        busy = self._busy(world, board, held)
        if is_last and self.dark_from is not None:
            at = at[at < self.dark_from]
        reads = (UTIL,) if is_last and self.is_only_utilised else (*self.reads, UTIL)
        for metric in reads:
            if metric == ENERGY:
                yield ENERGY, labels, at, 1000 * self._counted(watts, at, self.reset_at, start=5e4)
            elif metric == WATTS:
                yield WATTS, labels, at, watts.rate(at)
            else:
                yield UTIL, labels, at, 80.0 * (busy.rate(at) > 0)
        if held and held.slice_id is not None:
            yield ACTIVE, labels, at, 0.9 * (busy.rate(at) > 0)

    def _busy(self, world: World, board: Board, held: Holding | None) -> Spans:
        holders = [held] if held else []
        return Spans.of((first, last, 1.0) for one in holders for first, last in world.engines[one.engine].busy())

    def _board_labels(self, world: World, board: Board, held: Holding | None) -> dict[str, str]:
        labels = {
            "UUID": board.uuid,
            "Hostname": board.node,
            "modelName": board.device_type,
            "job": f"gpus-{world.name}",
        }
        workload = {"namespace": "llm", "pod": held.pod, "container": "engine"} if held else {}
        if self.is_exported:
            labels |= {**EXPORTER, **{f"exported_{name}": value for name, value in workload.items()}}
        else:
            labels |= workload
        if held and held.slice_id is not None:
            labels |= {"GPU_I_ID": held.slice_id, "GPU_I_PROFILE": str(held.profile)}
        return labels

    # --- engines ------------------------------------------------------------------------------------------------------

    def _engine(self, world: World, engine: Engine, job: str) -> Iterator[Seen]:
        start, end = engine.alive
        at = self._moments(start, end if self.engine_ends_at is None else min(end, self.engine_ends_at))
        labels = {"model_name": engine.model, "engine": "0", "namespace": "llm", "pod": engine.pod.split(" ")[0]}
        labels |= {"container": "engine", "job": f"{job}-{world.name}", "instance": f"{labels['pod']}:8000"}
        for metric, tokens in (
            ("vllm:prompt_tokens_total", engine.prompt),
            ("vllm:generation_tokens_total", engine.output),
        ):
            yield metric, labels, at, self._counted(tokens, at, self.restart_at)
        computed = engine.prompt + engine.handed.times(-1.0)
        for source, tokens in (("local_compute", computed), ("external_kv_transfer", engine.handed)):
            if tokens.total() > 0:
                counted = self._counted(tokens, at, self.restart_at)
                yield "vllm:prompt_tokens_by_source_total", {**labels, "source": source}, at, counted
        running = Spans.of((first, last, 1.0) for first, last in engine.busy())
        yield "vllm:num_requests_running", labels, at, 4.0 * (running.rate(at) > 0)
        began = np.where(at >= (self.restart_at or SPAN_SECONDS), self.restart_at or 0.0, BOOT)
        yield "process_start_time_seconds", labels, at, began

    def _moments(self, start: float, end: float) -> Array:
        return np.arange(np.ceil(start / self.step_seconds), end // self.step_seconds + 1) * self.step_seconds

    def _counted(self, spans: Spans, at: Array, reset_at: float | None, *, start: float = 1e3) -> Array:
        """A counter that was at `start` at midnight, and begins anew with 0 at `reset_at`."""
        counted = start + spans.amount(at)
        if reset_at is None:
            return counted
        return np.where(at >= reset_at, counted - start - spans.amount(np.array([reset_at])), counted)
