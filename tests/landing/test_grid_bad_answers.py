"""Bad answers of grid APIs: refused with a reason or counted, while other zones and days land."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import closing

import dagster as dg
import duckdb
import orjson
import pytest

from pipelines.landing import telemetry_assets
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from tests.landing.test_grid import (
    Answer,
    api,
    electricity_maps,
    fleet_of,
    hour,
    in_memory,
    land,
    maps_answer,
    rows,
    uk,
    uk_answer,
    watttime,
)
from tests.servers import reply

pytestmark = pytest.mark.sampled

BOMB = gzip.compress(b'{"data": [' + b" " * (64 << 20) + b"]}")
LOGIN = (200, b"<html>please log in</html>", "text/html")
# What any of the three may answer, and what the audit then holds.
BAD_ANSWERS = {
    "truncated": ((200, b'{"data": [{"date'), "answered broken JSON"),
    "html": (LOGIN, "answered text/html, not JSON"),
    "html_as_json": ((200, b"<html>", "application/json"), "not JSON"),
    "wrong_type": ((200, b"zone,data", "text/csv"), "answered text/csv, not JSON"),
    "nan": ((200, b'{"data": [{"carbonIntensity": NaN}]}'), "answered broken JSON"),
    "unauthorized": ((401, b'{"error": "Invalid token tok-maps the-frog"}'), "Invalid token"),
    "forbidden": ((403, b'{"error": {"code": "403", "message": "not in your plan"}}'), "not in your plan"),
    "too_many": ((429, b'{"error": "slow down"}'), "slow down (2 attempts)"),
    "broken": ((500, b"oops", "text/plain"), "oops (2 attempts)"),
    "redirect": ((302, b"", "text/html"), "a login page?"),
}
SOURCES = {"electricity_maps": electricity_maps, "uk_carbon_intensity": uk, "watttime": watttime}


@pytest.fixture
def held() -> Iterator[duckdb.DuckDBPyConnection]:
    with in_memory() as connection:
        yield connection


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_a_bad_answer_fails_with_its_reason_and_costs_no_other_zone(held, tmp_path, monkeypatch, case, kind):
    bad, reason = BAD_ANSWERS[case]
    monkeypatch.setattr("collectors.protocols.grid_apis.ATTEMPTS", 2)
    monkeypatch.setattr("time.sleep", lambda _: None)  # between attempts
    good = {"name": "other", "kind": "uk_carbon_intensity", "zone": "GB-SCT"}
    half = uk_answer(("2026-10-01T00:00Z", "2026-10-01T00:30Z", 266, 263))
    with (
        api(lambda handler, *_: reply(handler, *bad)) as url,
        api(lambda handler, *_: reply(handler, 200, half)) as fine,
    ):
        sources = [SOURCES[kind](url), {**good, "url": fine}]
        failed, other = land(held, fleet_of(tmp_path, monkeypatch, sources=sources))
    assert (failed.outcome, failed.rows, failed.status) == ("failed", 0, str(bad[0]))
    assert reason in failed.detail
    assert "tok-maps" not in failed.detail or kind != "electricity_maps"
    assert "the-frog" not in failed.detail or kind != "watttime"
    assert (other.outcome, rows(held, "zone, direct_gco2e_per_kwh")) == ("landed", [("GB-SCT", 263.0)])


@pytest.mark.parametrize(
    ("source", "answered"),
    [
        (electricity_maps, (b'{"data": {"carbonIntensity": 1}}', "answered no list 'data' of objects")),
        (electricity_maps, (b'{"data": [1, 2]}', "answered no list 'data' of objects")),
        (electricity_maps, (b'{"zone": "DE", "data": [{"carbonIntensity": 1}]}', "zone 'DE', expected 'US-CAL-CISO'")),
        (
            electricity_maps,
            (
                b'{"zone": "US-CAL-CISO", "data": [{"emissionFactorType": "lifecycle", "carbonIntensity": 1}]}',
                "emissionFactorType 'lifecycle', expected 'direct'",
            ),
        ),
        (uk, (b'{"data": {"regionid": 13, "data": []}}', "answered no list 'data' of objects")),
        (lambda url: uk(url, region_id=13), (b'{"data": []}', "regionid None, expected 13")),
        (lambda url: uk(url, region_id=13), (b'{"data": {"regionid": 3, "data": []}}', "regionid 3, expected 13")),
        (watttime, (b'{"ok": true}', "answered no token")),
        (watttime, (b'{"token": "t", "data": null}', "answered no list 'data' of objects")),
    ],
)
def test_an_answer_about_something_else_is_refused_whole(held, tmp_path, monkeypatch, source, answered):
    body, reason = answered
    with api(lambda handler, *_: reply(handler, 200, body)) as url:
        (failed,) = land(held, fleet_of(tmp_path, monkeypatch, sources=[source(url)]))
    assert (failed.outcome, rows(held)) == ("failed", [])
    assert reason in failed.detail


def test_half_hours_of_the_uk_that_are_odd_are_counted(held, tmp_path):
    halves = [
        {"from": "2026-10-01T00:00Z", "to": "2026-10-01T00:30Z", "intensity": {"forecast": None, "actual": None}},
        {"from": "2026-10-01T01:00Z", "to": "2026-10-01T01:30Z"},
        {"from": "2026-10-01T02:00Z", "to": "2026-10-01T02:30Z", "intensity": {"forecast": 9999, "actual": 200}},
        {"from": "2026-10-01T03:00Z", "to": "2026-10-01T03:30Z", "intensity": {"forecast": 200, "actual": -1}},
        {"from": "2026-10-01T04:00", "to": "2026-10-01T04:30", "intensity": {"forecast": 200, "actual": 200}},
        "no object",
    ]
    with api(lambda handler, *_: reply(handler, 200, orjson.dumps({"data": halves}))) as url:
        (landed,) = land(held, fleet_of(tmp_path, sources=[uk(url)]))
    assert landed.detail == (
        "23 of 24 hours have no value; rejected: 1 outside 0 to 2500 g/kWh, 2 without a UTC time"
        " (2026-10-01 03:00:00+00: outside 0 to 2500 g/kWh; an entry: without a UTC time; an entry: without a UTC time)"
    )
    assert rows(held, "hour(start_at), direct_gco2e_per_kwh") == [(2, 200.0)]


def test_a_gzip_bomb_is_cut_off_at_the_limit(held, tmp_path, monkeypatch):
    def answer(handler, *_):
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", str(len(BOMB)))
        handler.end_headers()
        handler.wfile.write(BOMB)

    with api(answer) as url:
        (failed,) = land(held, fleet_of(tmp_path, monkeypatch, sources=[electricity_maps(url)]))
    assert (failed.outcome, failed.detail) == ("failed", "the answer is over 8388608 bytes")


def test_a_server_that_is_not_there_fails_every_day(held, tmp_path, monkeypatch):
    monkeypatch.setattr("collectors.protocols.grid_apis.ATTEMPTS", 1)
    failed = land(held, fleet_of(tmp_path, monkeypatch, sources=[electricity_maps("http://127.0.0.1:1")]), days=2)
    assert [one.outcome for one in failed] == ["failed", "failed"]
    assert "cannot be reached" in failed[0].detail


def test_impossible_values_and_times_are_rejected_and_counted(held, tmp_path, monkeypatch):
    hours = [
        {"datetime": hour(0), "carbonIntensity": 100},
        {"datetime": hour(1), "carbonIntensity": -5},
        {"datetime": hour(2), "carbonIntensity": 400000},  # grams per MWh
        {"datetime": hour(3), "carbonIntensity": "many"},
        {"datetime": hour(4), "carbonIntensity": None},  # a missing hour, not a wrong one
        {"datetime": hour(5), "carbonIntensity": 100},
        {"datetime": hour(5), "carbonIntensity": 120},
        {"datetime": "2026-10-01T06:00:00", "carbonIntensity": 100},  # whose six o'clock?
        {"datetime": "yesterday", "carbonIntensity": 100},
        {"carbonIntensity": 100},
        {"datetime": hour(30), "carbonIntensity": 100},  # not asked for
        {"datetime": hour(7), "carbonIntensity": None},
        {"datetime": hour(8), "carbonIntensity": None},
        {},
        {"datetime": hour(9), "carbonIntensity": None},
    ]

    with api(lambda handler, _, fields: reply(handler, 200, maps_answer(fields, hours))) as url:
        (landed,) = land(held, fleet_of(tmp_path, monkeypatch, sources=[electricity_maps(url)]))
    assert (landed.outcome, landed.rows) == ("landed", 2)
    assert landed.detail == (
        "22 of 24 hours have no value; rejected: 3 outside 0 to 2500 g/kWh, 1 repeated, 4 without a UTC time"
        " (2026-10-01 01:00:00+00: outside 0 to 2500 g/kWh; 2026-10-01 02:00:00+00: outside 0 to 2500 g/kWh;"
        " 2026-10-01 03:00:00+00: outside 0 to 2500 g/kWh)"
    )
    # Seven of fourteen rows are bad. Of a repeated hour the larger value counts.
    assert rows(held, "hour(start_at), direct_gco2e_per_kwh") == [(0, 100.0), (5, 120.0)]


def _saying(answer: object) -> Answer:
    return lambda handler, *_: reply(handler, 200, orjson.dumps(answer))


WT_META = {"region": "CAISO_NORTH", "signal_type": "co2_moer", "units": "lbs_co2_per_mwh"}


@pytest.mark.parametrize(
    ("source", "answer", "reason"),
    [
        (
            electricity_maps,
            {"zone": "US-CAL-CISO", "data": [{"time": hour(0), "carbonIntensity": 100}]},
            "answered 1 entries, none with a UTC time in 'datetime'; the first is '{\"time\":\"2026-10-01T",
        ),
        (
            electricity_maps,
            {"zone": "US-CAL-CISO", "data": [{"datetime": hour(n), "carbonIntensity": "n/a"} for n in range(24)]},
            "answered 24 entries, none with a number in 'carbonIntensity'; the first is '{\"datetime\":",
        ),
        (
            electricity_maps,
            {"zone": "US-CAL-CISO", "data": [{"datetime": hour(0), "value": 100}]},
            "answered 1 entries, none with a number in 'carbonIntensity'",
        ),
        (
            uk,
            {"data": [{"from": "2026-10-01 00:00", "to": "2026-10-01 00:30", "intensity": {"actual": 266}}]},
            'answered 1 entries, none with a UTC time in \'from\'; the first is \'{"from":"2026-10-01 00:00"',
        ),
        (
            uk,
            {"data": [{"from": "2026-10-01T00:00Z", "to": "2026-10-01T00:30Z", "intensity": 266}]},
            "answered 1 entries, none with a number in 'intensity'",
        ),
        (
            watttime,
            {"token": "secret", "data": [{"point_time": hour(0), "val": 1}], "meta": WT_META},
            "answered 1 entries, none with a number in 'value'; the first is '{\"point_time\":",
        ),
    ],
)
def test_entries_of_another_shape_fail_by_the_first_and_are_never_empty(tmp_path, monkeypatch, source, answer, reason):
    with closing(database.connect(":memory:")) as held, api(_saying(answer)) as url:
        create_tables(held)
        (failed,) = land(held, fleet_of(tmp_path, monkeypatch, sources=[source(url)]))
    assert failed.outcome == "failed"
    assert reason in failed.detail


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        (electricity_maps, {"zone": "US-CAL-CISO", "data": []}),
        (electricity_maps, {"zone": "US-CAL-CISO", "data": [{"datetime": hour(0), "carbonIntensity": None}]}),
        (electricity_maps, {"zone": "US-CAL-CISO", "data": [{"datetime": hour(30), "carbonIntensity": 100}]}),
        (uk, {"data": []}),
        (
            uk,
            {"data": [{"from": "2026-10-01T00:00Z", "to": "2026-10-01T00:30Z", "intensity": {"actual": None}}]},
        ),
        (watttime, {"token": "t", "data": [], "meta": WT_META}),
    ],
)
def test_an_answer_without_a_value_for_the_day_is_empty_and_no_failure(held, tmp_path, monkeypatch, source, answer):
    with api(lambda handler, *_: reply(handler, 200, orjson.dumps(answer))) as url:
        (landed,) = land(held, fleet_of(tmp_path, monkeypatch, sources=[source(url)]))
    assert (landed.outcome, landed.detail) == ("empty", "24 of 24 hours have no value")


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ({"region": "PJM_DC"}, "region 'PJM_DC', expected 'CAISO_NORTH'"),
        ({"units": "lbs_health_per_mwh"}, "units 'lbs_health_per_mwh', expected 'lbs_co2_per_mwh'"),
        ({"signal_type": "co2_aoer"}, "signal_type 'co2_aoer', expected 'co2_moer'"),
        ({"data_point_period_seconds": 0}, "data_point_period_seconds 0"),
    ],
)
def test_watttime_for_another_place_kind_or_unit_is_refused(held, tmp_path, monkeypatch, meta, reason):
    right = {"region": "CAISO_NORTH", "signal_type": "co2_moer", "units": "lbs_co2_per_mwh"}
    body = orjson.dumps({"token": "t", "data": [{"point_time": hour(0), "value": 1}], "meta": right | meta})
    with api(lambda handler, *_: reply(handler, 200, body)) as url:
        (failed,) = land(held, fleet_of(tmp_path, monkeypatch, sources=[watttime(url)]))
    assert failed.outcome == "failed"
    assert reason in failed.detail


def test_an_api_that_is_down_is_asked_three_times_in_a_long_backfill(held, tmp_path, monkeypatch):
    asked = []

    def answer(handler, *_):
        asked.append(1)
        reply(handler, 403, b'{"error": "no"}')

    with api(answer) as url:
        failed = land(held, fleet_of(tmp_path, monkeypatch, sources=[electricity_maps(url)]), days=60)
    assert (len(asked), len(failed), {one.outcome for one in failed}) == (3, 60, {"failed"})
    assert failed[-1].detail == "not asked: maps had failed 3 times in a row"


def test_a_failing_api_fails_its_own_check_and_not_the_asset(tmp_path, monkeypatch):
    """No grid blocks a day's joules: missing hours use the yearly factor."""

    def answer(handler, path, _):
        halves = [(f"2026-10-01T{n:02}:00Z", f"2026-10-01T{n:02}:30Z", 266, 263) for n in range(23)]
        reply(handler, *((200, uk_answer(*halves)) if path.startswith("/intensity/") else LOGIN))

    (tmp_path / "grid.csv").write_text("at,direct\n2026-10-01,100\n2026-10-01 01:00,-1\n")
    shape = {"time": "at", "values": {"direct_gco2e_per_kwh": "direct"}}
    with api(answer) as url:
        fleet = fleet_of(
            tmp_path,
            monkeypatch,
            sources=[electricity_maps(url), uk(url)],
            files=[{"path": "grid.csv", "zone": "ES", **shape}],
        )
        fleet = fleet.model_copy(update={"root": tmp_path / "data"})
        result = dg.materialize(
            [asset for asset in telemetry_assets.telemetry_assets(fleet) if asset.op.name == "grid_intensity"],
            tags={
                "dagster/asset_partition_range_start": "2026-10-01",
                "dagster/asset_partition_range_end": "2026-10-01",
            },
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
    assert result.success
    checks = {e.check_name: (e.passed, e.severity.value, e.description) for e in result.get_asset_check_evaluations()}
    assert checks == {
        "source_maps_answers": (
            False,
            "ERROR",
            f"2026-10-01 failed: {url}/v3/carbon-intensity/past-range: answered text/html, not JSON;"
            " a login page or another server?",
        ),
        "source_neso_answers": (False, "WARN", "2026-10-01 landed: 1 of 24 hours have no value"),
        "grid_files_are_sound": (
            False,
            "WARN",
            "2026-10-01 landed: rejected: 1 outside 0 to 2500 g/kWh"
            f" ({tmp_path}/grid.csv:3: outside 0 to 2500 g/kWh: 2026-10-01 01:00, -1)",
        ),
    }
