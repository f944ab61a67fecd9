"""Worlds: boards that draw watts and engines that compute tokens, and what is true of them per model.

Add here what a cluster can be (a topology, an event of it). Truth follows from watts and tokens per second alone, never
from a rule of the product. Keep out what exporters report of a world (`sightings`) and what a book has (`verdicts`).
Seconds count from the first midnight.
"""

from __future__ import annotations

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
    busy_watts: float = 300.0
    parked_watts: float = 90.0
    free_watts: float = 55.0


@dataclass(frozen=True)
class Engine:
    """A serving process: its pod, its model, and tokens per second over time.

    `prompt` is what it was given; of that, `handed` came computed from another engine.
    """

    pod: str
    model: str
    output: Spans
    prompt: Spans
    handed: Spans = field(default_factory=Spans)
    alive: tuple[float, float] = (0.0, SPAN_SECONDS)

    def busy(self) -> list[tuple[float, float]]:
        """When it computes, as [from, to), sorted and without overlaps."""
        merged: list[tuple[float, float]] = []
        for first, last, _ in sorted(self.output.pieces + self.prompt.pieces):
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


@dataclass(frozen=True)
class Truth:
    """What is true of a model in its cell."""

    joules: float
    output_tokens: float
    prompt_tokens: float
    gpu_hours_usd: float

    @property
    def joules_per_output_token(self) -> float:
        """Over all its boards and tokens."""
        return self.joules / self.output_tokens


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

    def add_engine(self, pod: str = "0", model: str = "m", *, share: float = 1.0) -> Engine:
        """An engine that is busy in a few spans of whole minutes."""
        busy = self.busy_spans()
        rate = self.random.choice((5.0, 20.0, 80.0)) * share
        output = Spans.of((first, last, rate) for first, last in busy)
        engine = Engine(f"{self.name}-{pod}", f"{self.name}-{model}", output, output.times(3.0))
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

    def truths(self) -> dict[str, Truth]:
        """Model -> what is true of it."""
        found: dict[str, Truth] = {}
        for key, engine in self.engines.items():
            held = [one for one in self.holdings if one.engine == key]
            joules, dollars = 0.0, 0.0
            for one in held:
                board = self.boards[one.board]
                loaded = Spans.of([(one.start, one.end, board.parked_watts)])
                joules += loaded.times(one.weight).total() + self._dynamic(board, one).total()
                dollars += (one.end - one.start) / 3600 * USD_PER_GPU_HOUR[board.device_type] * one.weight
            before = found.get(engine.model, Truth(0.0, 0.0, 0.0, 0.0))
            found[engine.model] = Truth(
                before.joules + joules,
                before.output_tokens + engine.output.total(),
                before.prompt_tokens + engine.prompt.total() - engine.handed.total(),
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
        sharers = sum(1 for one in self._of(board) if one.slice_id is not None) or 1
        more = (board.busy_watts - board.parked_watts) / sharers
        busy = self.engines[held.engine].busy()
        return Spans.of((max(first, held.start), min(last, held.end), more) for first, last in busy)


# --- topologies: genes, of which each world has one -------------------------------------------------------------------


def single(world: World) -> None:
    """One engine on one board."""
    world.hold(world.add_board(0), world.add_engine())


def tensor_parallel(world: World) -> None:
    """One engine on two boards of a node."""
    engine = world.add_engine()
    for number in range(2):
        world.hold(world.add_board(number), engine)


def replicas(world: World) -> None:
    """Two engines of one model."""
    for number in range(2):
        world.hold(world.add_board(number), world.add_engine(str(number)))


def two_models_of_a_node(world: World) -> None:
    """Two engines of two models on two boards of a node, and a free board."""
    for number in range(2):
        world.hold(world.add_board(number), world.add_engine(str(number), f"m{number}"))
    world.add_board(2)


def mixed_boards(world: World) -> None:
    """One engine on two kinds of board, at 1 and 3 USD an hour."""
    engine = world.add_engine()
    world.hold(world.add_board(0), engine)
    world.hold(world.add_board(1, device_type=H100, busy_watts=500.0, parked_watts=120.0, free_watts=80.0), engine)


def leader_and_worker(world: World) -> None:
    """One engine over two nodes: the worker's pod holds the second board and has no metrics."""
    engine = world.add_engine()
    world.hold(world.add_board(0), engine)
    world.hold(world.add_board(1, node=1), engine, pod=f"{engine.pod}-1")


def prefill_and_decode(world: World) -> None:
    """Two pools of one model; each prompt is computed in the first and handed to the second."""
    decode = world.add_engine("decode-0")
    world.engines[decode.pod] = replace(decode, handed=decode.prompt)
    # One token of each answer is written by the prefill engine; requests have 100 tokens of output.
    first_tokens = decode.output.times(0.01)
    prefill = Engine(f"{world.name}-prefill-0", decode.model, first_tokens, decode.prompt)
    world.engines[prefill.pod] = prefill
    world.hold(world.add_board(0), prefill)
    world.hold(world.add_board(1), world.engines[decode.pod])


def one_slice_of_seven(world: World) -> None:
    """A board in seven `1g` slices, of which one is held."""
    world.hold(world.add_board(0), world.add_engine(), slice_id="1", profile="1g.10gb", weight=1 / 7)


def two_slices(world: World) -> None:
    """A board in a `4g` and a `3g` slice, each with a model of its own."""
    board = world.add_board(0)
    for number, (profile, weight) in enumerate((("4g.40gb", 4 / 7), ("3g.40gb", 3 / 7))):
        engine = world.add_engine(str(number), f"m{number}")
        world.hold(board, engine, slice_id=str(number + 1), profile=profile, weight=weight)


def swapped_model(world: World) -> None:
    """A pod serves one model, and from the middle of its time another."""
    middle = SPAN_SECONDS / 2
    engine = world.add_engine()
    board = world.add_board(0)
    later = replace(engine, pod=engine.pod, model=f"{world.name}-later")
    first = replace(engine, output=engine.output.within(0, middle), prompt=engine.prompt.within(0, middle))
    second = replace(
        later,
        output=engine.output.within(middle, SPAN_SECONDS),
        prompt=engine.prompt.within(middle, SPAN_SECONDS),
        alive=(middle, SPAN_SECONDS),
    )
    world.engines = {engine.pod: replace(first, alive=(0, middle)), f"{engine.pod} later": second}
    world.hold(board, engine, end=middle)
    world.holdings.append(Holding(board.uuid, f"{engine.pod} later", engine.pod, start=middle))


TOPOLOGIES = {
    gene.__name__: gene
    for gene in (
        single,
        tensor_parallel,
        replicas,
        two_models_of_a_node,
        mixed_boards,
        leader_and_worker,
        prefill_and_decode,
        one_slice_of_seven,
        two_slices,
        swapped_model,
    )
}
