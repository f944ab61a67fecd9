"""Worlds: boards that draw watts and engines that compute tokens, and what is true of them per model.

Add here what a board or an engine does. Truth follows from watts and tokens per second alone, never from a rule of the
product. Keep out which boards and engines a cluster has (`topologies`), what exporters report of it (`sightings`), and
what a book has (`verdicts`). Seconds count from the first midnight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

from tests.drawn.spans import Spans

SPAN_SECONDS = 4 * 3600  # what a cell lives for, on one date
A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
USD_PER_GPU_HOUR = {A100: 1.0, H100: 3.0}


@dataclass(frozen=True)
class Board:
    """An accelerator: watts while its engine computes, while a model is loaded, and while nothing holds it."""

    uuid: str
    node: str
    device_type: str = A100
    busy_watts: float = 330.0
    parked_watts: float = 90.0
    free_watts: float = 55.0


@dataclass(frozen=True)
class Engine:
    """A serving process: its pod, its model, and tokens per second over time.

    `prompt` is what it was given; of that, `handed` came computed from another engine, and `stored` from a store that
    an earlier request filled. `hidden_work` is when a job computes that is no engine, and that only boards show.
    """

    pod: str
    model: str
    output: Spans
    prompt: Spans
    handed: Spans = field(default_factory=Spans)
    stored: Spans = field(default_factory=Spans)
    hidden_work: Spans = field(default_factory=Spans)
    alive: tuple[float, float] = (0.0, SPAN_SECONDS)

    def during(self, start: float, end: float, later_model: str = "") -> Engine:
        """This process from one moment to another; with `later_model`, of a model named so."""
        return replace(
            self,
            model=f"{later_model}-later" if later_model else self.model,
            output=self.output.within(start, end),
            prompt=self.prompt.within(start, end),
            alive=(start, end),
        )

    def busy(self) -> list[tuple[float, float]]:
        """When it computes, as [from, to), sorted and without overlaps."""
        merged: list[tuple[float, float]] = []
        for first, last, _ in sorted(self.output.pieces + self.prompt.pieces + self.hidden_work.pieces):
            if merged and first <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return merged


@dataclass(frozen=True)
class Holding:
    """An engine (a key of the world's engines) holds a board, or a slice of it, from one moment to another, in the name
    of `pod`: the engine's own, or a worker's."""

    board: str
    engine: str
    pod: str
    start: float = 0.0
    end: float = SPAN_SECONDS
    slice_id: str | None = None
    profile: str | None = None
    weight: float = 1.0  # of the board's capacity and idle watts
    compute: float = 1.0  # of the board's compute units


@dataclass(frozen=True)
class Truth:
    """What is true of a model in its cell; `idle_joules` are what its boards would have drawn without work."""

    joules: float
    idle_joules: float
    output_tokens: float
    prompt_tokens: float
    gpu_hours_usd: float

    @property
    def joules_per_output_token(self) -> float | None:
        """Over all its boards and tokens; None without a token."""
        return self.joules / self.output_tokens if self.output_tokens else None


@dataclass
class World:
    """One cell of a drawn fleet: its names are its own."""

    name: str
    random: Random
    boards: dict[str, Board] = field(default_factory=dict)
    engines: dict[str, Engine] = field(default_factory=dict)
    holdings: list[Holding] = field(default_factory=list)

    # --- what is in it ------------------------------------------------------------------------------------------------

    def add_board(self, number: int, node: int = 0, device_type: str = A100, **more: float) -> Board:
        """A board of the cell's node of that number."""
        board = Board(f"GPU-{self.name}-{number}", f"{self.name}-n{node}", device_type, **more)
        self.boards[board.uuid] = board
        return board

    def add_engine(
        self, pod: str = "0", model: str = "m", *, alive: tuple[float, float] = (0.0, SPAN_SECONDS)
    ) -> Engine:
        """An engine that is busy in a few spans of whole minutes; one that lives shorter works all its life."""
        busy = self.busy_spans() if alive == (0.0, SPAN_SECONDS) else [(alive[0] + 300.0, alive[1] - 300.0)]
        rate = self.random.choice((5.0, 20.0, 80.0))
        output = Spans.of((first, last, rate) for first, last in busy)
        engine = Engine(f"{self.name}-{pod}", f"{self.name}-{model}", output, output.times(3.0), alive=alive)
        self.engines[engine.pod] = engine
        return engine

    def hold(self, board: Board, engine: Engine, **more: object) -> None:
        """The engine's own pod holds the board, unless `more` names another."""
        self.holdings.append(Holding(**{"board": board.uuid, "engine": engine.pod, "pod": engine.pod, **more}))

    def busy_spans(self) -> list[tuple[float, float]]:
        """Two or three spans, of 20 to 60 minutes each, with at least half an hour without work between them."""
        spans, at = [], 600.0 * self.random.randint(0, 2)
        for _ in range(self.random.randint(2, 3)):
            length = 600.0 * self.random.randint(2, 6)
            if at + length > SPAN_SECONDS:
                break
            spans.append((at, at + length))
            at += length + 600.0 * self.random.randint(3, 5)
        return spans

    # --- what is true of it -------------------------------------------------------------------------------------------

    def watts(self, board: Board) -> Spans:
        """What the board draws."""
        return sum((self._dynamic(board, one) for one in self._of(board)), self._floor(board))

    def joules(self) -> float:
        """What all boards draw while the world lasts."""
        return sum(self.watts(board).total() for board in self.boards.values())

    def truths(
        self, known_until: Mapping[str, float] | None = None, host_watts: Mapping[str, float] | None = None
    ) -> dict[str, Truth]:
        """Model -> what is true of it, over the time of each of its engines that begins `known_until`; `host_watts` are
        those of boards (by uuid) that can only be metered with their host."""
        found: dict[str, Truth] = {}
        for key, engine in self.engines.items():
            if engine.hidden_work.pieces:
                continue
            until = known_until[key] if known_until else SPAN_SECONDS
            held = [one for one in self.holdings if one.engine == key and one.start < until]
            joules, idle_joules, dollars = 0.0, 0.0, 0.0
            for one in held:
                board, end = self.boards[one.board], min(one.end, until)
                watts = board.parked_watts + (host_watts or {}).get(one.board, 0.0)
                loaded = Spans.of([(one.start, end, watts * one.weight)])
                idle_joules += loaded.total()
                joules += loaded.total() + self._dynamic(board, one).within(0, until).total()
                dollars += (end - one.start) / 3600 * USD_PER_GPU_HOUR[board.device_type] * one.weight
            before = found.get(engine.model, Truth(0.0, 0.0, 0.0, 0.0, 0.0))
            tokens = [spans.within(0, until).total() for spans in (engine.output, engine.prompt, engine.handed)]
            found[engine.model] = Truth(
                before.joules + joules,
                before.idle_joules + idle_joules,
                before.output_tokens + tokens[0],
                before.prompt_tokens + tokens[1] - tokens[2],
                before.gpu_hours_usd + dollars,
            )
        return found

    def _of(self, board: Board) -> list[Holding]:
        return [one for one in self.holdings if one.board == board.uuid]

    def _floor(self, board: Board) -> Spans:
        """Watts without work: parked where anything is loaded, else free."""
        edges = sorted({0.0, float(SPAN_SECONDS), *(edge for one in self._of(board) for edge in (one.start, one.end))})
        pieces = []
        for first, last in pairwise(edges):
            is_held = any(one.start <= first and last <= one.end for one in self._of(board))
            pieces.append((first, last, board.parked_watts if is_held else board.free_watts))
        return Spans.of(pieces)

    def _dynamic(self, board: Board, held: Holding) -> Spans:
        """What the work of one holder draws over the parked watts."""
        more = (board.busy_watts - board.parked_watts) * held.compute
        busy = self.engines[held.engine].busy()
        return Spans.of((max(first, held.start), min(last, held.end), more) for first, last in busy)
