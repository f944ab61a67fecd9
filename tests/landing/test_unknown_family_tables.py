"""raw.unknown_families and raw.unknown_devices: what a landing keeps of what the catalogue does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from collectors.samples import Family, SourceError, Window
from pipelines.landing import telemetry_landing
from pipelines.landing.telemetry_landing import Catalogue, Landing
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from tests.given import CATALOGUE, WATTS, Samples, at, day

METRIC = "acme_board_power_watts"
A, B = {"serial": "S-a", "host": "n1"}, {"serial": "S-b", "host": "n1"}


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with database.connect(tmp_path / "warehouse.duckdb") as opened:
        create_tables(opened)
        yield opened


def land(
    connection: duckdb.DuckDBPyConnection,
    window: Window,
    *labels: Mapping[str, str],
    catalogue: Catalogue = CATALOGUE,
    is_neighbour: bool = False,
    **source: object,
) -> Landing:
    samples = Samples(unknown={METRIC: len(labels)} if labels else {}, unknown_labels={METRIC: labels}, **source)
    samples.put(WATTS, {"UUID": "GPU-1"}, [(window.start_at, 300.0)])
    return telemetry_landing.land(
        connection,
        samples,
        window,
        catalogue,
        run_id="run",
        is_neighbour=is_neighbour,
        force=True,
        now=lambda: datetime(2026, 11, 1, tzinfo=UTC),
    )


def devices(connection: duckdb.DuckDBPyConnection) -> Sequence[tuple]:
    return connection.execute(
        "select device_uuid, node, last_seen_at from raw.unknown_devices where metric = ? order by all", [METRIC]
    ).fetchall()


def test_the_newest_days_devices_of_a_family_are_kept(connection: duckdb.DuckDBPyConnection) -> None:
    land(connection, day(1), A)
    land(connection, day(0), A, B)
    assert devices(connection) == [("S-a", "n1", at(2))]
    land(connection, day(2), A, B)
    assert devices(connection) == [("S-a", "n1", at(3)), ("S-b", "n1", at(3))]
    land(connection, day(3))
    assert devices(connection) == [("S-a", "n1", at(3)), ("S-b", "n1", at(3))]


def test_a_day_that_is_landed_again_has_the_devices_of_its_new_answer(connection: duckdb.DuckDBPyConnection) -> None:
    land(connection, day(0), A, B)
    land(connection, day(0), B)
    assert devices(connection) == [("S-b", "n1", at(1))]
    land(connection, day(0))
    assert devices(connection) == []


def test_a_spool_adds_to_the_days_devices(connection: duckdb.DuckDBPyConnection) -> None:
    land(connection, day(0), A, is_additive=True)
    land(connection, day(0), A, B, is_additive=True)
    land(connection, day(0), is_additive=True)
    assert devices(connection) == [("S-a", "n1", at(1)), ("S-b", "n1", at(1))]


def test_the_hour_beside_a_day_changes_no_devices(connection: duckdb.DuckDBPyConnection) -> None:
    land(connection, day(0), A, B)
    land(connection, Window(at(1), at(1, hours=1)), A, is_neighbour=True)
    assert devices(connection) == [("S-a", "n1", at(1)), ("S-b", "n1", at(1))]


def test_a_family_that_the_catalogue_got_rows_for_is_no_longer_listed(connection: duckdb.DuckDBPyConnection) -> None:
    land(connection, day(0), A)
    known = Catalogue({**CATALOGUE.families, METRIC: Family(METRIC, "power", "acme")}, CATALOGUE.device_labels)
    land(connection, day(1), catalogue=known)
    assert devices(connection) == []
    assert connection.execute("select metric from raw.unknown_families").fetchall() == []


def test_what_could_not_be_listed_is_the_landings_detail_and_forgets_nothing(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    land(connection, day(0), A)
    refused = "unknown families are not listed: HTTP 403: refused"
    landing = land(connection, day(0), unlisted=refused)
    assert (landing.outcome, landing.detail) == ("unchanged", refused)
    assert devices(connection) == [("S-a", "n1", at(1))]
    assert connection.execute("select detail from raw.landings order by rowid").fetchall() == [(None,), (refused,)]


def test_an_empty_day_that_could_not_be_listed_has_not_failed(connection: duckdb.DuckDBPyConnection) -> None:
    landing = telemetry_landing.land(connection, Samples(unlisted="not listed"), day(0), CATALOGUE, run_id="run")
    assert (landing.outcome, landing.detail) == ("empty", "not listed")


def test_a_failed_landing_keeps_the_devices(connection: duckdb.DuckDBPyConnection) -> None:
    land(connection, day(0), A)
    assert land(connection, day(0), error=SourceError("u", None, "gone")).outcome == "failed"
    assert devices(connection) == [("S-a", "n1", at(1))]


def test_a_warehouse_from_before_devices_were_listed_keeps_its_families(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("drop table raw.unknown_devices")
    connection.execute("update raw.warehouse_version set schema_version = 6")
    connection.execute("insert into raw.unknown_families values ('cluster', 'older_metric', 2, '2026-09-30')")
    create_tables(connection)
    land(connection, day(0), A)
    assert devices(connection) == [("S-a", "n1", at(1))]
    assert connection.execute("select metric, series from raw.unknown_families order by 1").fetchall() == [
        (METRIC, 1),
        ("older_metric", 2),
    ]
