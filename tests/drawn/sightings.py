"""What exporters reported of a world: metrics, labels and samples, with all that goes wrong on the way.

Add here how a world can be seen (a relabelling, a silence, a reset). A sighting that hides something is a fault: the
book may flag it in place of the truth. Keep out what is true (`worlds`) and the names of metrics (`exporters`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

import numpy as np

from tests.drawn.exporters import DCGM, GATEWAYS, OWN_POD, Exporter
from tests.drawn.retellings import Array, Page, Retelling, Seen
from tests.drawn.spans import Spans
from tests.drawn.worlds import SPAN_SECONDS, Board, Engine, Holding, World

ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
NODE_WATTS = "ipmi_dcmi_power_consumption_watts"
HOST_WATTS = 250.0  # what a node draws beside its boards
BOOT = -86_400.0


@dataclass
class Sighting:
    """How a world is seen. The moments are seconds after midnight; None means that it does not happen."""

    step_seconds: float = 60.0
    phase_seconds: float = 0.0  # of the scrapes, after whole steps
    dropped_ratio: float = 0.0  # of the scrapes
    stated_seconds: float | None = None  # of the source, where it is not the step
    stalls_at: tuple[float, ...] = ()  # each for two and a half stated intervals
    exporter: Exporter = DCGM
    reads: tuple[str, ...] = ("counter", "gauge")
    labels: str = "own"  # or `exported`, by the scraper; or `one own`: the last board alone has its own
    is_of_two_clusters: bool = False  # behind one server; both name their jobs alike, and the second honors labels
    jobs: tuple[str, ...] = ("engines",)  # that scrape each engine
    node_meter: str | None = None  # `placed` names its node, `unplaced` has an address that nothing knows
    reset_at: float | None = None  # a board's counter begins anew
    restarts_at: tuple[float, ...] = ()  # an engine's counters begin anew
    dark_from: float | None = None  # the last board's meter is silent
    is_only_utilised: bool = False  # the last board is seen by its utilisation alone
    engine_ends_at: float | None = None  # the engines' samples end, the boards' go on
    start_unit: float = 1.0  # of the process start, in a second
    renamed_at: float | None = None  # the nodes have other names from then on
    odd_samples: tuple[tuple[float, float], ...] = ()  # where in each counter and gauge (0 to 1), and its value there
    tenants: Mapping[str, float] = field(default_factory=dict)  # who asked, and their parts of the tokens
    gateway: str | None = None  # whose counters name them, in place of a request log: a key of exporters.GATEWAYS
    page: Page | None = None  # what becomes of each engine's page
    retellings: tuple[Retelling, ...] = ()  # what becomes of all series then, in order
    unseen_steps: float = 0.0  # more of them than usual, at the ends of what is counted
    is_faulty: bool = False  # a check may name it although each figure is right
    hidden: set[str] = field(default_factory=set)  # figures that cannot be known: right or flagged
    unknown: set[str] = field(default_factory=set)  # others: right, NULL, or in doubt in their row

    def host_watts(self, world: World) -> dict[str, float]:
        """A board that reports no power, alone on a node whose meter does, is read with its host. Of one that
        several hold it is unknown whose the watts are."""
        last = list(world.boards.values())[-1]
        is_alone = [board.node for board in world.boards.values()].count(last.node) == 1
        is_whole = all(one.weight == 1 for one in world.holdings if one.board == last.uuid)
        is_behind = self.is_only_utilised and self.node_meter == "placed" and is_alone and is_whole
        return {last.uuid: HOST_WATTS} if is_behind else {}

    def known_until(self, world: World) -> dict[str, float]:
        """Engine -> until when its tokens and the power of all its boards are seen."""
        last = list(world.boards)[-1]
        is_dark = self.is_only_utilised and not self.host_watts(world)
        ends = {}
        for key in world.engines:
            held = [one.start for one in world.holdings if one.board == last and one.engine == key]
            hidden = (self.dark_from, min(held) if is_dark else None) if held else ()
            silent = None if self.engine_ends_at is None else self._silent_from(world.engines[key])
            ends[key] = min(end for end in (silent, *hidden, float(SPAN_SECONDS)) if end is not None)
        # What one pool hands to another is known of both or of none.
        if any(engine.handed.pieces for engine in world.engines.values()):
            return dict.fromkeys(ends, min(ends.values()))
        return ends

    def series(self, world: World) -> Iterator[Seen]:
        """All that is reported of a world."""
        reported: Iterator[Seen] = self._series(world)
        for retelling in self.retellings:
            reported = retelling.reported(world, reported)
        for metric, labels, at, values in reported:
            is_read = metric != "process_start_time_seconds"
            yield metric, labels, at, self._with_oddities(values) if is_read else values

    def requests(self, world: World) -> Iterator[tuple[str, str, float, float]]:
        """Model, tenant, second after midnight and output tokens of a minute's requests, where they are logged."""
        if self.gateway is not None:
            return
        for engine in world.engines.values():
            for first, last, rate in engine.output.pieces:
                for minute in np.arange(first, last, 60.0):
                    for tenant, part in self.tenants.items():
                        yield engine.model, tenant, float(minute), rate * 60.0 * part

    def _with_oddities(self, values: Array) -> Array:
        """The values with the odd ones among them; never the first or the last."""
        shown = values.astype(float)
        for place, odd in self.odd_samples if len(values) > 30 else ():
            shown[1 + int(place * (len(values) - 2))] = odd
        return shown

    def _series(self, world: World) -> Iterator[Seen]:
        last = list(world.boards)[-1]
        for board in world.boards.values():
            for held in self._holdings(world, board):
                for metric, labels, at, values in self._board(world, board, held, is_last=board.uuid == last):
                    yield from self._by_names(self.exporter.node, metric, labels, at, values)
        for key, engine in world.engines.items():
            for job in () if engine.hidden_work.pieces else self.jobs:
                page = self._engine(world, key, engine, job)
                yield from self.page(list(page)) if self.page else page
        if self.node_meter:
            yield from self._nodes(world)
        if self.gateway is not None:
            yield from self._gateway(world, self.gateway)

    # --- boards -------------------------------------------------------------------------------------------------------

    def _holdings(self, world: World, board: Board) -> list[Holding | tuple[float, float]]:
        """The holdings of a board in order, each of which its series are labelled with while it lasts, and between them
        the times [from, to) in which nothing holds it."""
        held = sorted((one for one in world.holdings if one.board == board.uuid), key=lambda one: one.start)
        found: list[Holding | tuple[float, float]] = []
        at = 0.0
        for one in held:
            if one.start > at:
                found.append((at, one.start))
            found.append(one)
            at = max(at, one.end)
        return [*found, (at, float(SPAN_SECONDS))] if at < SPAN_SECONDS else found

    def _board(
        self, world: World, board: Board, held: Holding | tuple[float, float], *, is_last: bool
    ) -> Iterator[Seen]:
        start, end = (held.start, held.end) if isinstance(held, Holding) else held
        at = self._moments(start, end, f"{board.uuid}")
        if is_last and self.dark_from is not None:
            at = at[at < self.dark_from]
        holder = held if isinstance(held, Holding) else None
        labels = self._board_labels(world, board, holder, is_last=is_last)
        watts = world.watts(board)
        busy = Spans.of((first, last, 1.0) for first, last in (world.engines[holder.engine].busy() if holder else []))
        reads = () if is_last and self.is_only_utilised else self.reads
        if "counter" in reads:
            counted = self._counted(watts, at, () if self.reset_at is None else (self.reset_at,), start=5e4)
            yield self.exporter.energy, labels, at, self.exporter.units_per_joule * counted
        if "gauge" in reads:
            yield self.exporter.watts, labels, at, watts.rate(at)
        yield self.exporter.activity, labels, at, self.exporter.units_at_work * (busy.rate(at) > 0)
        if holder and self._shares(world, holder) and holder.pod == min(one.pod for one in world.holdings):
            own = self._board_labels(world, board, None, is_last=is_last)
            yield self.exporter.activity, own, at, self.exporter.units_at_work * (watts.rate(at) > board.parked_watts)
        if holder and holder.slice_id is not None:
            yield ACTIVE, labels, at, 0.9 * (busy.rate(at) > 0)

    def _shares(self, world: World, held: Holding) -> bool:
        """Whether others take turns with it on the board."""
        return held.slice_id is None and held.weight < 1

    def _board_labels(self, world: World, board: Board, held: Holding | None, *, is_last: bool) -> dict[str, str]:
        labels = {**self.exporter.labels(board), "job": "gpus"}
        style = self.labels
        if self.is_of_two_clusters:
            labels["cluster"] = self._cluster(world, held.engine if held else next(iter(world.engines)))
            style = {"k8s-0": "exported", "k8s-1": "own"}[labels["cluster"]]
        workload = {"namespace": "llm", "pod": held.pod, "container": "engine"} if held else {}
        if style == "exported" or (style == "one own" and not is_last):
            labels |= {**OWN_POD, **{f"exported_{name}": value for name, value in workload.items()}}
        else:
            labels |= workload
        if held and held.slice_id is not None:
            labels |= {"GPU_I_ID": held.slice_id, "GPU_I_PROFILE": str(held.profile)}
        return labels

    def _nodes(self, world: World) -> Iterator[Seen]:
        nodes = {board.node for board in world.boards.values()}
        for number, node in enumerate(sorted(nodes)):
            at = self._moments(0.0, SPAN_SECONDS, f"bmc {node}")
            boards = (world.watts(board).rate(at) for board in world.boards.values() if board.node == node)
            named = {"node": node} if self.node_meter == "placed" else {"instance": f"bmc-{world.name}-{number}:9290"}
            labels, watts = {"job": f"ipmi-{world.name}", **named}, sum(boards, np.full(len(at), HOST_WATTS))
            yield from self._by_names("node", NODE_WATTS, labels, at, watts)

    def _by_names(self, node: str, metric: str, labels: dict[str, str], at: Array, values: Array) -> Iterator[Seen]:
        """A series, or two where its node is renamed: `node` is the label that names it."""
        if self.renamed_at is None or node not in labels:
            yield metric, labels, at, values
            return
        is_later = at >= self.renamed_at
        yield metric, labels, at[~is_later], values[~is_later]
        yield metric, labels | {node: f"{labels[node]}-renamed"}, at[is_later], values[is_later]

    # --- engines ------------------------------------------------------------------------------------------------------

    def _engine(self, world: World, key: str, engine: Engine, job: str) -> Iterator[Seen]:
        start, end = engine.alive
        if self.engine_ends_at is not None:
            end = min(end, self._silent_from(engine))
        at = self._moments(start, end, f"{job} {key}")
        labels = {"model_name": engine.model, "engine": "0", "namespace": "llm", "pod": engine.pod}
        labels |= {"container": "engine", "job": f"{job}-{world.name}", "instance": f"{engine.pod}:8000"}
        if self.is_of_two_clusters:
            labels["cluster"] = self._cluster(world, key)
        for metric, tokens in (
            ("vllm:prompt_tokens_total", engine.prompt),
            ("vllm:generation_tokens_total", engine.output),
        ):
            yield metric, labels, at, self._counted(tokens, at, self.restarts_at, start=self._first_value(engine))
        moved = engine.handed + engine.stored
        computed = engine.prompt + moved.times(-1.0)
        for source, tokens in (("local_compute", computed), ("external_kv_transfer", moved)):
            if tokens.total() > 0:
                counted = self._counted(tokens, at, self.restarts_at, start=self._first_value(engine))
                yield "vllm:prompt_tokens_by_source_total", {**labels, "source": source}, at, counted
        running = Spans.of((first, last, 1.0) for first, last in engine.busy())
        yield "vllm:num_requests_running", labels, at, 4.0 * (running.rate(at) > 0)
        began = np.full(len(at), start if start > 0 else BOOT)
        for restart in self.restarts_at:
            began = np.where((at >= restart) & (restart > start), restart, began)
        yield "process_start_time_seconds", labels, at, began

    def _cluster(self, world: World, key: str) -> str:
        """The first pod, and whoever is on its boards, are in one cluster, the others in the other; all boards of an
        engine are in its own."""
        first = next(iter(world.engines.values())).pod
        boards = {one.board for one in world.holdings if one.pod == first}
        pods = {first, *(one.pod for one in world.holdings if one.board in boards)}
        return "k8s-0" if world.engines[key].pod in pods else "k8s-1"

    def _silent_from(self, engine: Engine) -> float:
        """Each engine is seen for half an hour at least: else nothing shows that there was one."""
        return max(self.engine_ends_at or 0.0, engine.alive[0] + 1800.0)

    def _first_value(self, engine: Engine) -> float:
        """A process that began within the day counts from 0."""
        return 0.0 if engine.alive[0] > 0 else 1e3

    # --- gateways -----------------------------------------------------------------------------------------------------

    def _gateway(self, world: World, name: str) -> Iterator[Seen]:
        """Counters of a process that outlives its engines; one appears with the first request that it counts."""
        at = self._moments(0.0, SPAN_SECONDS, f"gateway {world.name}")
        added = {"job": f"gateway-{world.name}", "instance": f"gateway-{world.name}:4000"}
        yield "process_start_time_seconds", added, at, np.full(len(at), BOOT)
        outputs: dict[str, Spans] = {}
        for engine in world.engines.values():
            outputs[engine.model] = outputs.get(engine.model, Spans()) + engine.output
        for model, output in outputs.items():
            for tenant, part in self.tenants.items():
                for metric, labels, times in GATEWAYS[name](model, f"{world.name}-{tenant}"):
                    counted = self._counted(output.times(part * times), at, (), start=0.0)
                    is_there = counted > 0
                    yield metric, {**added, **labels}, at[is_there], counted[is_there]

    # --- samples ------------------------------------------------------------------------------------------------------

    def _moments(self, start: float, end: float, target: str) -> Array:
        """The scrapes of a target in [start, end), at the cell's end too, without those that were dropped."""
        first = np.ceil((start - self.phase_seconds) / self.step_seconds)
        numbers = np.arange(
            first, (end - self.phase_seconds) / self.step_seconds + (1e-6 if end == SPAN_SECONDS else 0)
        )
        if self.dropped_ratio:
            dropped = Random(f"{target}/{self.phase_seconds}/{self.dropped_ratio}")
            numbers = numbers[[dropped.random() >= self.dropped_ratio for _ in numbers]]
        at = numbers * self.step_seconds + self.phase_seconds
        for stall in self.stalls_at:
            at = at[(at < stall) | (at >= stall + 2.5 * (self.stated_seconds or self.step_seconds))]
        return at

    def _counted(self, spans: Spans, at: Array, resets_at: tuple[float, ...], *, start: float) -> Array:
        """A counter that was at `start` at midnight, and begins anew with 0 at each of `resets_at`."""
        amount = spans.amount(at)
        counted = start + amount
        for reset_at in resets_at:
            counted = np.where(at >= reset_at, amount - spans.amount(np.array([reset_at])), counted)
        return counted
