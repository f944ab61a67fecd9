"""A long history is booked newest date first: that date is published and shown, then all are booked in one go, a very
long one in stretches.

Three boards and two engines for four days (tests/warehouse/upgrades); "long" is more than three dates here, and "very
long" more than a stretch of one or two. The newest date begins with ten minutes without a sample: what they took is
known by the sample before midnight alone.
"""

from __future__ import annotations

import shutil
import subprocess
from argparse import Namespace
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from pipelines.booking.project import prepared_project
from pipelines.command_line import run_dates
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.warehouse import database, due_dates
from pipelines.warehouse.raw_tables import create_tables
from tests import commands
from tests.books import LIMIT_SECONDS, Book, command, environment, later_command
from tests.warehouse.upgrades import telemetry

FLEET = Path(telemetry.__file__).with_name("fleet.yaml")
FIRST, NEWEST, END = date(2026, 10, 1), date(2026, 10, 4), date(2026, 10, 5)
# In the time between the two, what readers then have is printed.
PROGRAM = """
import duckdb
from pipelines.command_line import run, run_dates
run_dates.LONGEST_WAIT_DATES_OF_OTHERS = {wait_dates}
run_dates.LONGEST_RUN_DATES = run_dates.STRETCH_DATES = {stretch_dates}
shown = run.headline
def between(fleet, *parts):
    with duckdb.connect(str(fleet.snapshot), read_only=True) as reader:
        dates = reader.execute("select distinct date::varchar from marts.model_daily order by 1").fetchall()
        ((joules,),) = reader.execute(
            "select sum(energy_joules)::bigint from marts.model_daily where date = '2026-10-04'"
        ).fetchall()
    print("published:", *[on for on, in dates], joules)
    {meanwhile}
    return shown(fleet, *parts)
run.headline = between
{patched}
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    telemetry.write(folder)
    newest = folder / "samples" / "2026-10-04.parquet"
    samples = pq.read_table(newest)
    ten_past = datetime(2026, 10, 4, 0, 10, tzinfo=UTC)
    pq.write_table(samples.filter(pc.greater_equal(samples["observed_at"], ten_past)), newest)
    return Path(shutil.copy(FLEET, folder))


@pytest.fixture(scope="module")
def at_once(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple]:
    """The figures of a run that books all dates at once."""
    data = tmp_path_factory.mktemp("at_once")
    done = later_command(fleet, data)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " first" not in done.stdout.splitlines()[0]
    return figures(data)


def looked(
    fleet: Path, data: Path, meanwhile: str = "", patched: str = "", *, wait_dates: int = 3, stretch_dates: int = 62
) -> subprocess.CompletedProcess[str]:
    Book.of(fleet, data).start_empty()
    prepared_project()
    program = PROGRAM.format(meanwhile=meanwhile, patched=patched, wait_dates=wait_dates, stretch_dates=stretch_dates)
    return commands.run(["run", "--fleet", str(fleet)], environment(data), LIMIT_SECONDS, program)


def figures(data: Path) -> dict[str, tuple]:
    """Count and hash of the rows of every mart and table of advice of the publication, but what its runs took."""
    with closing(database.connect(data / "upgraded" / "published" / "wattledger.duckdb", read_only=True)) as reader:
        names = reader.execute(
            "select schema_name || '.' || table_name from duckdb_tables() where (schema_name in ('marts', 'finance')"
            " or table_name in ('right_sizing', 'consolidation')) and table_name <> 'ledger_cost' order by 1"
        ).fetchall()
        return {
            name: reader.execute(f"select count(*), bit_xor(hash(t)) from {name} as t").fetchall()[0]
            for (name,) in names
        }


def asked(data: Path, query: str) -> list[tuple]:
    with closing(database.connect(data / "upgraded" / "published" / "wattledger.duckdb", read_only=True)) as reader:
        return reader.execute(query).fetchall()


def costs(data: Path) -> list[tuple]:
    with closing(database.connect(data / "upgraded" / "warehouse.duckdb", read_only=True)) as warehouse:
        return warehouse.execute(
            "select measured_until, first_date, last_date, round(gpu_days, 2), began_at, measured_at"
            " from finance.ledger_cost order by began_at"
        ).fetchall()


@pytest.mark.long
def test_the_newest_date_is_published_first_and_all_are_as_booked_at_once(
    fleet: Path, tmp_path: Path, at_once: dict[str, tuple]
) -> None:
    done = looked(fleet, tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "fleet upgraded (synthetic): 2026-10-04 first"
    assert [line for line in lines if line.startswith("published: ")] == [
        # 90 W idle, 300 W for 13 hours of one board and 3 hours of another. The hour before it has landed with it.
        "published: 2026-10-04 35391600",
        "published: 2026-10-01 2026-10-02 2026-10-03 2026-10-04 35391600",
    ]
    titles = [line for line in lines if line.startswith("fleet upgraded, ")]
    assert titles == [
        "fleet upgraded, 2026-10-04 to 2026-10-04: SYNTHETIC telemetry: nothing here was measured",
        "fleet upgraded, 2026-10-01 to 2026-10-04: SYNTHETIC telemetry: nothing here was measured",
    ]
    assert "These are figures of 2026-10-04 alone; the 3 dates before it follow, and then the checks." in done.stdout
    # Checks are of all dates, once.
    assert sum(" checks: " in line for line in lines) == 1
    # Nothing of what was published minutes ago is restated.
    assert asked(tmp_path, "select count(*) from finance.restatements") == [(0,)]
    assert asked(tmp_path, "select count(*) from published.advice_given") == [(0,)]
    assert figures(tmp_path) == at_once
    # Each run has the GPU-days that it was the first to book, of three boards, and what one took is not the other's.
    runs = costs(tmp_path)
    assert [run[:4] for run in runs] == [("publication", NEWEST, NEWEST, 3.0), ("end", FIRST, NEWEST, 9.0)]
    assert runs[0][5] == runs[1][4]


@pytest.mark.long
def test_who_stops_it_keeps_what_is_published_and_the_next_run_goes_on(
    fleet: Path, tmp_path: Path, at_once: dict[str, tuple]
) -> None:
    """Stopped after the newest date, and the next run between two stretches of the others."""
    between_stretches = """
executed = run._executed
def stopped(job, instance, dates, *others):
    if str(dates[0]) == "2026-10-03":
        raise KeyboardInterrupt
    return executed(job, instance, dates, *others)
run._executed = stopped
"""
    for stopped in (
        looked(fleet, tmp_path, meanwhile="raise KeyboardInterrupt"),
        looked(fleet, tmp_path, patched=between_stretches, stretch_dates=2),
    ):
        assert stopped.returncode == 130, stopped.stdout + stopped.stderr
        assert stopped.stderr == "stopped. What was landed and booked so far is kept; run again to continue.\n"
        assert asked(tmp_path, "select distinct date from marts.model_daily") == [(NEWEST,)]

    done = command(fleet, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("fleet upgraded (synthetic): 2026-10-01 to 2026-10-04, 4 dates\n")
    assert asked(tmp_path, "select count(*) from finance.restatements") == [(0,)]
    assert figures(tmp_path) == at_once


@pytest.mark.long
def test_a_newest_date_without_a_sample_stops_nothing(fleet: Path, tmp_path: Path) -> None:
    """Innocent twin: the files end a day before the period does."""
    shutil.copytree(fleet.parent, tmp_path / "fleet")
    (tmp_path / "fleet" / "samples" / "2026-10-04.parquet").unlink()
    done = looked(tmp_path / "fleet" / "fleet.yaml", tmp_path)
    assert "2026-10-04 has no figures by itself; now with the 3 dates before it." in done.stdout, done.stdout
    assert asked(tmp_path, "select distinct date::varchar from marts.model_daily order by 1") == [
        ("2026-10-01",),
        ("2026-10-02",),
        ("2026-10-03",),
    ]


# --- a very long history ----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_stretches_are_booked_as_at_once_and_published_together(
    fleet: Path, tmp_path: Path, at_once: dict[str, tuple]
) -> None:
    done = looked(fleet, tmp_path, stretch_dates=2)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith(("fleet upgraded (", "published: ", "2026-10-0"))] == [
        "fleet upgraded (synthetic): 2026-10-04 first",
        "published: 2026-10-04 35391600",
        "fleet upgraded (synthetic): 2026-10-01 to 2026-10-04, 4 dates",
        "2026-10-01 to 2026-10-02, published with all dates:",
        "2026-10-03 to 2026-10-04, and all dates:",
        "published: 2026-10-01 2026-10-02 2026-10-03 2026-10-04 35391600",
    ]
    # The newest date was published before; the second date was booked without the third, not published.
    assert asked(tmp_path, "select count(*) from finance.restatements") == [(0,)]
    assert asked(tmp_path, "select count(*) from published.advice_given") == [(0,)]
    assert figures(tmp_path) == at_once
    assert [run[:4] for run in costs(tmp_path)] == [
        ("publication", NEWEST, NEWEST, 3.0),
        ("end", FIRST, date(2026, 10, 2), 6.0),
        ("end", date(2026, 10, 3), NEWEST, 3.0),
    ]


@pytest.mark.long
def test_a_stretch_of_which_no_source_answers_stops_no_other(fleet: Path, tmp_path: Path) -> None:
    shutil.copytree(fleet.parent, tmp_path / "fleet")
    # Both, because a stretch asks for the first hour after it, too.
    for on in ("2026-10-02", "2026-10-03"):
        (tmp_path / "fleet" / "samples" / f"{on}.parquet").write_bytes(b"no Parquet")
    done = looked(tmp_path / "fleet" / "fleet.yaml", tmp_path, wait_dates=60, stretch_dates=1)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "every source failed; the first reason: " in done.stderr, done.stdout
    # What the counters rose by meanwhile is spread over both dates, as in a run of all dates at once.
    alone = tmp_path / "alone"
    alone.mkdir()
    assert later_command(tmp_path / "fleet" / "fleet.yaml", alone).returncode == 1
    assert figures(tmp_path) == figures(alone)


def stretches_of(fleet: Fleet, days: int, **chosen: object) -> list[int]:
    options = Namespace(**{"rebuild": False, "adopt": False, **chosen})
    found = run_dates.stretches(fleet, options, FIRST, FIRST + timedelta(days=days))
    assert [one[0] for one in found[1:]] == [one[1] for one in found[:-1]]
    assert (found[0][0], found[-1][1]) == (FIRST, FIRST + timedelta(days=days))
    return [(end - start).days for start, end in found]


@pytest.mark.parametrize(("days", "expected"), [(1, [1]), (62, [62]), (63, [31, 31, 1]), (365, [*[31] * 11, 24])])
def test_more_than_two_months_are_booked_month_by_month(tmp_path: Path, days: int, expected: list[int]) -> None:
    assert stretches_of(of_kind(tmp_path, "synthetic"), days) == expected


@pytest.mark.parametrize("chosen", [{"rebuild": True}, {"adopt": True}])
def test_what_replaces_all_dates_or_none_is_one_run(tmp_path: Path, chosen: dict[str, object]) -> None:
    assert stretches_of(of_kind(tmp_path, "synthetic"), 365, **chosen) == [365]


# --- which runs look first --------------------------------------------------------------------------------------------


def of_kind(folder: Path, *kinds: str) -> Fleet:
    sources = {
        "prometheus": {"name": "p", "kind": "prometheus", "url": "http://127.0.0.1:1", "interval_seconds": 60},
        "synthetic": {"name": "s", "kind": "synthetic", "scenario": "demo", "interval_seconds": 60},
    }
    contents = {
        "fleet": "f",
        "synthetic": True,
        "period": {"start": FIRST},
        "sources": [sources[kind] for kind in kinds],
    }
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(contents), encoding="utf-8")
    return load_fleet(path, {"WATTLEDGER_DATA": str(folder / "data")})


def first_of(fleet: Fleet, days: int, **chosen: object) -> date | None:
    options = Namespace(**{"rebuild": False, "adopt": False, "start": None, "end": None, **chosen})
    return run_dates.looks_first(fleet, options, FIRST, FIRST + timedelta(days=days))


@pytest.mark.parametrize(
    ("kinds", "days", "first"),
    [
        (["prometheus"], 7, None),
        (["prometheus"], 8, date(2026, 10, 8)),
        (["prometheus", "synthetic"], 8, date(2026, 10, 8)),
        (["synthetic"], 28, None),  # the bundled demo
        (["synthetic"], 60, None),
        (["synthetic"], 61, date(2026, 11, 30)),
    ],
)
def test_a_long_history_of_a_server_and_a_very_long_one_of_files(
    tmp_path: Path, kinds: list[str], days: int, first: date | None
) -> None:
    assert first_of(of_kind(tmp_path, *kinds), days) == first


@pytest.mark.parametrize("chosen", [{"start": FIRST}, {"end": END}, {"rebuild": True}, {"adopt": True}])
def test_who_names_the_dates_gets_them_at_once(tmp_path: Path, chosen: dict[str, object]) -> None:
    assert first_of(of_kind(tmp_path, "prometheus"), 30, **chosen) is None


def test_a_history_that_has_started_to_land_is_gone_on_with(tmp_path: Path) -> None:
    made = of_kind(tmp_path, "prometheus")
    made.root.mkdir(parents=True)
    with closing(database.connect(made.warehouse)) as connection:
        create_tables(connection)
        assert first_of(made, 30) == date(2026, 10, 30)
        due_dates.mark_due(connection, FIRST, NEWEST)
    assert first_of(made, 30) is None
