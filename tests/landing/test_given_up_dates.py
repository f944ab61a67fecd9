"""A file that cannot be read: each night tries its date again, until it is given up with one line that names it."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import duckdb
import pytest

from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.landing import landing_days, request_landing

FLEET = """
fleet: files
period: {start: 2026-10-01}
relanding: {give_up_days: 2}
sources:
  - name: meters
    kind: files
    interval_seconds: 60
    files: [{path: power.csv, time: at, labels: {UUID: board}, values: {DCGM_FI_DEV_POWER_USAGE: watts}}]
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET, encoding="utf-8")
    return load_fleet(path, {"WATTLEDGER_DATA": str(tmp_path / "data")})


def landed(connection: duckdb.DuckDBPyConnection, fleet: Fleet, of: int) -> list[tuple[int, str, str | None]]:
    """Land a date of October in the night after it: (date, outcome, detail) of each whole date."""
    start = date(2026, 10, of)
    return [
        (one.window.start_at.day, one.outcome, one.detail)
        for one in landing_days.land_days(connection, fleet, start, start + timedelta(days=1), run_id=str(of))
        if one.window.end_at - one.window.start_at == timedelta(days=1)
    ]


LINE = (
    "it could not be landed within 2 days (relanding.give_up_days): no run tries it again. Once it can be read:"
    " wattledger run --start 2026-10-01 --end 2026-10-02"
)


def test_a_date_of_a_file_is_given_up_once_with_a_line_that_names_it(
    held: duckdb.DuckDBPyConnection, fleet: Fleet
) -> None:
    assert [one[:2] for one in landed(held, fleet, 1)] == [(1, "failed")]
    assert [one[:2] for one in landed(held, fleet, 2)] == [(2, "failed"), (1, "failed")]
    on_third = landed(held, fleet, 3)
    assert [one[:2] for one in on_third] == [(3, "failed"), (2, "failed"), (1, "given_up")]
    assert on_third[-1][2] == LINE
    # The next night names the second alone. The file is back: what is not given up lands.
    (fleet.path.parent / "power.csv").write_text(
        "at,board,watts\n" + "".join(f"2026-10-0{n} 12:00:00Z,GPU-a,300\n" for n in range(1, 6)), encoding="utf-8"
    )
    assert [one[:2] for one in landed(held, fleet, 4)] == [(4, "landed"), (3, "landed"), (2, "given_up")]
    # The run before has read on to its noon.
    assert [one[:2] for one in landed(held, fleet, 5)] == [(5, "unchanged")]
    # The command of the line.
    assert [one[:2] for one in landed(held, fleet, 1)] == [(1, "landed")]


def test_requests_of_a_date_are_given_up_once(held: duckdb.DuckDBPyConnection, fleet: Fleet) -> None:
    held.execute(
        "insert into raw.landings (landed_at, asset, source, window_start_at, window_end_at, outcome)"
        " select timestamptz '2026-10-03 01:15:00Z', 'raw/requests', 'gateway', began, began + interval 1 day, outcome"
        " from (values (timestamptz '2026-10-01 00:00:00Z', 'failed'), (timestamptz '2026-10-02 00:00:00Z', 'landed'))"
        " as dates(began, outcome)"
    )
    asked = [request_landing.given_up(held, fleet, "gateway", date(2026, 10, of), "run") for of in (2, 3, 4)]
    assert [[one.window.start_at.day for one in found] for found in asked] == [[], [1], []]


def test_a_file_lands_the_dates_on_which_a_server_catches_up(held: duckdb.DuckDBPyConnection, fleet: Fleet) -> None:
    (fleet.path.parent / "power.csv").write_text(
        "at,board,watts\n" + "".join(f"2026-10-0{n} 12:00:00Z,GPU-a,300\n" for n in range(1, 6)), encoding="utf-8"
    )

    def asked_of_server(of: int, at: str) -> None:
        held.execute(
            "insert into raw.landings (landed_at, asset, source, window_start_at, window_end_at, outcome) values"
            " (cast(? as timestamptz), 'raw/telemetry', 'server', make_timestamptz(2026, 10, ?, 0, 0, 0, 'UTC'),"
            " make_timestamptz(2026, 10, ?, 0, 0, 0, 'UTC'), 'landed')",
            [at, of, of + 1],
        )

    # What the server had before the file was in the fleet is not landed with it.
    asked_of_server(2, "2020-01-01 00:00:00Z")
    assert [one[:2] for one in landed(held, fleet, 3)] == [(3, "landed")]
    asked_of_server(4, "2100-01-01 00:00:00Z")
    # The run of the third had read on to its noon.
    assert [one[:2] for one in landed(held, fleet, 5)] == [(5, "landed"), (4, "unchanged")]
