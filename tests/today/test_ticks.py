"""Ticks of a day of which the later booking is there to compare with: the demo's files, and a real Prometheus.

Joules and tokens of closed intervals have to be the booking's to the digit; the idle split may differ.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from filelock import FileLock

from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.fleet_keys import Fleet
from pipelines.today import ticks, today_file
from pipelines.warehouse import statements
from pipelines.warehouse.refusals import QuestionError
from tests import composed
from tests.books import Book, at, demo_fleet, environment, on
from tests.servers import openmetrics, prometheus_with_history

ENERGY = (
    "select interval_start_at, meter, meter_scope, engine, deployment, model, role, team, state, unknown_reason,"
    " is_matched, sum(energy_joules), sum(unknown_joules), sum(active_seconds), sum(host_overhead_joules)"
    " from marts.energy_ledger where interval_start_at >= ? and interval_start_at < ? group by all order by all"
)
TOKENS = (
    "select interval_start_at, engine, deployment, model, role, team, token_class, token_source, is_matched,"
    " sum(tokens) from marts.token_ledger where interval_start_at >= ? and interval_start_at < ?"
    " group by all order by all"
)


def rows(path: Path, query: str, *given: object) -> list[tuple]:
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute("set TimeZone = 'UTC'")
        return connection.execute(query, list(given)).fetchall()


def ticked(fleet: Fleet) -> Path:
    return fleet.root / ticks.WORK / "warehouse.duckdb"


def test_closed_intervals_are_the_later_bookings_to_the_digit(three_days: Book) -> None:
    fleet = three_days.fleet
    before = hashlib.sha256(fleet.warehouse.read_bytes()).hexdigest()
    path = ticks.refresh(fleet, at("10-07 14:17:23"))
    assert path == fleet.root / "today.duckdb"

    # The demo's exporters report once a minute, so that at 14:17 the interval until 14:15 is closed.
    closed = (at("10-07 00:00"), at("10-07 14:15"))
    for query in (ENERGY, TOKENS):
        booked = rows(fleet.warehouse, query, *closed)
        assert len(booked) > 3000
        assert rows(ticked(fleet), query, *closed) == booked
        assert rows(ticked(fleet), query, at("10-07 14:15"), at("10-09 00:00")) == []
    made = today_file.read(fleet)
    assert made is not None
    assert (made.on, made.closed_until_at, list(made.problems())) == (on("10-07"), at("10-07 14:15"), [])
    by_model = "select model, sum(energy_joules)::double, sum(idle_joules)::double from marts.energy_ledger"
    by_model += " where interval_start_at >= ? and interval_start_at < ? group by model"
    booked_models = {model: (joules, idle) for model, joules, idle in rows(fleet.warehouse, by_model, *closed)}
    assert {one.model: one.energy_joules for one in made.models} == {
        model: joules for model, (joules, _) in booked_models.items()
    }
    # The warehouse is as it was: nothing of the day counts as landed, and nothing was published.
    assert hashlib.sha256(fleet.warehouse.read_bytes()).hexdigest() == before
    assert sorted(path.name for path in fleet.root.iterdir() if not path.name.endswith(".lock")) == [
        ".today", "today.duckdb", "warehouse.duckdb",
    ]  # fmt: skip

    # The next tick replaces the file at once: who has it open reads on.
    with duckdb.connect(str(path), read_only=True) as reader:
        ticks.refresh(fleet, at("10-07 14:22:23"))
        assert reader.execute("select date from today.today.tick").fetchall() == [(on("10-07"),)]
    later = today_file.read(fleet)
    assert later is not None
    assert later.closed_until_at == at("10-07 14:20")
    # The tick before is not kept of the same date.
    assert rows(path, "select distinct hours_until_at from today.today.last_ticks") == [(at("10-07 14:00"),)]


@pytest.mark.long
@pytest.mark.needs("prometheus")
def test_of_a_real_prometheus(composed_book: Book, tmp_path: Path) -> None:
    """At 10:40 a gauge is silent since 10:10, and comes back at 10:50: nothing of its silence is filled before or
    after."""
    moment = composed.START + timedelta(minutes=40, seconds=30)
    server = tmp_path / "server"
    server.mkdir()
    with prometheus_with_history(server, openmetrics(composed.series())) as url:
        fleet = Book.of(composed.fleet(tmp_path, url=url), tmp_path / "data").fleet
        ticks.refresh(fleet, moment)
        closed = (composed.START, composed.START + timedelta(minutes=40))
        for query in (ENERGY, TOKENS):
            booked = composed_book.query(query, list(closed))
            assert booked
            assert rows(ticked(fleet), query, *closed) == booked
        made = today_file.read(fleet)
        assert made is not None
        sg = next(one for one in made.models if one.model == "sg")
        # 500 W for forty minutes; 200 output tokens a minute.
        assert (sg.energy_joules, sg.output_tokens, sg.joules_per_output_token) == (500 * 2400, 200 * 40, 150.0)
        assert sg.newest_interval_watts == 500
    # The server is gone: what was landed stays, and the source's problem is named.
    ticks.refresh(fleet, moment + timedelta(minutes=5))
    made = today_file.read(fleet)
    assert made is not None
    assert made.closed_until_at == composed.START + timedelta(minutes=40)
    (problem,) = made.problems()
    assert problem.startswith("cluster: ")
    assert "127.0.0.1" in problem
    # With another fleet file a tick starts anew, and has nothing: the figures stay until the server answers.
    changed = fleet.model_copy(update={"max_spread_days": 5})
    stays = r"^cluster: .*127\.0\.0\.1.*; what it had of the day until 10:40 stays$"
    with pytest.raises(ticks.TickSkipped, match=stays):
        ticks.refresh(changed, moment + timedelta(minutes=10))
    assert today_file.read(fleet) == made


def test_no_tick_while_the_warehouse_is_written_or_another_is_made(tmp_path: Path) -> None:
    fleet = Book.of(demo_fleet(tmp_path, on("10-06"), on("10-09")), tmp_path / "data").fleet
    (fleet.root / ticks.WORK).mkdir(parents=True)
    with (
        FileLock(f"{fleet.warehouse}.lock"),
        pytest.raises(ticks.TickSkipped, match="is being written by another process"),
    ):
        ticks.refresh(fleet, at("10-07 14:17:23"))
    with (
        FileLock(fleet.root / ticks.WORK / "tick.lock"),
        pytest.raises(ticks.TickSkipped, match="another process is making a tick"),
    ):
        ticks.refresh(fleet, at("10-07 14:17:23"))
    assert today_file.read(fleet) is None


@pytest.mark.parametrize("moment", ["10-05 23:59", "10-09 00:00"])
def test_no_day_of_the_period_is_running(tmp_path: Path, moment: str) -> None:
    fleet = load_fleet(demo_fleet(tmp_path, on("10-06"), on("10-09")), environment(tmp_path / "data"))
    with pytest.raises(QuestionError, match=r"2026-10-06 to 2026-10-08: .* is not in it, so no day is running"):
        ticks.refresh(fleet, at(moment))


def test_which_series_and_sources_are_waited_for(held: duckdb.DuckDBPyConnection) -> None:
    """Asked until 14:17:23. Of `a`, read each minute, a series is three minutes and a second older than the newest: it
    has ended. `b` is silent for longer than a quarter of an hour; so is `c`, which is read hourly and is not silent."""
    last = {
        ("a", 60): ["14:17:20", "14:16:30", "14:14:19"], ("b", 60): ["14:02:22"], ("c", 3600): ["13:30:00"],
        ("d", 60): [],
    }  # fmt: skip
    number = 0
    for (name, seconds), times in last.items():
        held.execute("insert into fleet.sources (source, interval_seconds) values (?, ?)", [name, seconds])
        for text in times:
            number += 1
            held.execute(
                "insert into raw.series_chunks (series_id, source, chunk_start_at, last_at, samples,"
                " typical_interval_seconds) values (?, ?, ?, ?, 10, ?)",
                [number, name, at("10-07 00:00"), at(f"10-07 {text}"), seconds],
            )
    # Yesterday's do not count, nor does a series of which no sample is valid.
    held.execute(
        "insert into raw.series_chunks (series_id, source, chunk_start_at, last_at, samples) values"
        " (8, 'd', '2026-10-06 00:00:00+00', '2026-10-06 23:59:00+00', 5),"
        " (9, 'd', '2026-10-07 00:00:00+00', null, 0)"
    )
    given = {"start_at": at("10-07 00:00"), "asked_until": at("10-07 14:17:23"), "silent_seconds": 900}
    found = held.execute(statements.read(ticks.__file__, "sources"), given).fetchall()
    assert found == [
        ("a", at("10-07 14:17:20"), at("10-07 14:16:30"), 30, False),
        ("b", at("10-07 14:02:22"), at("10-07 14:02:22"), 10, True),
        ("c", at("10-07 13:30"), at("10-07 13:30"), 10, False),
        ("d", None, None, 0, True),
    ]


def source(name: str, closed: str | None, *, is_silent: bool = False) -> ticks.SourceState:
    closed_at = None if closed is None else datetime.fromisoformat(f"2026-10-07T{closed}+00:00")
    return ticks.SourceState(name, closed_at, closed_at, 10, is_silent, None)


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([source("a", "14:17:21"), source("b", "14:14:59")], "14:10"),
        # A sample at the very end closes the interval.
        ([source("a", "14:15:00")], "14:15"),
        # A silent source is not waited for; where all are silent the day ends with them.
        ([source("a", "14:17:21"), source("b", "09:00:00", is_silent=True)], "14:15"),
        ([source("a", "09:07:00", is_silent=True)], "09:05"),
        ([source("a", "14:17:21"), source("b", None, is_silent=True)], "14:15"),
        ([], "00:00"),
        ([source("a", "00:03:00")], "00:00"),
    ],
)
def test_until_when_intervals_are_closed(sources: list[ticks.SourceState], expected: str) -> None:
    start = datetime(2026, 10, 7, tzinfo=UTC)
    assert f"{ticks.closed_until(sources, start, timedelta(minutes=5)):%H:%M}" == expected
