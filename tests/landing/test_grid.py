"""Grid intensity from APIs and files: what each provider's answers become, and what becomes of bad ones."""

from __future__ import annotations

import http.server
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import duckdb
import orjson
import pytest
import yaml

from pipelines.fleet.fleet_file import Fleet, FleetError, load_fleet
from pipelines.landing import grid_landing
from pipelines.landing.telemetry_landing import Landing
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import RAW_TABLES, create_tables
from tests.servers import http_server, reply

DAY = date(2026, 10, 1)
DST_DAY = date(2026, 10, 25)
MIDNIGHT = datetime(2026, 10, 1, tzinfo=UTC)
ENVIRON = {"MAPS_TOKEN": "tok-maps", "WT_USER": "freddo", "WT_PASSWORD": "the-frog"}

Handler = http.server.BaseHTTPRequestHandler
Answer = Callable[[Handler, str, dict[str, str]], None]


@contextmanager
def in_memory() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty warehouse in memory: nothing here outlives its connection."""
    with closing(database.connect(":memory:")) as connection:
        create_tables(connection)
        yield connection


@pytest.fixture
def held() -> Iterator[duckdb.DuckDBPyConnection]:
    with in_memory() as connection:
        yield connection


def hour(number: int) -> str:
    return (MIDNIGHT + timedelta(hours=number)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


@contextmanager
def api(answer: Answer) -> Iterator[str]:
    """A loopback API that answers through `answer(handler, path, fields)`."""

    def both(handler: Handler) -> None:
        parts = urlsplit(handler.path)
        answer(handler, parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()})

    with http_server(both) as url:
        yield url


def electricity_maps(url: str = "https://api.example", **more: object) -> dict:
    """A source of the fleet file."""
    kind = {"name": "maps", "kind": "electricity_maps", "zone": "US-CAL-CISO", "token_env": "MAPS_TOKEN"}
    return {**kind, "url": url, **more}


def uk(url: str, **more: object) -> dict:
    return {"name": "neso", "kind": "uk_carbon_intensity", "zone": "GB", "url": url, **more}


def watttime(url: str, **more: object) -> dict:
    login = {"username_env": "WT_USER", "password_env": "WT_PASSWORD"}
    return {
        "name": "wt",
        "kind": "watttime",
        "zone": "US-CAL-CISO",
        "region": "CAISO_NORTH",
        "url": url,
        **login,
        **more,
    }


def maps_answer(fields: dict[str, str], hours: list[dict]) -> bytes:
    """Hours as the API wraps them."""
    common = {"zone": fields["zone"], "emissionFactorType": fields["emissionFactorType"], "isEstimated": False}
    return orjson.dumps({"zone": fields["zone"], "temporalGranularity": "hourly", "data": [common | h for h in hours]})


def uk_answer(*halves: tuple[str, str, int | None, int | None]) -> bytes:
    return orjson.dumps(
        {
            "data": [
                {"from": start, "to": end, "intensity": {"forecast": forecast, "actual": actual, "index": "moderate"}}
                for start, end, forecast, actual in halves
            ]
        }
    )


def fleet_of(folder: Path, monkeypatch: pytest.MonkeyPatch | None = None, **grid_intensity: object) -> Fleet:
    document = {
        "fleet": "mine",
        "synthetic": True,
        "period": {"start": date(2026, 9, 1)},
        "sources": [{"name": "synthetic", "kind": "synthetic", "scenario": "demo", "interval_seconds": 60}],
        "grid_intensity": grid_intensity,
    }
    if monkeypatch is not None:
        for name, value in ENVIRON.items():
            monkeypatch.setenv(name, value)
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return load_fleet(path, ENVIRON)


def land(
    held: duckdb.DuckDBPyConnection, fleet: Fleet, day: date = DAY, days: int = 1, *, force: bool = False
) -> list[Landing]:
    return grid_landing.land_grid(held, fleet, day, day + timedelta(days=days), run_id="test", force=force)


def rows(held: duckdb.DuckDBPyConnection, columns: str = "*") -> list[tuple]:
    return held.execute(f"select {columns} from raw.grid_intensity order by zone, source, start_at").fetchall()


# --- the providers ----------------------------------------------------------------------------------------------------


def test_electricity_maps_gives_direct_and_life_cycle_by_the_hour(held, tmp_path, monkeypatch):
    asked = []

    def answer(handler, path, fields):
        asked.append((path, handler.headers["auth-token"], fields))
        direct = fields["emissionFactorType"] == "direct"
        values = [{"datetime": hour(n), "carbonIntensity": 100 + n if direct else 150 + n} for n in range(24)]
        values[5]["isEstimated"] = True
        reply(handler, 200, maps_answer(fields, values))

    with api(answer) as url:
        (landed,) = land(held, fleet_of(tmp_path, monkeypatch, sources=[electricity_maps(url)]))
    assert (landed.outcome, landed.rows, landed.detail, landed.url) == ("landed", 24, None, url)
    window = {"start": "2026-10-01T00:00:00Z", "end": "2026-10-02T00:00:00Z", "temporalGranularity": "hourly"}
    question = {"zone": "US-CAL-CISO", "disableCallerLookup": "true", **window}
    path = "/v3/carbon-intensity/past-range"
    assert asked == [(path, "tok-maps", {**question, "emissionFactorType": f}) for f in ("direct", "lifecycle")]
    found = rows(held)
    assert found[0] == (
        "US-CAL-CISO", MIDNIGHT, MIDNIGHT + timedelta(hours=1), 100.0, 150.0, None, False, "maps", "electricity_maps",
    )  # fmt: skip
    assert [row[6] for row in found] == [n == 5 for n in range(24)]


def test_electricity_maps_history_lands_what_lies_in_the_day(held, tmp_path, monkeypatch):
    def answer(handler, path, fields):
        assert (path, "start" in fields) == ("/v3/carbon-intensity/history", False)
        history = [{"zone": fields["zone"], "datetime": hour(n), "carbonIntensity": 200} for n in range(2, 26)]
        reply(handler, 200, orjson.dumps({"zone": fields["zone"], "history": history}))

    with api(answer) as url:
        (landed,) = land(held, fleet_of(tmp_path, monkeypatch, sources=[electricity_maps(url, endpoint="history")]))
    assert (landed.outcome, landed.rows, landed.detail) == ("landed", 22, "2 of 24 hours have no value")
    # What the API leaves unsaid is estimated, for all that is known.
    assert rows(held, "distinct is_estimated, direct_gco2e_per_kwh")[:1] == [(True, 200.0)]


def test_the_uk_gives_half_hours_and_a_forecast_where_nothing_is_measured_yet(held, tmp_path):
    def answer(handler, path, _):
        assert path == "/intensity/2026-10-01T00:00Z/2026-10-02T00:00Z"
        before = ("2026-09-30T23:30Z", "2026-10-01T00:00Z", 99, 99)  # it ends where the window begins
        first = ("2026-10-01T00:00Z", "2026-10-01T00:30Z", 266, 263)
        second = ("2026-10-01T00:30Z", "2026-10-01T01:00Z", 270, None)
        reply(handler, 200, uk_answer(before, first, second))

    with api(answer) as url:
        (landed,) = land(held, fleet_of(tmp_path, sources=[uk(url)]))
    assert (landed.outcome, landed.rows, landed.detail) == ("landed", 2, "23 of 24 hours have no value")
    half = timedelta(minutes=30)
    assert rows(held, "start_at, end_at, direct_gco2e_per_kwh, lifecycle_gco2e_per_kwh, is_estimated") == [
        (MIDNIGHT, MIDNIGHT + half, 263.0, None, False),
        (MIDNIGHT + half, MIDNIGHT + 2 * half, 270.0, None, True),
    ]


def test_a_region_of_the_uk_is_a_forecast(held, tmp_path):
    def answer(handler, path, _):
        assert path == "/regional/intensity/2026-10-01T00:00Z/2026-10-02T00:00Z/regionid/13"
        half = {"from": "2026-10-01T00:00Z", "to": "2026-10-01T00:30Z", "intensity": {"forecast": 266}}
        reply(handler, 200, orjson.dumps({"data": {"regionid": 13, "shortname": "London", "data": [half]}}))

    with api(answer) as url:
        land(held, fleet_of(tmp_path, sources=[uk(url, region_id=13)]))
    assert rows(held, "direct_gco2e_per_kwh, is_estimated") == [(266.0, True)]


@pytest.mark.parametrize(
    ("signal", "column"), [("co2_moer", "marginal_gco2e_per_kwh"), ("co2_aoer", "direct_gco2e_per_kwh")]
)
def test_watttime_gives_pounds_per_megawatt_hour_as_grams_under_their_own_name(
    held, tmp_path, monkeypatch, signal, column
):
    """870 lb/MWh × 453.59237 g/lb / 1000 kWh/MWh = 394.6253619 g/kWh."""
    seen = []

    def answer(handler, path, fields):
        seen.append((path, handler.headers["Authorization"]))
        if path == "/login":
            reply(handler, 200, b'{"token": "bought-token"}')
            return
        assert fields == {
            "region": "CAISO_NORTH", "signal_type": signal, "include_imputed_marker": "true",
            "start": "2026-10-01T00:00:00Z", "end": "2026-10-02T00:00:00Z",
        }  # fmt: skip
        points = [{"point_time": "2026-10-01T00:05:00+00:00", "value": 870.0, "imputed_data_used": False}]
        meta = {"region": "CAISO_NORTH", "signal_type": signal, "units": "lbs_co2_per_mwh"}
        reply(handler, 200, orjson.dumps({"data": points, "meta": {**meta, "data_point_period_seconds": 300}}))

    with api(answer) as url:
        land(held, fleet_of(tmp_path, monkeypatch, sources=[watttime(url, signal_type=signal)]))
    assert seen == [("/login", "Basic ZnJlZGRvOnRoZS1mcm9n"), ("/v3/historical", "Bearer bought-token")]
    at = MIDNIGHT + timedelta(minutes=5)
    assert rows(held, f"zone, start_at, end_at, {column}, is_estimated") == [
        ("US-CAL-CISO", at, at + timedelta(minutes=5), pytest.approx(394.6253619, abs=1e-9), False)
    ]
    others = {"direct_gco2e_per_kwh", "lifecycle_gco2e_per_kwh", "marginal_gco2e_per_kwh"} - {column}
    assert rows(held, f"coalesce({', '.join(sorted(others))})") == [(None,)]


def test_ten_days_are_asked_for_at_once_and_landed_by_day(held, tmp_path, monkeypatch):
    asked = []

    def answer(handler, _, fields):
        asked.append((fields["start"], fields["end"]))
        reply(handler, 200, maps_answer(fields, [{"datetime": hour(36), "carbonIntensity": 100}]))

    with api(answer) as url:
        landed = land(held, fleet_of(tmp_path, monkeypatch, sources=[electricity_maps(url)]), days=12)
    both = [("2026-10-01T00:00:00Z", "2026-10-11T00:00:00Z"), ("2026-10-11T00:00:00Z", "2026-10-13T00:00:00Z")]
    assert asked == [both[0], both[0], both[1], both[1]]
    assert [(one.window.start_at.day, one.outcome, one.rows) for one in landed if one.rows] == [(2, "landed", 1)]
    assert [one.outcome for one in landed].count("empty") == 11


# --- what was held ----------------------------------------------------------------------------------------------------


def test_an_answer_with_fewer_hours_never_replaces_what_is_held(held, tmp_path, monkeypatch):
    given = {"hours": 24, "value": 100}

    def answer(handler, _, fields):
        hours = [{"datetime": hour(n), "carbonIntensity": given["value"]} for n in range(given["hours"])]
        reply(handler, 200, maps_answer(fields, hours))

    with api(answer) as url:
        fleet = fleet_of(tmp_path, monkeypatch, sources=[electricity_maps(url)])
        outcomes = [land(held, fleet)[0].outcome, land(held, fleet)[0].outcome]
        given |= {"hours": 3, "value": 50}
        (refused,) = land(held, fleet)
        assert (refused.outcome, refused.rows, refused.rows_before) == ("refused_fewer", 3, 24)
        assert rows(held, "sum(direct_gco2e_per_kwh) over ()")[0] == (2400.0,)
        # A revision with as many hours replaces; what is forced replaces whatever comes.
        given |= {"hours": 24, "value": 90}
        outcomes.append(land(held, fleet)[0].outcome)
        given |= {"hours": 1}
        outcomes.append(land(held, fleet, force=True)[0].outcome)
    assert outcomes == ["landed", "unchanged", "landed", "landed"]
    assert rows(held, "start_at, direct_gco2e_per_kwh") == [(MIDNIGHT, 90.0)]
    audited = held.execute("select asset, source, outcome, rows from raw.landings order by rowid").fetchall()
    assert audited[2] == ("raw/grid_intensity", "maps", "refused_fewer", 3)


def test_the_days_of_other_runs_stay(held, tmp_path, monkeypatch):
    def answer(handler, _, fields):
        reply(handler, 200, maps_answer(fields, [{"datetime": fields["start"], "carbonIntensity": 100}]))

    with api(answer) as url:
        fleet = fleet_of(tmp_path, monkeypatch, sources=[electricity_maps(url)])
        for day in (DAY, DAY + timedelta(days=1), DAY):
            land(held, fleet, day)
    assert [row[0].day for row in rows(held, "start_at")] == [1, 2]


# --- the fleet file, the warehouse ------------------------------------------------------------------------------------


def test_the_fleet_file_says_what_is_wrong(tmp_path):
    with pytest.raises(FleetError) as wrong:
        fleet_of(
            tmp_path,
            sources=[
                electricity_maps(token_env="NOT_SET"),
                uk("https://api.example", region_id=19),
                {**uk("https://api.example"), "kind": "entsoe"},
            ],
            files=[
                {"path": "a.csv", "zone": "ES"},
                {"path": "a.csv", "zone": "ES", "format": "electricity_maps", "time": "at"},
            ],
        )
    assert [line.removeprefix("grid_intensity.") for line in wrong.value.problems] == [
        "sources[maps].token_env: environment variable NOT_SET is not set",
        "sources[neso].region_id: got 19, expected less than or equal to 18",
        "sources[neso].kind: got 'entsoe', expected one of 'electricity_maps', 'uk_carbon_intensity', 'watttime'",
        "files[0]: expected format: electricity_maps, or time and values",
        "files[1]: expected either format, or time and values with estimated",
    ]


def test_a_warehouse_of_version_0_1_is_taken_over(tmp_path):
    with closing(database.connect(tmp_path / "warehouse.duckdb")) as connection:
        connection.execute("create schema raw")
        connection.execute("create table raw.grid_intensity (zone varchar, hour_start_at timestamptz)")
        for _ in range(2):
            create_tables(connection)
        columns = [row[0] for row in connection.execute("describe raw.grid_intensity").fetchall()]
    assert columns == [column.split()[0] for column in RAW_TABLES["grid_intensity"].split(",")]
