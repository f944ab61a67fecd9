"""Late data: a server is asked again for dates that are not whole, and for the newest ones whether it has more by now.

A Prometheus keeps a sample of 300 W every minute. Each night lands one date, and what came late of those before it.
What it holds from one night to the next is a holding: all are in one server, and a matcher chooses.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import duckdb
import pytest
import yaml

from pipelines.fleet.fleet_file import load_fleet
from pipelines.landing import landing_days
from pipelines.warehouse import database, due_dates
from pipelines.warehouse.raw_tables import create_tables
from tests.books import at
from tests.servers import (
    free_port,
    http_server,
    openmetrics,
    prometheus_with_history,
    reply,
    victoria_metrics_with_history,
)

pytestmark = pytest.mark.needs("prometheus")

WATTS = "DCGM_FI_DEV_POWER_USAGE"
WHOLE, MORNING = range(1440), range(720)
# Holding -> (date of October, minutes with a sample).
HOLDINGS = {
    "morning": [(1, MORNING)],
    "whole": [(of, WHOLE) for of in (1, 2, 3, 4)],
    "gap": [(1, range(360)), (1, range(720, 1440))],
    "gap and morning": [(1, range(360)), (1, range(720, 1440)), (2, MORNING)],
    "morning for ever": [(1, MORNING), *((of, WHOLE) for of in (2, 3, 4))],
    "forgetful": [(1, range(600, 1440)), (3, WHOLE)],
    "morning and whole": [(1, MORNING), (2, WHOLE)],
    "history": [(2, WHOLE), (4, WHOLE), (6, MORNING), (8, WHOLE)],
    "copies": [(1, WHOLE), (2, WHOLE)],
}


def watts(holding: str, of: int, minute: int) -> float:
    """Of the copies one value is refused."""
    return -1.0 if (holding, of, minute) == ("copies", 1, 7) else 300.0


def lines() -> Iterator[str]:
    """All holdings, each under its label."""
    return openmetrics(
        (
            WATTS,
            {"UUID": "GPU-a", "Hostname": "n1", "holding": holding, "replica": replica},
            [
                (datetime(2026, 10, of, tzinfo=UTC).timestamp() + 60 * minute, watts(holding, of, minute))
                for of, some in held
                for minute in some
            ],
        )
        for holding, held in HOLDINGS.items()
        for replica in ("a", "b")[: 2 if holding == "copies" else 1]
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus_with_history(tmp_path_factory.mktemp("prometheus"), lines(), block_hours=24) as url:
        yield url


class Nights:
    """A fleet of one server, night after night: `holds` is what it holds from then on, `land` the run of one date."""

    def __init__(self, folder: Path, connection: duckdb.DuckDBPyConnection, url: str) -> None:
        self.folder, self.connection, self.url = folder, connection, url
        self.holding, self.keys = "", dict[str, object]()

    def holds(self, holding: str) -> None:
        self.holding = holding

    def land(self, of: int, to: int | None = None) -> list[tuple[int, str, int]]:
        """Land the dates at 01:15 of the next; (date, outcome, rows) of each whole date that was landed."""
        return [
            (one.window.start_at.day, one.outcome, one.rows)
            for one in self.results(of, to)
            if one.window.end_at - one.window.start_at == timedelta(days=1)
        ]

    def results(self, of: int, to: int | None = None) -> list[landing_days.Landing]:
        path = self.folder / "fleet.yaml"
        source = {
            "name": "cluster",
            "kind": "prometheus",
            "url": self.url,
            "interval_seconds": 60,
            "matchers": [f'holding="{self.holding}"'],
            "replica_labels": ["holding", "replica"],
        }
        contents = {"fleet": "late", "period": {"start": date(2026, 10, 1)}, "sources": [source]}
        path.write_text(yaml.safe_dump({**contents, **self.keys}), encoding="utf-8")
        start, end = date(2026, 10, of), date(2026, 10, (to or of) + 1)
        now = datetime(end.year, end.month, end.day, 1, 15, tzinfo=UTC)
        fleet = load_fleet(path, {"WATTLEDGER_DATA": str(self.folder / "data")})
        silent = landing_days.silent_sources(fleet, start)
        return landing_days.land_days(self.connection, fleet, start, end, run_id="run", now=now, silent=silent)

    def unfilled(self) -> list[tuple[int, str | None, bool]]:
        """(date, time of its last sample, whether it is given up) of the dates that are not whole."""
        rows = self.connection.execute(
            "select date_part('day', date), strftime(last_sample_at, '%H:%M'), given_up_at is not null"
            " from raw.unfilled_dates order by date"
        )
        return rows.fetchall()

    def rows(self, of: int) -> int:
        """Samples held of a date."""
        count = "select count(*) from raw.power_samples where cast(observed_at as date) = ?"
        return self.connection.execute(count, [date(2026, 10, of)]).fetchall()[0][0]

    def landings(self, of: int) -> list[str]:
        """The outcomes of all landings of a whole date, in order."""
        rows = self.connection.execute(
            "select outcome from raw.landings where cast(window_start_at as date) = ?"
            " and window_end_at - window_start_at = interval 1 day order by rowid",
            [date(2026, 10, of)],
        )
        return [outcome for (outcome,) in rows.fetchall()]

    def booked(self) -> None:
        """Nothing is due any more."""
        self.connection.execute("delete from raw.due_dates")

    def due(self) -> list[int]:
        return [on.day for on in due_dates.due(self.connection, due_dates.BOOKING)]


@pytest.fixture
def nights(tmp_path: Path, server: str) -> Iterator[Nights]:
    with closing(database.connect(tmp_path / "warehouse.duckdb")) as connection:
        create_tables(connection)
        yield Nights(tmp_path, connection, server)


def test_half_a_day_that_comes_two_nights_later_is_landed_then(nights: Nights) -> None:
    nights.holds("morning")
    assert nights.land(1) == [(1, "landed", 720)]
    assert nights.unfilled() == [(1, "11:59", False)]
    nights.booked()
    # Nothing came: the question alone is asked, nothing is landed again.
    assert nights.land(2) == [(2, "empty", 0)]
    assert nights.unfilled() == [(1, "11:59", False), (2, None, False)]
    assert nights.due() == []
    nights.holds("whole")
    assert nights.land(3) == [(3, "landed", 1440), (1, "landed", 1440), (2, "landed", 1440)]
    assert (nights.rows(1), nights.unfilled()) == (1440, [])
    # As if all had come at once.
    facts = "select samples, duplicates, out_of_order, longest_gap_seconds, first_at, last_at from raw.series_chunks"
    assert nights.connection.execute(f"{facts} where chunk_start_at = '2026-10-01 00:00:00+00'").fetchall() == [
        (1440, 0, 0, 60.0, at("10-01 00:00"), at("10-01 23:59"))
    ]
    assert nights.due() == [1, 2, 3]
    # All of it is there: the nights after ask, and land nothing again.
    nights.booked()
    assert nights.land(4) == [(4, "landed", 1440)]
    assert nights.landings(1) == ["landed", "landed"]


def test_a_gap_within_a_day_that_is_filled_later_makes_the_date_due(nights: Nights) -> None:
    """The ends of the day stay as they were."""
    nights.holds("gap")
    assert nights.land(1) == [(1, "landed", 1080)]
    assert nights.unfilled() == []
    nights.booked()
    nights.holds("whole")
    assert nights.land(2) == [(2, "landed", 1440), (1, "landed", 1440)]
    assert nights.due() == [1, 2]


def test_a_failed_night_is_landed_by_the_next(nights: Nights) -> None:
    nights.holds("whole")
    nights.land(1)
    there, nights.url = nights.url, f"http://127.0.0.1:{free_port()}"
    assert nights.land(2) == [(2, "failed", 0)]
    assert nights.unfilled() == [(2, "00:59", False)]  # its head closed the night before
    nights.url = there
    assert nights.land(3) == [(3, "landed", 1440), (2, "landed", 1440)]


def test_a_night_without_a_run_is_landed_by_the_next(nights: Nights) -> None:
    nights.holds("whole")
    nights.land(1)
    assert nights.land(3) == [(3, "landed", 1440), (2, "landed", 1440)]


def test_a_date_is_given_up_with_a_line_that_names_it(nights: Nights) -> None:
    nights.keys = {"relanding": {"give_up_days": 2}}
    nights.holds("morning for ever")
    nights.land(1)
    assert nights.land(2) == [(2, "landed", 1440)]
    (line,) = [one.detail for one in nights.results(3) if one.outcome == "given_up"]
    assert line == (
        "no samples after 11:59:00 UTC came within 2 days (relanding.give_up_days): no run asks for this date any more."
        " Once they are there: wattledger run --start 2026-10-01 --end 2026-10-02"
    )
    assert nights.unfilled() == [(1, "11:59", True)]
    assert nights.landings(1) == ["landed", "given_up"]
    # The command of the line lands what came all the same.
    nights.holds("whole")
    assert nights.land(1) == [(1, "landed", 1440)]
    assert nights.unfilled() == []


@pytest.mark.parametrize("landing", [{"target": "duckdb"}, {"target": "lake", "path": "lake/"}])
def test_what_a_server_has_forgotten_stays(nights: Nights, landing: dict[str, str]) -> None:
    """It has lost most of the morning of the first date and all of the second, and got the end of the first."""
    nights.keys = {"landing": landing}
    nights.holds("morning and whole")
    nights.land(1, 2)
    nights.booked()
    nights.holds("forgetful")
    assert nights.land(3) == [(3, "landed", 1440), (1, "landed", 840)]
    assert (nights.rows(1), nights.rows(2)) == (1440, 1440)
    assert nights.landings(2) == ["landed"]
    assert nights.due() == [1, 2, 3]  # the last sample of the first date is the neighbour of the second


def test_merged_copies_and_refused_values_are_no_late_data(nights: Nights) -> None:
    """Two replicas are one series, of which one value is refused: other numbers than the server has."""
    nights.holds("copies")
    nights.land(1)
    facts = "select samples, rejects, duplicates from raw.series_chunks where chunk_start_at = '2026-10-01 00:00:00+00'"
    assert nights.connection.execute(facts).fetchall() == [(2878, 2, 1439)]
    assert nights.land(2) == [(2, "landed", 2880)]
    assert nights.landings(1) == ["landed"]


def test_families_that_are_new_to_the_catalogue_are_no_late_data(nights: Nights) -> None:
    """An upgrade asks about more families: its answer cannot be compared with the older one."""
    nights.holds("gap")
    nights.land(1)
    nights.connection.execute("update raw.source_counts set question = 'of an older catalogue'")
    nights.holds("whole")
    assert nights.land(2) == [(2, "landed", 1440)]


def test_of_a_long_history_what_is_too_old_is_not_due(nights: Nights) -> None:
    nights.keys = {"relanding": {"give_up_days": 3}}
    nights.holds("history")
    outcomes = [outcome for _, outcome, _ in nights.land(1, 8)]
    assert outcomes == ["empty", "landed"] * 4
    # The server is known from the second on.
    assert nights.unfilled() == [(3, None, True), (5, None, True), (6, "11:59", False), (7, None, False)]


def test_without_days_only_what_is_not_whole_is_asked_for(nights: Nights) -> None:
    nights.keys = {"relanding": {"days": 0}}
    nights.holds("gap and morning")
    nights.land(1, 2)
    nights.holds("whole")
    assert nights.land(3) == [(3, "landed", 1440), (2, "landed", 1440)]
    assert nights.rows(1) == 1080


def test_a_server_that_does_not_count_is_named_and_lands_all_the_same(nights: Nights) -> None:
    """A proxy may allow the selectors of the landing, and no functions."""
    server = nights.url

    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        if b"count_over_time" in body:
            return reply(handler, 403, b"no functions", "text/plain")
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        request = urllib.request.Request(server + handler.path, data=body or None, headers=form)
        try:
            with urllib.request.urlopen(request, timeout=60) as answered:
                return reply(handler, 200, answered.read())
        except urllib.error.HTTPError as refusal:
            return reply(handler, refusal.code, refusal.read())

    nights.holds("morning and whole")
    with http_server(answer) as nights.url:
        (first,) = [one for one in nights.results(1) if one.rows == 720]
        assert first.outcome == "landed"
        assert first.detail.startswith(
            "late data of this date cannot be found, as its samples were not counted: refused: no functions"
        )
        # What is not whole is landed again each night, because nothing can be compared.
        assert nights.land(2) == [(2, "landed", 1440), (1, "unchanged", 720)]


@pytest.mark.needs("victoria-metrics")
def test_a_victoria_metrics_is_asked_again_too(nights: Nights, tmp_path: Path) -> None:
    (tmp_path / "victoria").mkdir()
    with victoria_metrics_with_history(tmp_path / "victoria", lines()) as nights.url:
        nights.holds("gap and morning")
        nights.land(1, 2)
        assert nights.land(3) == [(3, "empty", 0)]
        nights.holds("whole")
        assert nights.land(4) == [(4, "landed", 1440), *((of, "landed", 1440) for of in (1, 2, 3))]
        assert (nights.rows(1), nights.unfilled()) == (1440, [])


@pytest.mark.parametrize(("end", "unfilled"), [(3, []), (4, [(1, "11:59", False)])])
def test_a_period_that_is_over_is_a_recording_of_which_nothing_is_due(
    nights: Nights, end: int, unfilled: list[tuple]
) -> None:
    """Innocent twin: an end that is still to come. Of neither are samples counted, because each run lands all of it."""
    nights.keys = {"period": {"start": date(2026, 10, 1), "end": date(2026, 10, end)}}
    nights.holds("morning and whole")
    assert nights.land(1, 2) == [(1, "landed", 720), (2, "landed", 1440)]
    assert nights.connection.execute("select count(*) from raw.source_counts").fetchall() == [(0,)]
    assert nights.unfilled() == unfilled
    # As soon as it is over, what was due is not.
    nights.keys = {"period": {"start": date(2026, 10, 1), "end": date(2026, 10, 3)}}
    nights.land(1, 2)
    assert nights.unfilled() == []


def test_the_answers_of_older_dates_are_forgotten(nights: Nights) -> None:
    """Three dates, and those that are not whole."""
    nights.holds("morning for ever")
    for of in (1, 2, 3, 4):
        nights.land(of)
    nights.land(5)
    kept = "select distinct date_part('day', date) from raw.source_counts order by all"
    assert nights.connection.execute(kept).fetchall() == [(1,), (3,), (4,)]
