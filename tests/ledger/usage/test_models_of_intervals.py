"""A model, and a node, belong to an interval: engines that change their model, serve several at once, or move.

Power is constant, so that joules are watts × seconds; expected values are worked out from what is planted.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.books import Book
from tests.planted import (
    DAY,
    DAY_SECONDS,
    ENERGY,
    HOURS,
    OUTPUT,
    Series,
    board,
    plant,
    pod,
    rising,
    vllm,
)

END = 2 * DAY_SECONDS
MARTS = ("energy_ledger", "model_daily", "token_ledger")
NOON = 12 * HOURS
FREE = "__unallocated__"  # a board that the fleet file assigns at other times
LLAMA = "llamacpp:tokens_predicted_total"


def board_of(name: str, node: str, watts: float) -> Series:
    return ENERGY, board(f"GPU-{name}", node, **pod(f"{name}-0")), rising(1000 * watts, 0, END)


def planted() -> Iterator[Series]:
    # 150 W; alpha until noon at 2 tokens a second, then beta at 0.02: 86,280 and 864 tokens.
    yield board_of("swap", "n1", 150)
    yield OUTPUT, vllm("swap-0", "alpha"), rising(2, 0, NOON - 60)
    yield OUTPUT, vllm("swap-0", "beta"), rising(0.02, NOON, END)
    # 200 W; a base model at 3 tokens a second until 18:00, its LoRA at 1 from 06:00 to 18:00.
    yield board_of("lora", "n2", 200)
    yield OUTPUT, vllm("lora-0", "base"), _stops(3, 0, 18 * HOURS)
    yield OUTPUT, vllm("lora-0", "tuned"), _stops(1, 6 * HOURS, 18 * HOURS)
    # One model under two names.
    yield board_of("alias", "n3", 100)
    yield OUTPUT, vllm("alias-0", "org/plain"), rising(1, 0, NOON - 60)
    yield OUTPUT, vllm("alias-0", "plain"), rising(1, NOON, END)
    # Two pods share a board; one of them changes its model at noon.
    for name in ("left", "right"):
        yield ENERGY, board("GPU-pair", "n4", **pod(f"{name}-0")), rising(300_000, 0, END)
    yield OUTPUT, vllm("left-0", "first"), rising(1, 0, NOON - 60)
    yield OUTPUT, vllm("left-0", "second"), rising(1, NOON, END)
    yield OUTPUT, vllm("right-0", "steady"), rising(2, 0, END)
    # A free board that is in another node from noon on.
    yield ENERGY, board("GPU-moved", "n5"), rising(60_000, 0, NOON - 60)
    yield ENERGY, board("GPU-moved", "n6"), rising(60_000, NOON, END, start=1e6 + 60_000 * NOON)
    # The fleet file assigns models to these: one reports another model, one reports none.
    for node, metric, labels in (("n9", OUTPUT, {"model_name": "served", "engine": "0"}), ("n10", LLAMA, {})):
        yield ENERGY, board(f"GPU-{node}", node), rising(100_000, 0, END)
        yield metric, {"instance": f"{node}:8000", **labels}, rising(2, 0, END)
    # One that is moved at midnight.
    yield ENERGY, board("GPU-night", "n8"), rising(60_000, 0, DAY_SECONDS - 60)
    yield ENERGY, board("GPU-night", "n7"), rising(60_000, DAY_SECONDS, END, start=1e6 + 60_000 * DAY_SECONDS)


def _stops(per_second: float, first: float, stop: float) -> list[tuple[float, float]]:
    """A counter that does not move from `stop` on."""
    moving = rising(per_second, first, stop)
    return [*moving, *((at, moving[-1][1]) for at, _ in rising(0, stop + 60, END))]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    nodes = [{"name": "n5", "rack": "r5"}, {"name": "n6", "rack": "r6"}]
    times = (("first", "00:00", "12:00"), ("later", "12:00", "23:00"))
    assignments = [
        {
            **{"device_uuid": f"GPU-{node}", "engine": f"{node}:8000", "model": f"{node}-{model}"},
            **{"start_at": f"{DAY} {start}:00+00:00", "end_at": f"{DAY} {end}:00+00:00"},
        }
        for node in ("n9", "n10")
        for model, start, end in times
    ]
    models = [{"name": "plain", "aliases": ["org/plain"]}]
    folder = tmp_path_factory.mktemp("models")
    made = plant(folder, planted(), days=2, marts=MARTS, nodes=nodes, models=models, assignments=assignments)
    made.run()
    return made


def watts_by(book: Book, uuid: str, column: str, where: str) -> dict[str, float]:
    joules = f"select {column}, sum(energy_joules)::double from marts.energy_ledger"
    rows = book.query(f"{joules} where device_uuid = ? and {where} group by 1", [uuid])
    return dict(rows)


BEFORE_NOON = f"date = '{DAY}' and interval_start_at < '{DAY} 12:00:00+00'"
AFTER_NOON = f"date = '{DAY}' and interval_start_at >= '{DAY} 12:00:00+00'"


def test_models_that_follow_each_other_have_their_own_time(book: Book) -> None:
    assert watts_by(book, "GPU-swap", "model", BEFORE_NOON) == {"alpha": 150 * NOON}
    assert watts_by(book, "GPU-swap", "model", AFTER_NOON) == {"beta": 150 * NOON}
    rows = book.query(
        "select model, energy_joules::double, output_tokens::double from marts.model_daily"
        " where date = ? and model in ('alpha', 'beta') order by 1",
        [DAY],
    )
    assert [(model, joules) for model, joules, _ in rows] == [("alpha", 150 * NOON), ("beta", 150 * NOON)]
    assert [tokens for _, _, tokens in rows] == pytest.approx([2 * (NOON - 60), 0.02 * NOON])


def test_a_base_model_and_its_lora_share_by_tokens(book: Book) -> None:
    morning = f"date = '{DAY}' and interval_start_at < '{DAY} 06:00:00+00'"
    day = f"date = '{DAY}' and interval_start_at >= '{DAY} 06:00:00+00' and interval_start_at < '{DAY} 18:00:00+00'"
    evening = f"date = '{DAY}' and interval_start_at >= '{DAY} 18:00:00+00'"
    assert watts_by(book, "GPU-lora", "model", morning) == {"base": 200 * 6 * HOURS}
    assert watts_by(book, "GPU-lora", "model", day) == pytest.approx(
        {"base": 150 * 12 * HOURS, "tuned": 50 * 12 * HOURS}
    )
    # Nothing moves: they share as they share the date, 3 × 18 to 1 × 12 tokens.
    assert watts_by(book, "GPU-lora", "model", evening) == pytest.approx(
        {"base": 200 * 6 * HOURS * 54 / 66, "tuned": 200 * 6 * HOURS * 12 / 66}
    )


def test_a_model_under_two_names_is_one(book: Book) -> None:
    rows = book.query(
        "select count(distinct claim_start_at - interval_start_at), count(*), min(model), max(model),"
        " min(attribution_method), max(attribution_method) from marts.energy_ledger"
        " where device_uuid = 'GPU-alias' and date = ?",
        [DAY],
    )
    assert rows == [(1, 288, "plain", "plain", "exclusive", "exclusive")]


def test_another_pod_of_the_board_is_cut_where_its_neighbour_changes_its_model(book: Book) -> None:
    # By tokens, 1 to 2 of 300 W.
    assert watts_by(book, "GPU-pair", "model", f"date = '{DAY}' and interval_start_at < '{DAY} 11:55:00+00'") == (
        pytest.approx({"first": 100 * (NOON - 300), "steady": 200 * (NOON - 300)})
    )
    assert watts_by(book, "GPU-pair", "model", f"date = '{DAY}' and interval_start_at >= '{DAY} 12:05:00+00'") == (
        pytest.approx({"second": 100 * (NOON - 300), "steady": 200 * (NOON - 300)})
    )


def test_a_board_is_booked_on_each_node_for_its_time(book: Book) -> None:
    assert watts_by(book, "GPU-moved", "node || '/' || rack", f"date = '{DAY}'") == {
        "n5/r5": 60 * NOON,
        "n6/r6": 60 * NOON,
    }
    second = book.query(
        "select distinct node, rack from marts.energy_ledger where device_uuid = 'GPU-moved' and date > ?", [DAY]
    )
    assert second == [("n6", "r6")]


def test_a_board_that_moved_was_where_it_was_before(book: Book) -> None:
    rows = book.query("select distinct date, node from marts.energy_ledger where device_uuid = 'GPU-night' order by 1")
    assert [node for _, node in rows] == ["n8", "n7"]


@pytest.mark.parametrize(("node", "otherwise"), [("n9", "served"), ("n10", "__unknown__")])
def test_what_the_fleet_file_assigns_with_times_comes_before_labels(book: Book, node: str, otherwise: str) -> None:
    # 100 W and 2 tokens a second: to 12:00, to 23:00 and, by the labels, to midnight.
    assert watts_by(book, f"GPU-{node}", "model", f"date = '{DAY}'") == {
        f"{node}-first": 100 * NOON,
        f"{node}-later": 100 * 11 * HOURS,
        FREE: 100 * HOURS,
    }
    tokens = book.query(
        "select model, sum(tokens)::double from marts.token_ledger where engine = ? and date = ? group by 1 order by 2",
        [f"{node}:8000", DAY],
    )
    assert tokens == [(otherwise, 2 * HOURS), (f"{node}-later", 22 * HOURS), (f"{node}-first", 2 * NOON)]
