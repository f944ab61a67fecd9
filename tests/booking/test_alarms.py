"""Drift alarms: each finds what is planted for it in a real warehouse, and nothing in one that is as it should be."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from pipelines.booking.alarms import ALARMS, ask
from tests.books import Book, files_source, record
from tests.planted import Series
from tests.shapes import Seen, Shape, shape

FIRST = date(2026, 10, 1)
BOARD = {"UUID": "GPU-a", "Hostname": "n1", "namespace": "llm", "pod": "p-0"}
STUCK = {"UUID": "GPU-b", "Hostname": "n2", "namespace": "lab", "pod": "train-0"}
ENGINE = {"model_name": "m", "namespace": "llm", "pod": "p-0"}
ORPHAN = {"model_name": "ghost", "namespace": "llm", "pod": "ghost-0"}
ENERGY, WATTS = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_POWER_USAGE"
OUTPUT, INPUT = "vllm:generation_tokens_total", "vllm:prompt_tokens_total"
STARTED = "process_start_time_seconds"
STEPS_PER_DAY = 288

# What the alarms read.
MARTS = ("energy_ledger", "token_ledger", "unmetered_devices", "unreadable_values")

Planted = list[tuple[str, dict[str, str], range, float, float]]


def book_of(folder: Path, planted: Planted, first: date = FIRST, marts: tuple[str, ...] = MARTS) -> Book:
    """Two days of series (metric, labels, steps of 300 s, first value, rise per step), booked; the run is `test`."""
    start = datetime(first.year, first.month, first.day, tzinfo=UTC)
    rows = [
        (metric, json.dumps(labels), start + timedelta(seconds=300 * n), value + rise * n)
        for metric, labels, steps, value, rise in planted
        for n in steps
    ]
    columns = zip(("metric", "labels", "observed_at", "value"), zip(*rows, strict=True), strict=True)
    record(pa.table({name: list(values) for name, values in columns}), folder / "recorded")
    fleet = {
        "fleet": "drifting",
        "period": {"start": first, "end": first + timedelta(days=2)},
        "sources": [files_source("cluster", "recorded/*.parquet", site="here", interval_seconds=300)],
        "sites": [{"name": "here", "zone": "ES", "pue": 1.0}],
    }
    (folder / "fleet.yaml").write_text(yaml.safe_dump(fleet), encoding="utf-8")
    book = Book.of(folder / "fleet.yaml", folder / "data", marts=marts)
    book.run()
    return book


def of_shape(name: str, planted: Planted) -> list[Series]:
    """The same series as those of `book_of`, of boards and engines that have the shape's name behind their own."""
    start = datetime(FIRST.year, FIRST.month, FIRST.day, tzinfo=UTC).timestamp()
    named = ("UUID", "Hostname", "node", "pod", "model_name")
    return [
        (
            metric,
            {label: f"{of}.{name}" if label in named else of for label, of in labels.items()},
            [(start + 300 * n, value + rise * n) for n in steps],
        )
        for metric, labels, steps, value, rise in planted
    ]


def alarming(name: str, planted: Planted) -> Shape:
    """A shape of two days, whose source and site have its name."""
    site = {"name": name, "zone": "ES", "pue": 1.0}
    series = partial(of_shape, name, planted)
    return shape(name, series, first=FIRST, days=2, intervals={name: 300}, sites=[site])


def found(book: Book | Seen) -> dict[str, list[tuple]]:
    """Alarm -> the rows that it finds in what run `test` landed; silent alarms are left out."""
    with book.connection(read_only=True) as connection:
        rows = {alarm.name: ask(connection, alarm, "test")[1] for alarm in ALARMS}
    return {name: held for name, held in rows.items() if held}


ALL, FIRST_DAY, SECOND_DAY = range(2 * STEPS_PER_DAY), range(STEPS_PER_DAY), range(STEPS_PER_DAY, 2 * STEPS_PER_DAY)
HEALTHY: Planted = [(ENERGY, BOARD, ALL, 1e9, 9e7), (OUTPUT, ENGINE, ALL, 1e6, 600), (STARTED, ENGINE, ALL, 1.7e9, 0)]


SHAPE_OF_HEALTH = alarming("healthy", HEALTHY)


def test_a_healthy_source_raises_no_alarm(shared_book: Callable[[Shape], Seen]) -> None:
    assert found(shared_book(SHAPE_OF_HEALTH)) == {}


STARTED_AT = datetime(2026, 10, 2, 12, tzinfo=UTC).timestamp()
DRIFTING: Planted = [
    *HEALTHY,
    (WATTS, BOARD, FIRST_DAY, 300, 0),
    (INPUT, ENGINE, range(STEPS_PER_DAY, 2 * STEPS_PER_DAY), 5e6, 900),
    (ENERGY, STUCK, SECOND_DAY, 2e9, 0),
    (WATTS, STUCK, ALL, 100, 0),
    (OUTPUT, ORPHAN, ALL, 0, 10),
    (STARTED, ORPHAN, SECOND_DAY, STARTED_AT, 0),
]
UNTIL_22_50 = 563
SHAPE_OF_DRIFT = alarming(
    "drift", [(*one[:2], range(one[2].start, min(one[2].stop, UNTIL_22_50)), *one[3:]) for one in DRIFTING]
)


def test_each_alarm_finds_what_is_planted(shared_book: Callable[[Shape], Seen]) -> None:
    second = date(2026, 10, 2)
    alarms = found(shared_book(SHAPE_OF_DRIFT))
    assert alarms.pop("families_stay") == [
        (f"drift {INPUT}", second, "appeared"),
    ]
    assert alarms.pop("sources_speak") == [("drift", second, datetime(2026, 10, 2, 22, 50, tzinfo=UTC))]
    # GPU-b draws 100 W of the gauge on the first day; pod lab/train-0 is no known engine.
    assert {row[:3] for row in alarms.pop("power_has_a_model")} >= {("GPU-b.drift", "n2.drift", FIRST)}
    assert [row[:2] for row in alarms.pop("tokens_have_power")] == [("llm/ghost-0.drift", "ghost.drift")] * 2
    ((source, metric, labels, day, _),) = alarms.pop("energy_counters_move")
    assert (source, metric, json.loads(labels)["UUID"], day) == ("drift", ENERGY, "GPU-b.drift", second)
    ((what, day, ahead),) = alarms.pop("clocks_agree")
    assert "ghost-0" in what and (day, ahead) == (second, timedelta(hours=12))
    assert alarms == {}


SHAPE_OF_REBUILD = alarming("rebuild", [*HEALTHY, (ENERGY, STUCK, ALL, 1e9, 9e7)])


def test_a_run_that_lands_nothing_is_about_what_it_booked(shared_book: Callable[[Shape], Seen], tmp_path: Path) -> None:
    """`run --rebuild`: the board without a user is found again, in the dates that it booked and no others."""
    book = shared_book(SHAPE_OF_REBUILD).whole.copy(tmp_path)
    with book.connection() as connection:
        connection.execute("insert into raw.bookings values ('again', date '2026-10-02', date '2026-10-03')")
    with book.connection(read_only=True) as connection:
        (alarm,) = (one for one in ALARMS if one.name == "power_has_a_model")
        rows = [row[:3] for row in ask(connection, alarm, "again")[1] if row[0].endswith(".rebuild")]
        assert rows == [("GPU-b.rebuild", "n2.rebuild", date(2026, 10, 2))]


SHAPE_OF_A_LOSS = alarming("loss", [*HEALTHY, (INPUT, ENGINE, FIRST_DAY, 0, 900)])


def test_a_family_that_vanished_is_named(shared_book: Callable[[Shape], Seen]) -> None:
    alarms = found(shared_book(SHAPE_OF_A_LOSS))
    assert alarms == {"families_stay": [(f"loss {INPUT}", date(2026, 10, 2), "vanished")]}


MORNING, OTHER = range(STEPS_PER_DAY // 2), {"namespace": "llm", "pod": "p-1"}
IDLE = {"namespace": "llm", "pod": "p-2"}
SHAPE_OF_SILENCE = alarming(
    "silence",
    [
        (ENERGY, BOARD, ALL, 1e9, 9e7),
        (ENERGY, {**BOARD, **OTHER, "UUID": "GPU-b"}, MORNING, 1e9, 9e7),
        (OUTPUT, ENGINE, MORNING, 1e6, 600),
        (OUTPUT, {**ENGINE, **OTHER, "model_name": "n"}, ALL, 1e6, 600),
        # It made no token in the afternoon, in which its board is silent: nothing lacks its energy.
        (ENERGY, {**BOARD, **IDLE, "UUID": "GPU-c", "Hostname": "n3"}, MORNING, 1e9, 9e7),
        (OUTPUT, {**ENGINE, **IDLE, "model_name": "o"}, ALL, 1e6, 0),
    ],
)


def test_a_board_and_an_engine_that_fall_silent_are_named(shared_book: Callable[[Shape], Seen]) -> None:
    """At noon board b falls silent beside board a of its node, and so does the engine on a."""
    alarms = found(shared_book(SHAPE_OF_SILENCE))
    # Its last sample is of 11:55, in the interval before.
    last, others = datetime(2026, 10, 1, 11, 50, tzinfo=UTC), datetime(2026, 10, 1, 23, 55, tzinfo=UTC)
    assert alarms["boards_of_a_node_speak"] == [("GPU-b.silence", "n1.silence", FIRST, last, others)]
    # 300 W for twelve hours are 3.6 of 7.2 kWh; half of the tokens, 144 intervals of 600, have no power.
    tokens, energy = sorted(alarms["engines_are_whole"], key=lambda row: row[3], reverse=True)
    assert energy[:4] == ("llm/p-0.silence", "m.silence", FIRST, "energy without tokens")
    assert energy[5] == "kWh"
    assert (float(energy[4]), energy[6]) == (pytest.approx(3.6, rel=0.01), pytest.approx(0.5, abs=0.01))
    assert tokens[:4] == ("llm/p-1.silence", "n.silence", FIRST, "tokens without energy")
    assert tokens[5] == "tokens"
    assert (float(tokens[4]), tokens[6]) == (pytest.approx(144 * 600, rel=0.01), pytest.approx(0.5, abs=0.01))
    assert (tokens[7], energy[7]) == ("board_without_energy", None)


SHAPE_IN_NANOSECONDS = alarming("nanoseconds", [*HEALTHY[:2], (STARTED, ENGINE, ALL, 1.7e18, 0)])


def test_a_start_in_nanoseconds_is_no_clock_ahead(shared_book: Callable[[Shape], Seen]) -> None:
    assert "clocks_agree" not in found(shared_book(SHAPE_IN_NANOSECONDS))


def test_samples_from_the_future_are_named(tmp_path: Path) -> None:
    # A period may begin today, and its second day is ahead of any clock that is right.
    alarms = found(book_of(tmp_path, HEALTHY, first=datetime.now(UTC).date()))
    assert {what for what, *_ in alarms.pop("clocks_agree")} == {"cluster is stamped ahead of its landing"}
    assert alarms == {}


@pytest.mark.parametrize("alarm", ALARMS, ids=lambda alarm: alarm.name)
def test_every_alarm_has_what_was_expected_and_what_to_do(alarm: object) -> None:
    assert alarm.description.endswith(".")


HOUR = STEPS_PER_DAY // 24
LATE_TOKENS = (OUTPUT, ENGINE, range(8 * HOUR, 12 * HOUR), 1e6, 600)
SHAPE_APART = alarming("apart", [(ENERGY, BOARD, range(HOUR, 5 * HOUR), 1e9, 9e7), LATE_TOKENS])
SHAPE_TOGETHER = alarming("together", [(ENERGY, BOARD, range(HOUR, 8 * HOUR + 1), 1e9, 9e7), LATE_TOKENS])


def test_power_and_tokens_of_different_hours_are_an_error_with_both_spans(
    shared_book: Callable[[Shape], Seen],
) -> None:
    """A log in local time beside one in UTC: the tokens begin seven hours after the power, and after its end."""
    (row,) = found(shared_book(SHAPE_APART))["power_and_tokens_meet"]
    start = datetime(2026, 10, 1, tzinfo=UTC)
    last = timedelta(minutes=5)
    assert row == (
        *("apart", start + timedelta(hours=1), start + timedelta(hours=5) - last),
        *("apart", start + timedelta(hours=8), start + timedelta(hours=12) - last),
        7.0,
    )
    assert [alarm.name for alarm in ALARMS if alarm.is_error] == ["power_and_tokens_meet"]


def test_power_and_tokens_that_share_a_moment_are_right(shared_book: Callable[[Shape], Seen]) -> None:
    assert "power_and_tokens_meet" not in found(shared_book(SHAPE_TOGETHER))
