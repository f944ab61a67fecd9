"""Who holds a board, and until when: exporters behind a scraper's labels, silences, handovers, free boards.

One fleet is planted for three days: each board shows one case. Power is constant, so that joules are watts × seconds;
expected seconds are worked out from what is planted. `max_spread` is two days.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.books import Book
from tests.planted import (
    DAY,
    DAY_SECONDS,
    ENERGY,
    HOURS,
    OUTPUT,
    Samples,
    Series,
    board,
    plant,
    pod,
    rising,
    vllm,
    without,
)

END = 3 * DAY_SECONDS
MARTS = ("energy_ledger", "fleet_daily", "model_daily", "reconciliation_daily")
SECOND_DAY = DAY + timedelta(days=1)
FREE, UNKNOWN = "__unallocated__", "__unknown__"
EXPORTER = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x7", "container": "nvidia-dcgm-exporter"}
OPERATOR = {"job": "operator", **EXPORTER}
HONEST = {"job": "honest"}
LISTED = [{"device_uuid": "GPU-listed", "node": "l1"}]


def exported(name: str) -> dict[str, str]:
    """The workload's labels where the scraper's own have taken their names."""
    return {"exported_namespace": "llm", "exported_pod": name, "exported_container": "engine"}


def watts(uuid: str) -> int:
    """A board's power: a figure of its own."""
    return 100 + sum(map(ord, uuid)) % 100


def joules(uuid: str, first: float = 0, last: float = END, **more: float) -> Samples:
    """The counter of a board (millijoules), which runs from the beginning whoever holds it."""
    return rising(1000 * watts(uuid), first, last, start=1e9 + 1000 * watts(uuid) * first, **more)


def held(uuid: str, node: str, *spans: tuple[dict[str, str], float, float]) -> Iterator[Series]:
    """A board and who its labels name from when to when; it is silent between spans."""
    for labels, first, last in spans:
        yield ENERGY, board(uuid, node, **{**HONEST, **labels}), joules(uuid, first, last)


def serves(name: str, first: float = 0, last: float = END, **labels: str) -> Series:
    """The tokens of a pod's vLLM: two a second."""
    return OUTPUT, vllm(name, f"model-{name}", **labels), rising(2, first, last)


def scrapers() -> Iterator[Series]:
    """Exporters whose labels the scraper replaced (honor_labels: false), and some whose it did not."""
    for uuid, node, labels in (
        ("GPU-op-busy", "op1", {**OPERATOR, **exported("op-0")}),
        ("GPU-op-free", "op1", OPERATOR),
        ("GPU-op-rest", "op2", OPERATOR),  # a node without a workload
        # Of a job that never carries a workload, a catalogued exporter's container alone shows it.
        ("GPU-rest", "r1", {**OPERATOR, "job": "resting", "container": "dcgm-exporter"}),
        ("GPU-tool", "r2", {**pod("tool-0"), "job": "tools", "container": "tool"}),
        *((f"GPU-tp-{n}", "h1", {**HONEST, **pod("tp-0")}) for n in range(4)),
        ("GPU-h2-busy", "h2", {**HONEST, **pod("h2-0")}),
        ("GPU-h2-free", "h2", HONEST),
        ("GPU-slurm", "s1", {**OPERATOR, "job": "slurm", "hpc_job": "4711"}),
        # A board that an exporter without pods sees, where an engine of bare metal is alone.
        ("GPU-bare", "b1", {**OPERATOR, "job": "bare"}),
        ("GPU-listed", "l1", {"job": "agents"}),
        ("GPU-unlisted", "l2", {"job": "agents"}),
    ):
        yield ENERGY, board(uuid, node, **labels), joules(uuid)
    for name in ("op-0", "tp-0", "h2-0"):
        yield serves(name)
    for node in ("s1", "b1"):
        yield OUTPUT, {"model_name": f"model-{node}", "engine": "0", "instance": f"{node}:8000"}, rising(2, 0, END)


def silences() -> Iterator[Series]:
    """Boards whose exporter is silent for a while."""
    ten, noon, two = 10 * HOURS, 12 * HOURS, 14 * HOURS
    yield from held("GPU-same", "c1", (pod("same-0"), 0, ten), (pod("same-0"), two, END))
    yield serves("same-0")
    yield from held("GPU-swap", "c2", (pod("old-0"), 0, ten), (pod("new-0"), two, END))
    yield from (serves("old-0", 0, ten), serves("new-0", two))
    yield from held("GPU-quick", "c3", (pod("quick-a"), 0, ten), (pod("quick-b"), ten + 60, END))
    yield from (serves("quick-a", 0, ten), serves("quick-b", ten + 60))
    yield from held("GPU-gone", "c4", (pod("gone-0"), 0, two))
    yield serves("gone-0", 0, two)
    yield from held("GPU-deaf", "c5", (pod("deaf-0"), 0, noon))
    yield serves("deaf-0")
    # Silent from 10:00, free from 20:00; its engine reports until 15:00.
    yield from held("GPU-late", "c6", (pod("late-0"), 0, ten), ({}, 20 * HOURS, END))
    yield serves("late-0", 0, 15 * HOURS)
    # Silent from 10:00, free from 20:00; its pod is on another board from 11:00.
    yield from held("GPU-from", "c7", (pod("mover-0"), 0, ten), ({}, 20 * HOURS, END))
    yield from held("GPU-to", "c7", ({}, 0, 11 * HOURS - 60), (pod("mover-0"), 11 * HOURS, END))
    yield serves("mover-0")
    # Over midnight: half an hour between two claimants, one scrape between two, four hours of one.
    yield from held("GPU-eve", "c8", (pod("eve-0"), 0, DAY_SECONDS - 600), (pod("morn-0"), DAY_SECONDS + 1200, END))
    yield from (serves("eve-0", 0, DAY_SECONDS - 600), serves("morn-0", DAY_SECONDS + 1200))
    yield from held("GPU-mid", "c9", (pod("mid-a"), 30, DAY_SECONDS - 30), (pod("mid-b"), DAY_SECONDS + 30, END))
    yield from (serves("mid-a", 30, DAY_SECONDS - 30), serves("mid-b", DAY_SECONDS + 30))
    yield from held("GPU-night", "c10", (pod("night-0"), 0, 22 * HOURS), (pod("night-0"), 26 * HOURS, END))
    yield serves("night-0")
    # On bare metal: gone with the engine of the node, outlived by it, and on a node without an engine.
    yield ENERGY, board("GPU-node-gone", "b2"), joules("GPU-node-gone", 0, two)
    yield OUTPUT, {"model_name": "model-b2", "engine": "0", "instance": "b2:8000"}, rising(2, 0, two)
    yield ENERGY, board("GPU-node-deaf", "b3"), joules("GPU-node-deaf", 0, two)
    yield OUTPUT, {"model_name": "model-b3", "engine": "0", "instance": "b3:8000"}, rising(2, 0, END)
    yield ENERGY, board("GPU-nobodys", "b4"), joules("GPU-nobodys", noon, 20 * HOURS)
    # An engine without samples before noon, and one whose board is silent for longer than max_spread.
    yield from held("GPU-quiet", "c12", (pod("quiet-0"), 0, END))
    yield serves("quiet-0", noon)
    yield from held("GPU-long", "c13", (pod("long-0"), 0, ten), (pod("long-0"), END - HOURS, END))
    yield serves("long-0")
    # Board and engine are silent for all of the second day.
    yield from held("GPU-outage", "c14", (pod("out-0"), 0, 22 * HOURS), (pod("out-0"), 50 * HOURS, END))
    yield OUTPUT, vllm("out-0", "model-out-0"), without(rising(2, 0, END), 22 * HOURS, 50 * HOURS)
    yield from held("GPU-free", "c11", ({}, 0, END))
    yield ENERGY, board("GPU-c11", "c11", **HONEST, **pod("c11-0")), joules("GPU-c11")


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    planted = fleet(tmp_path_factory.mktemp("claims"))
    planted.run()
    return planted


def fleet(folder: Path) -> Book:
    return plant(folder, [*scrapers(), *silences()], days=3, marts=MARTS, devices=LISTED, max_spread_days=2)


def seconds_by_engine(book: Book, uuid: str, date: object = DAY) -> dict[str, float]:
    """Engine -> seconds of the board that are booked to it; joules are the board's watts × seconds."""
    rows = book.query(
        "select engine, sum(covered_seconds)::double, sum(energy_joules)::double from marts.energy_ledger"
        " where device_uuid = ? and date = ? group by engine",
        [uuid, date],
    )
    assert {engine: energy for engine, _, energy in rows} == {
        engine: pytest.approx(watts(uuid) * seconds) for engine, seconds, _ in rows
    }
    return {engine: seconds for engine, seconds, _ in rows}


# --- whose labels they are --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uuid", "engine"),
    [
        ("GPU-op-busy", "llm/op-0"),
        ("GPU-op-free", FREE),
        ("GPU-op-rest", FREE),
        ("GPU-rest", FREE),
        ("GPU-tool", UNKNOWN),
        ("GPU-tp-0", "llm/tp-0"),
        ("GPU-tp-3", "llm/tp-0"),
        ("GPU-h2-busy", "llm/h2-0"),
        ("GPU-h2-free", FREE),
        ("GPU-free", FREE),
        ("GPU-slurm", "s1:8000"),
        ("GPU-bare", "b1:8000"),
        ("GPU-listed", FREE),
        ("GPU-unlisted", UNKNOWN),
    ],
)
def test_a_board_is_its_workloads_and_never_its_exporters(book: Book, uuid: str, engine: str) -> None:
    assert seconds_by_engine(book, uuid) == {engine: DAY_SECONDS}


# --- who holds it in a silence ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uuid", "seconds"),
    [
        ("GPU-same", {"llm/same-0": DAY_SECONDS}),
        ("GPU-swap", {"llm/old-0": 10 * HOURS, UNKNOWN: 4 * HOURS, "llm/new-0": 10 * HOURS}),
        ("GPU-quick", {"llm/quick-a": 10 * HOURS + 60, "llm/quick-b": 14 * HOURS - 60}),
        ("GPU-late", {"llm/late-0": 15 * HOURS, UNKNOWN: 5 * HOURS, FREE: 4 * HOURS}),
        ("GPU-from", {"llm/mover-0": 11 * HOURS, UNKNOWN: 9 * HOURS, FREE: 4 * HOURS}),
        ("GPU-to", {FREE: 11 * HOURS, "llm/mover-0": 13 * HOURS}),
        ("GPU-eve", {"llm/eve-0": DAY_SECONDS - 600, UNKNOWN: 600}),
        ("GPU-mid", {"llm/mid-a": DAY_SECONDS - 30}),
        ("GPU-night", {"llm/night-0": DAY_SECONDS}),
        ("GPU-gone", {"llm/gone-0": 14 * HOURS}),
        ("GPU-deaf", {"llm/deaf-0": 12 * HOURS}),
    ],
)
def test_a_claim_bridges_a_silence_of_one_claimant_alone(book: Book, uuid: str, seconds: dict[str, float]) -> None:
    assert seconds_by_engine(book, uuid) == seconds


@pytest.mark.parametrize(
    ("uuid", "engine", "seconds"),
    [
        ("GPU-eve", UNKNOWN, 1200),
        ("GPU-eve", "llm/morn-0", 600),
        # The scrape after midnight is the first that sees the next one.
        ("GPU-mid", UNKNOWN, 30),
        ("GPU-mid", "llm/mid-b", 1770),
        ("GPU-night", "llm/night-0", 1800),
    ],
)
def test_a_claim_crosses_midnight(book: Book, uuid: str, engine: str, seconds: float) -> None:
    ((found,),) = book.query(
        "select sum(covered_seconds)::double from marts.energy_ledger where device_uuid = ? and engine = ?"
        " and date = ? and interval_start_at < ?::timestamptz + interval 30 minute",
        [uuid, engine, SECOND_DAY, SECOND_DAY],
    )
    assert found == seconds


def test_a_pod_holds_its_board_until_the_next_is_seen_though_its_engine_is_gone(book: Book) -> None:
    rows = book.query(
        "select distinct unknown_reason, held_by from marts.energy_ledger"
        " where device_uuid = 'GPU-mid' and state = 'unknown' and date = ?",
        [SECOND_DAY],
    )
    assert rows == [("no_engine_for_pod", "llm/mid-a")]


def test_a_claim_bridges_a_day_without_any_sample(book: Book) -> None:
    assert seconds_by_engine(book, "GPU-outage", SECOND_DAY) == {"llm/out-0": DAY_SECONDS}
    assert book.query(
        "select distinct model, deployment from marts.energy_ledger where device_uuid = 'GPU-outage' and date = ?",
        [SECOND_DAY],
    ) == [("model-out-0", "llm/model-out-0")]


@pytest.mark.parametrize(
    ("name", "coverage"),
    [
        ("gone-0", 1),  # silent with its engine, and never back
        ("same-0", 1),  # the counter bridges the silence
        ("deaf-0", 0.5),  # its engine goes on: it holds the board whose exporter is dead
    ],
)
def test_a_model_holds_its_board_until_it_is_gone(book: Book, name: str, coverage: float) -> None:
    rows = book.query(
        "select coverage_ratio from marts.model_daily where model = ? and date = ? and energy_joules is not null",
        [f"model-{name}", DAY],
    )
    assert rows == [(coverage,)]


@pytest.mark.parametrize(
    ("uuid", "hours"),
    [("GPU-gone", 14), ("GPU-node-gone", 14), ("GPU-node-deaf", 24), ("GPU-nobodys", 8), ("GPU-swap", 24)],
)
def test_an_absent_board_is_not_charged(book: Book, uuid: str, hours: int) -> None:
    held_hours = (
        "select sum(held_end_us - held_start_us) / 3.6e9 from intermediate.int_claims where meter = ? and date = ?"
    )
    assert book.query(held_hours, [uuid, DAY]) == [(hours,)]


# --- why a joule is unknown -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uuid", "reason", "held_by"),
    [
        ("GPU-swap", "claimant_changed_in_silence", "llm/old-0, llm/new-0"),
        ("GPU-from", "claimant_changed_in_silence", "llm/mover-0, __unallocated__"),
        ("GPU-tool", "no_engine_for_pod", "llm/tool-0"),
        ("GPU-unlisted", "no_claimant", None),
        ("GPU-quiet", "token_telemetry_missing", "llm/quiet-0"),
        ("GPU-long", "over_max_spread", "llm/long-0"),
    ],
)
def test_an_unknown_joule_has_a_reason_and_its_holder(book: Book, uuid: str, reason: str, held_by: str | None) -> None:
    rows = book.query(
        "select distinct unknown_reason, held_by from marts.energy_ledger where device_uuid = ? and state = 'unknown'"
        " and date = ?",
        [uuid, DAY],
    )
    assert rows == [(reason, held_by)]


def test_only_unknown_joules_have_a_reason(book: Book) -> None:
    rows = book.query(
        "select count(*) from marts.energy_ledger where (state = 'unknown') <> (unknown_reason is not null)"
        " or (state <> 'unknown' and held_by is not null)"
    )
    assert rows == [(0,)]


@pytest.mark.rest
def test_no_order_of_landing_changes_a_claim(book: Book, tmp_path: Path) -> None:
    later_first = fleet(tmp_path)
    for n in (2, 0, 1):
        later_first.run(DAY + timedelta(days=n), DAY + timedelta(days=n + 1))
    assert later_first.hashes() == book.hashes()
