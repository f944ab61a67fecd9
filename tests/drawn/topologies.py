"""Topologies: which boards, engines and pods a cluster has, and how they change hands. Each world has one.

Add a shape here as a function of an empty world, with one sentence of what is true of it. Keep out how watts and
tokens add up (`worlds`), and how the cluster is seen (`sightings`).
"""

from __future__ import annotations

from dataclasses import replace

from tests.drawn.spans import Spans
from tests.drawn.worlds import H100, SPAN_SECONDS, Engine, Holding, World

MIDDLE = SPAN_SECONDS / 2


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


def sharing_a_board(world: World) -> None:
    """Two engines of one model take turns on one board."""
    board = world.add_board(0)
    for number in range(2):
        world.hold(board, world.add_engine(str(number)), weight=0.5, compute=0.5)


def two_models_of_a_node(world: World) -> None:
    """Two engines of two models on two boards of a node, and a free board."""
    for number in range(2):
        world.hold(world.add_board(number), world.add_engine(str(number), f"m{number}"))
    world.add_board(2)


def mixed_boards(world: World) -> None:
    """One engine on two kinds of board, at 1 and 3 USD an hour."""
    engine = world.add_engine()
    world.hold(world.add_board(0), engine)
    world.hold(world.add_board(1, device_type=H100, busy_watts=620.0, parked_watts=120.0, free_watts=80.0), engine)


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


def scorers_and_chat(world: World) -> None:
    """The innocent twin: a pool that answers with one token beside a chat pool of that model whose prompts came in part
    from a store. Neither hands anything to the other."""
    chat = world.add_engine("chat-0")
    # Half of the chat's prompts came from a store that an earlier request filled.
    world.engines[chat.pod] = replace(chat, stored=chat.prompt.times(0.5))
    scorer = world.add_engine("score-0")
    # A prompt of 30 tokens for each answer of one token, at another rate than the chat's.
    one_token = scorer.output.times(0.1)
    world.engines[scorer.pod] = replace(scorer, output=one_token, prompt=one_token.times(30.0))
    world.hold(world.add_board(0), scorer)
    world.hold(world.add_board(1), chat)


def one_slice_of_seven(world: World) -> None:
    """A board in seven `1g` slices, of which one is held."""
    world.hold(world.add_board(0), world.add_engine(), slice_id="1", profile="1g.10gb", weight=1 / 7, compute=1 / 7)


def two_slices(world: World) -> None:
    """A board in a `4g` and a `3g` slice of half its memory each: the greater shares are 4/7 and 1/2, scaled to 1."""
    board = world.add_board(0)
    for number, (profile, weight, compute) in enumerate((("4g.40gb", 8 / 15, 4 / 7), ("3g.40gb", 7 / 15, 3 / 7))):
        engine = world.add_engine(str(number), f"m{number}")
        slice_id = str(number + 1)
        world.hold(board, engine, slice_id=slice_id, profile=profile, weight=weight, compute=compute)


def repartitioned(world: World) -> None:
    """A board is one engine's `7g` slice, and from the middle of its time a `4g` and a `3g` slice of two others."""
    board = world.add_board(0)
    cut = (
        ("7g.80gb", 1.0, 1.0, 0.0, MIDDLE),
        ("4g.40gb", 8 / 15, 4 / 7, MIDDLE, float(SPAN_SECONDS)),
        ("3g.40gb", 7 / 15, 3 / 7, MIDDLE, float(SPAN_SECONDS)),
    )
    for number, (profile, weight, compute, start, end) in enumerate(cut):
        engine = world.add_engine(str(number), f"m{number}").during(start, end)
        world.engines[engine.pod] = engine
        more = {"slice_id": str(number), "profile": profile, "weight": weight, "compute": compute}
        world.hold(board, engine, start=start, end=end, **more)


def swapped_model(world: World) -> None:
    """A pod serves one model, and from the middle of its time another."""
    engine = world.add_engine()
    board = world.add_board(0)
    later = f"{engine.pod} later"
    world.engines = {engine.pod: engine.during(0, MIDDLE), later: engine.during(MIDDLE, SPAN_SECONDS, world.name)}
    world.hold(board, engine, end=MIDDLE)
    world.holdings.append(Holding(board.uuid, later, engine.pod, start=MIDDLE))


def moved_pod(world: World) -> None:
    """A pod holds one board of its node, and from the middle of its time the other."""
    engine = world.add_engine()
    for number, (start, end) in enumerate(((0.0, MIDDLE), (MIDDLE, float(SPAN_SECONDS)))):
        world.hold(world.add_board(number), engine, start=start, end=end)


def moved_to_another_node(world: World) -> None:
    """A pod of a stateful set starts anew on another node in the middle of its time: the same name, a new process."""
    engine = world.add_engine()
    later = f"{engine.pod} later"
    world.engines = {engine.pod: engine.during(0, MIDDLE), later: engine.during(MIDDLE, SPAN_SECONDS)}
    world.hold(world.add_board(0), engine, end=MIDDLE)
    moved = world.add_board(1, node=1)
    world.holdings.append(Holding(moved.uuid, later, engine.pod, start=MIDDLE))


def beside_a_training_job(world: World) -> None:
    """One engine on one board; on the node's other board a job that is no engine computes, and reports nothing."""
    world.hold(world.add_board(0), world.add_engine())
    job = world.add_engine("job", "no-model")
    world.engines[job.pod] = replace(job, output=Spans(), prompt=Spans(), hidden_work=job.output)
    world.hold(world.add_board(1), world.engines[job.pod])


def next_pod_of_a_board(world: World) -> None:
    """A pod ends in the middle; another of the same model takes its board over."""
    engine = world.add_engine()
    board = world.add_board(0)
    later = replace(engine.during(MIDDLE, SPAN_SECONDS), pod=f"{world.name}-1")
    world.engines = {engine.pod: engine.during(0, MIDDLE), later.pod: later}
    world.hold(board, engine, end=MIDDLE)
    world.hold(board, later, start=MIDDLE)


def autoscaled(world: World) -> None:
    """Beside one engine a second lives for half an hour, on a board that is free before and after."""
    world.hold(world.add_board(0), world.add_engine("0"))
    start = 600.0 * world.random.randint(4, 14)
    world.hold(
        world.add_board(1), world.add_engine("1", alive=(start, start + 1800.0)), start=start, end=start + 1800.0
    )


TOPOLOGIES = {
    gene.__name__: gene
    for gene in (
        single,
        tensor_parallel,
        replicas,
        sharing_a_board,
        two_models_of_a_node,
        mixed_boards,
        leader_and_worker,
        prefill_and_decode,
        scorers_and_chat,
        one_slice_of_seven,
        two_slices,
        repartitioned,
        swapped_model,
        moved_pod,
        moved_to_another_node,
        beside_a_training_job,
        next_pod_of_a_board,
        autoscaled,
    )
}
