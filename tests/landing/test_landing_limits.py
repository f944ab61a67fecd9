"""How long a landing waits for a source, and that no other process waits for the warehouse meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path

import dagster as dg
import duckdb
import orjson
import pytest

from collectors.limits import Limits
from collectors.protocols.prometheus import PrometheusCollector
from collectors.samples import Batch, Window, sample_batch
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.landing import landing_days, telemetry_assets, telemetry_landing
from pipelines.landing.prefetch import WaitedTooLong, ahead
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from tests.given import CATALOGUE, WATTS
from tests.servers import fields_of, http_server, reply

DAY = Window(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 10, 2, tzinfo=UTC))
WALL = """
  - name: wall
    kind: files
    interval_seconds: 3600
    files: [{path: power.csv, time: at, labels: {node: node}, values: {wall_power_watts: watts}}]
"""


def fleet_of(folder: Path, sources: str, more: str = "") -> Fleet:
    (folder / "power.csv").write_text("at,node,watts\n2026-10-01T12:00:00Z,n1,100\n")
    path = folder / "fleet.yaml"
    path.write_text(f"fleet: mine\nperiod: {{start: 2026-10-01, end: 2026-10-03}}\nsources:\n{sources}\n{more}")
    return load_fleet(path, {"WATTLEDGER_DATA": str(folder / "data")})


def materialize(fleet: Fleet, asset: str) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [one for one in telemetry_assets.telemetry_assets(fleet) if one.op.name == asset],
        tags={"dagster/asset_partition_range_start": "2026-10-01", "dagster/asset_partition_range_end": "2026-10-02"},
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        raise_on_error=False,
    )


class Hanging:
    """A server that answers nothing until it is released; `asked` is set at the first request."""

    def __init__(self) -> None:
        self.asked, self.released = threading.Event(), threading.Event()

    def __call__(self, _handler: object) -> None:
        self.asked.set()
        self.released.wait(20)


def written_while(fleet: Fleet, asset: str, server: Hanging, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, object]:
    """Whether another may write the warehouse while the asset waits for the server; and the asset's result."""
    monkeypatch.setenv("WATTLEDGER_LOCK_SECONDS", "0.1")
    results = []
    run = threading.Thread(target=lambda: results.append(materialize(fleet, asset)))
    run.start()
    try:
        assert server.asked.wait(20)
        try:
            with database.writing(fleet.warehouse, "another"):
                is_free = True
        except database.WarehouseBusy:
            is_free = False
        monkeypatch.setenv("WATTLEDGER_LOCK_SECONDS", "20")
    finally:
        server.released.set()
        run.join()
    return is_free, results[0]


def test_a_server_that_hangs_locks_no_warehouse_and_fails_its_own_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warehouse was locked for 611 s per window, three windows in a row."""
    server = Hanging()
    with http_server(server) as url:
        hung = f"""
  - name: hung
    kind: prometheus
    url: {url}
    interval_seconds: 15
    limits: {{answer_seconds: 1}}
"""
        fleet = fleet_of(tmp_path, WALL + hung)
        began = time.monotonic()
        is_free, result = written_while(fleet, "telemetry", server, monkeypatch)
    assert is_free
    assert time.monotonic() - began < 15
    checks = {e.check_name: e for e in result.get_asset_check_evaluations()}
    assert (checks["source_wall_answers"].passed, checks["source_hung_answers"].passed) == (True, False)
    with closing(duckdb.connect(str(fleet.warehouse), read_only=True)) as held:
        rows = held.execute("select outcome, detail from raw.landings where source = 'hung'").fetchall()
    # Both days, the hour before and the hour after.
    assert len(rows) == 4
    assert {outcome for outcome, _ in rows} == {"failed"}
    assert all("no answer within 1 s (limits.answer_seconds)" in detail for _, detail in rows)


def test_a_grid_api_that_hangs_locks_no_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Hanging()
    with http_server(server) as url:
        source = f"{{name: neso, kind: uk_carbon_intensity, zone: GB, url: '{url}', limits: {{answer_seconds: 1}}}}"
        more = f"sites: [{{name: s, zone: GB, pue: 1}}]\ngrid_intensity: {{sources: [{source}]}}"
        fleet = fleet_of(tmp_path, WALL, more)
        is_free, result = written_while(fleet, "grid_intensity", server, monkeypatch)
    assert is_free
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed
    assert "no answer within 1 s" in check.description


def test_a_server_that_refuses_the_smallest_question_is_asked_for_its_samples_all_the_same(tmp_path: Path) -> None:
    """A proxy may allow only what it knows: only silence keeps a source from being asked."""

    def answer(handler: object) -> None:
        _, fields = fields_of(handler)
        is_first = fields.get("query") == "vector(1)"
        body = orjson.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}})
        reply(handler, 403, b"no", "text/plain") if is_first else reply(handler, 200, body)

    with http_server(answer) as url:
        fleet = fleet_of(tmp_path, f"  - {{name: cluster, kind: prometheus, url: '{url}', interval_seconds: 15}}\n")
        assert landing_days.silent_sources(fleet, date(2026, 10, 1)) == {}


@pytest.fixture
def held(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(database.connect(tmp_path / "warehouse.duckdb")) as connection:
        create_tables(connection)
        yield connection


def test_an_answer_whose_headers_drip_fails_its_window_alone(held: duckdb.DuckDBPyConnection) -> None:
    """A server that drips the headers of its answer never runs into a time-out of the socket."""

    def drip(handler: object) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for n in range(100):
            handler.wfile.write(b"X-Header-%d: 1\r\n" % n)
            handler.wfile.flush()
            time.sleep(0.1)

    with http_server(drip) as url:
        collector = PrometheusCollector("cluster", url, limits=Limits(answer_seconds=0.5, window_seconds=1.0))
        began = time.monotonic()
        landing = telemetry_landing.land(held, collector, DAY, CATALOGUE, run_id="run")
        assert time.monotonic() - began < 5
    assert (landing.outcome, landing.rows) == ("failed", 0)
    assert landing.detail.startswith("timed out: no answer within 0.5 s (limits.answer_seconds); window [")
    assert held.execute("select count(*) from raw.power_samples").fetchall() == [(0,)]


class Endless:
    """A source that is not read over HTTP and never comes to its second batch."""

    source = "endless"
    limits = Limits(window_seconds=1.0)

    def collect(self, window, families, register):
        yield from Slow().collect(window, families, register)
        time.sleep(9)


def test_a_window_has_a_time_limit_whatever_its_source_does(held: duckdb.DuckDBPyConnection) -> None:
    began = time.monotonic()
    landing = telemetry_landing.land(held, Endless(), DAY, CATALOGUE, run_id="run")
    assert time.monotonic() - began < 5
    assert (landing.outcome, landing.rows) == ("failed", 0)
    assert landing.detail == "the window took longer than 1 s (limits.window_seconds)"
    assert held.execute("select count(*) from raw.power_samples").fetchall() == [(0,)]


class Slow:
    """A source of two batches with a pause between them, within its limit."""

    source = "slow"
    limits = Limits(window_seconds=1.0)

    def collect(self, window, families, register):
        for n in range(2):
            series_id = register.series_id(WATTS, {"UUID": "GPU-a"})
            samples = sample_batch([series_id], [window.start_us + n * 1_000_000], [float(n)])
            register.observe(samples)
            yield Batch("power", samples)
            time.sleep(0.4)


def test_a_slow_source_within_its_time_lands(held: duckdb.DuckDBPyConnection) -> None:
    landing = telemetry_landing.land(held, Slow(), DAY, CATALOGUE, run_id="run")
    assert (landing.outcome, landing.rows) == ("landed", 2)


def test_the_time_that_the_landing_needs_itself_does_not_count() -> None:
    items = ahead(iter(range(6)), wait_seconds=0.5)
    found = []
    for item in items:
        found.append(item)
        time.sleep(0.2)
    assert found == list(range(6))


def test_waiting_counts_over_all_items() -> None:
    def slowly() -> Iterator[int]:
        for n in range(9):
            time.sleep(0.2)
            yield n

    found = []
    with pytest.raises(WaitedTooLong):
        found.extend(ahead(slowly(), wait_seconds=0.7))
    assert found == [0, 1, 2]
