"""When `serve` runs a fleet's nights, and that `dev` beside it does not."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import dagster as dg
import pytest

from pipelines.code_location import SCHEDULE, definitions_of
from pipelines.command_line import instance
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.fleet.places import PROJECT
from pipelines.serving import nights
from pipelines.serving.nights import Attempt
from pipelines.warehouse import night_lock
from tests.books import environment
from tests.servers import running

NIGHTLY = time(1, 15)
HOLDS = (
    "import sys, time; from pathlib import Path; from pipelines.warehouse import night_lock;"
    " print(night_lock.take(Path(sys.argv[1]), sys.argv[2]), flush=True); time.sleep(60)"
)


def fleet_of(folder: Path, period: str = "{start: 2026-11-01}") -> Fleet:
    path = folder / "fleet.yaml"
    path.write_text(
        f"fleet: nightly\nsynthetic: true\nperiod: {period}\n"
        "sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]\n"
    )
    return load_fleet(path, environment(folder / "data"))


def at(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


def on(day: int) -> date:
    return date(2026, 11, day)


@pytest.mark.parametrize(
    ("now", "booked", "last", "expected"),
    [
        # From 01:15 yesterday is due; before, the day before it.
        (at(10, 1, 15), on(8), None, on(9)),
        (at(10, 1, 14), on(8), None, None),
        (at(10, 1, 14), on(7), None, on(8)),
        (at(10, 1, 15), on(9), None, None),
        # A process that starts at noon makes up for what was missed, and so does a first one.
        (at(10, 12), on(5), None, on(9)),
        (at(10, 12), None, None, on(9)),
        # A run that failed is tried again after an hour, one that ended well is not, though it published no such date.
        (at(10, 2), on(8), Attempt(on(9), at(10, 1, 30), 1), None),
        (at(10, 2, 30), on(8), Attempt(on(9), at(10, 1, 30), 1), on(9)),
        (at(10, 9), on(8), Attempt(on(9), at(10, 1, 30), 0), None),
        (at(11, 1, 15), on(8), Attempt(on(9), at(10, 1, 30), 0), on(10)),
        # Before the period has a whole day there is none.
        (at(1, 12), None, None, None),
    ],
)
def test_when_a_run_is_due(
    tmp_path: Path, *, now: datetime, booked: date | None, last: Attempt | None, expected: date | None
) -> None:
    assert nights.due(fleet_of(tmp_path), now, NIGHTLY, booked, last) == expected


def test_a_period_that_is_over_is_booked_once(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, "{start: 2026-11-01, end: 2026-11-04}")
    assert nights.due(fleet, at(10, 12), NIGHTLY, on(2), None) == on(3)
    assert nights.due(fleet, at(10, 12), NIGHTLY, on(3), None) is None


def asked(fleet: Fleet, now: datetime) -> dg.RunRequest | dg.SkipReason:
    """What the schedule answers Dagster's daemon."""
    repository = definitions_of(fleet).get_repository_def()
    with dg.DagsterInstance.ephemeral() as history:
        context = dg.build_schedule_context(history, now, repository_def=repository)
        answer = repository.get_schedule_def(SCHEDULE).evaluate_tick(context)
    return answer.run_requests[0] if answer.run_requests else dg.SkipReason(answer.skip_message)


@pytest.mark.rest
def test_the_schedule_leaves_the_nights_to_serve_while_it_lives(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    night = at(10, 1, 15)
    request = asked(fleet, night)
    assert isinstance(request, dg.RunRequest)
    assert (request.partition_key, request.run_key) == ("2026-11-09", "2026-11-09")
    assert isinstance(asked(fleet, at(1, 1, 15)), dg.SkipReason)  # 31 October is before the period
    assert night_lock.holder(fleet.root) is None
    for command, is_serve in ((night_lock.SERVE, True), (night_lock.DEV, False)):
        words = [sys.executable, "-c", HOLDS, str(fleet.root), command]
        with running(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "True\n"
            assert not night_lock.take(fleet.root, night_lock.SERVE)
            answer = asked(fleet, night)
            if is_serve:
                assert isinstance(answer, dg.SkipReason)
                assert f"`wattledger serve` (process {process.pid} on " in str(answer.skip_message)
            else:
                assert isinstance(answer, dg.RunRequest)
    # Whoever held it has ended.
    assert night_lock.holder(fleet.root) is None
    assert isinstance(asked(fleet, night + timedelta(days=1)), dg.RunRequest)


@pytest.mark.rest
def test_run_names_the_process_that_books_nightly(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path)
    words = [sys.executable, "-c", HOLDS, str(fleet.root), night_lock.SERVE]
    with (
        dg.DagsterInstance.ephemeral() as history,
        running(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout.readline() == "True\n"
        line = instance.nightly(fleet, history)
    assert line is not None
    assert line.startswith(f"Booked nightly at 01:15 UTC by `wattledger serve` (process {process.pid} on ")
