"""Each line that a warning has for the fleet file is written there, and the warning is gone.

One fleet is planted for a day; each node is a case. The lines of the first book's warnings go into the fleet file of
the second as they are: only ENGINE, which the user knows, is filled in.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pipelines.booking.alarms import ALARMS, ask
from tests.books import Book
from tests.planted import DAY, DAY_SECONDS, ENERGY, OUTPUT, Samples, Series, board, plant, pod, rising, vllm

MARTS = ("energy_ledger", "token_ledger", "free_boards", "model_daily")
WATCHED = ("power_has_a_model", "tokens_have_power")
# Whose board it is, of those that the labels do not show.
ENGINES = {"llm/odd-b": "llm/odd-a", "GPU-bare": "n-bare:8000", "GPU-bare-more": "n-bare-more:8000"}


def joules() -> Samples:
    """The counter of a board of 200 W, in millijoules."""
    return rising(200_000, start=1e9)


def series() -> Iterator[Series]:
    yield ENERGY, board("GPU-sure", "n-sure", **pod("sure-0")), joules()
    yield OUTPUT, vllm("sure-0", "sure"), rising(2)
    # An engine on two nodes whose pods' names show nothing.
    yield ENERGY, board("GPU-odd-a", "n-odd", **pod("odd-a")), joules()
    yield ENERGY, board("GPU-odd-b", "n-odd-more", **pod("odd-b")), joules()
    yield OUTPUT, vllm("odd-a", "odd"), rising(2)
    # Two models share a node whose exporter maps no pods.
    for name in ("n-bare", "n-bare-more"):
        yield ENERGY, board(f"GPU-{name[2:]}", "n-bare"), joules()
        labels = {"model_name": name, "engine": "0", "instance": f"{name}:8000", "node": "n-bare"}
        yield OUTPUT, labels, rising(2)
    # The exporter maps pods and has none for the board of an engine that is idle all day.
    yield ENERGY, board("GPU-lost-other", "n-lost", **pod("lost-other")), joules()
    yield ENERGY, board("GPU-lost", "n-lost"), joules()
    yield OUTPUT, vllm("lost-other", "lost-other"), rising(2)
    yield OUTPUT, vllm("lost-0", "lost", namespace="idle", node="n-lost"), rising(0)
    # An engine without any board.
    yield OUTPUT, vllm("cpu-0", "tiny", namespace="cpu"), rising(2)
    # A pod that trains.
    yield ENERGY, board("GPU-train", "n-train", **pod("train-0", "lab")), joules()
    # Pods that show themselves what they do: by a label, and by the page of an embedding server.
    yield ENERGY, board("GPU-label", "n-label", **pod("batch-0", "lab"), wattledger_work="batch"), joules()
    yield ENERGY, board("GPU-tei", "n-tei", **pod("tei-0")), joules()
    yield "te_embed_count", {**pod("tei-0"), "model_id": "bge"}, rising(5)


def planted(folder: Path, **fleet: object) -> Book:
    rate = {"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2, "valid_from": DAY, "source": "planted"}
    return plant(folder, series(), cost_rates=[rate], marts=MARTS, **fleet)


def warned(book: Book) -> dict[str, list[dict[str, object]]]:
    """Alarm -> its rows, by the names of their columns."""
    found = {}
    with book.connection(read_only=True) as connection:
        for alarm in ALARMS:
            if alarm.name in WATCHED:
                columns, rows = ask(connection, alarm, "test")
                found[alarm.name] = [dict(zip(columns, row, strict=True)) for row in rows]
    return found


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Book:
    book = planted(tmp_path_factory.mktemp("before"))
    book.run()
    return book


@pytest.fixture(scope="module")
def after(before: Book, tmp_path_factory: pytest.TempPathFactory) -> Book:
    written: dict[str, list[dict[str, object]]] = {}
    for row in (row for rows in warned(before).values() for row in rows if row["write"]):
        name = str(row.get("held_by") or row.get("meter"))
        line = str(row["write"]).replace("ENGINE", f'"{ENGINES.get(name, name)}"')
        if name == "lab/train-0":
            line = "engines: [{engine: lab/train-*, work: training, model: finetune}]"
        for key, entries in yaml.safe_load(line).items():
            written.setdefault(key, []).extend(entries)
    book = planted(tmp_path_factory.mktemp("after"), **written)
    book.run()
    return book


def test_a_warning_names_the_pod_and_the_line(before: Book) -> None:
    found = warned(before)
    start = f"start_at: {DAY}T00:00:00Z"
    assert {row["meter"]: (row["held_by"], row["write"]) for row in found["power_has_a_model"]} == {
        "GPU-odd-b": ("llm/odd-b", "engines: [{engine: ENGINE, pods: [llm/odd-b]}]"),
        "GPU-bare": (None, f'assignments: [{{device_uuid: "GPU-bare", engine: ENGINE, {start}}}]'),
        "GPU-bare-more": (None, f'assignments: [{{device_uuid: "GPU-bare-more", engine: ENGINE, {start}}}]'),
        "GPU-train": ("lab/train-0", "engines: [{engine: ENGINE, pods: [lab/train-0]}]"),
    }
    lines = {row["engine"]: row["write"] for row in found["tokens_have_power"]}
    assert lines.pop("idle/lost-0") == f'assignments: [{{device_uuid: GPU-lost, engine: "idle/lost-0", {start}}}]'
    assert lines.pop("cpu/cpu-0") == 'engines: [{engine: "cpu/cpu-0", accelerators: false}]'
    # The boards of their node have their lines above.
    assert lines == {"n-bare:8000": None, "n-bare-more:8000": None}


def test_what_the_warnings_say_cures_them(after: Book) -> None:
    assert warned(after) == {"power_has_a_model": [], "tokens_have_power": []}


def test_no_line_is_proposed_for_an_engine_that_the_file_names(tmp_path: Path) -> None:
    """Its page is not scraped: no line of the fleet file can show its model or its tokens."""
    unscraped = [
        (ENERGY, board("GPU-named", "n-a", **pod("named-0")), joules()),
        (ENERGY, board("GPU-helper", "n-b", **pod("helper-0")), joules()),
        (ENERGY, board("GPU-other", "n-c", **pod("other-0")), joules()),
    ]
    engines = [{"engine": "llm/named-*", "team": "chat"}, {"engine": "llm/lead-0", "pods": ["llm/helper-0"]}]
    book = plant(tmp_path, unscraped, engines=engines, marts=MARTS)
    book.run()
    assert {
        row["meter"]: (row["held_by"], row["unknown_reason"], row["write"]) for row in warned(book)["power_has_a_model"]
    } == {
        "GPU-named": ("llm/named-0", "no_engine_for_pod", None),
        "GPU-helper": ("llm/lead-0", "token_telemetry_missing", None),
        "GPU-other": ("llm/other-0", "no_engine_for_pod", "engines: [{engine: ENGINE, pods: [llm/other-0]}]"),
    }


@pytest.mark.parametrize(
    ("uuid", "engine", "model", "state"),
    [
        ("GPU-odd-b", "llm/odd-a", "odd", "active"),
        ("GPU-bare", "n-bare:8000", "n-bare", "active"),
        ("GPU-bare-more", "n-bare-more:8000", "n-bare-more", "active"),
        ("GPU-lost", "idle/lost-0", "lost", "parked"),
        ("GPU-train", "lab/train-0", "finetune", "active"),
        ("GPU-label", "lab/batch-0", "batch", "active"),
        ("GPU-tei", "llm/tei-0", "bge", "active"),
    ],
)
def test_each_board_is_its_users(after: Book, uuid: str, engine: str, model: str, state: str) -> None:
    query = (
        "select engine, model, state, sum(covered_seconds)::integer from marts.energy_ledger where device_uuid = ?"
        " group by all"
    )
    assert after.query(query, [uuid]) == [(engine, model, state, DAY_SECONDS)]


def test_only_the_first_book_lists_a_free_board_that_may_be_in_use(before: Book, after: Book) -> None:
    query = "select gpus_now, reason_code, saving_usd_month_if_released from marts.free_boards"
    assert before.query(query) == [(1, "engine_without_energy", None)]
    assert after.query(query) == []


def test_work_that_is_no_llm_has_energy_and_no_tokens(after: Book) -> None:
    """200 W for a day, at 2 USD an hour."""
    query = (
        "select energy_joules::double, unknown_joules::double, output_tokens, joules_per_output_token,"
        " capacity_cost_usd::double, idle_time_ratio from marts.model_daily where model = 'finetune'"
    )
    assert after.query(query) == [(200 * DAY_SECONDS, 0, None, None, pytest.approx(48), 0)]
