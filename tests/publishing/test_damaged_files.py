"""Files of a publication that are lost or damaged between two runs: no copy loses a figure; a warning names each."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi
from deltalake import DeltaTable

from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.publishing.object_store import storing as object_store
from pipelines.publishing.postgresql import loading as postgresql
from pipelines.warehouse import contracts
from tests.publishing.damage import KINDS, damage, differing_files
from tests.servers import Postgresql, s3_bucket
from tests.tiny_marts import book, publish

pytestmark = pytest.mark.sampled

NEEDED_BY = {"server": ("postgresql",)}
DSN = "WATTLEDGER_TEST_POSTGRESQL"
FLEET = """
fleet: tiny
synthetic: true
period: {start: 2026-10-01}
sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]
publication:
  object_store: {url: URL, tables: delta, keep_days: 10}
"""
TO_POSTGRESQL = '  postgresql: {dsn_env: WATTLEDGER_TEST_POSTGRESQL, schema_prefix: "PREFIX"}\n'
MARTS = {"model_daily": contracts.Mart((), grain=("date", "model", "team"), never_null=frozenset({"date", "model"}))}
LEDGER = "parquet/marts/energy_ledger/date=2026-10-01.parquet"
HOURS = "parquet/marts/model_hourly/date=2026-10-02.parquet"
FOCUS = "focus/cost_and_usage_2026-09.csv"
# A date's file of two tables of intervals or hours, a table of one file, and the database that all are made from.
SAMPLE = (LEDGER, HOURS, "parquet/marts/model_daily.parquet", FOCUS, "wattledger.duckdb")
# 0.5 + 0.5 J of two meters on 1 October, 1 + 1 J on the 2nd, 1.5 + 1.5 J on the 3rd.
JOULES = {"2026-10-01": 1, "2026-10-02": 2, "2026-10-03": 3}
MORE = """
create or replace table marts.model_hourly as
    select date, interval_start_at as hour_start_at, meter, energy_joules from marts.energy_ledger;
create or replace table marts.focus_cost_and_usage as
    select date '2026-09-30' as date, date '2026-09-01' as billing_month, 7.25::decimal(28, 12) as "BilledCost"
    union all select date, date_trunc('month', date)::date, energy_joules from marts.model_daily;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgresql]:
    with Postgresql.installed() as found, pytest.MonkeyPatch.context() as patch:
        found.start()
        patch.setenv(DSN, found.uri)
        yield found


def tiny(folder: Path, url: str = "store/", prefix: str = "") -> Fleet:
    path = folder / "tiny.yaml"
    text = FLEET + (TO_POSTGRESQL if prefix else "")
    path.write_text(text.replace("URL", url).replace("PREFIX", prefix))
    made = load_fleet(path, {**os.environ, "WATTLEDGER_DATA": str(folder / "data")})
    made.root.mkdir(parents=True, exist_ok=True)
    return made


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Two published dates, copied to a folder as an object store."""
    made = tiny(tmp_path)
    two_dates(made)
    store(made)
    return made


def two_dates(fleet: Fleet) -> None:
    book(fleet, {on: JOULES[on] for on in ("2026-10-01", "2026-10-02")}, more=MORE)
    publish(fleet)


def a_third(fleet: Fleet) -> None:
    """The next run's date; the dates before are not its own."""
    book(fleet, JOULES, more=MORE)
    publish(fleet, "2026-10-03", "2026-10-04")


def latest(fleet: Fleet) -> Path:
    return (fleet.published / "latest").resolve()


def store(fleet: Fleet) -> object_store.Stored | None:
    assert fleet.publication.object_store is not None
    return object_store.publish(fleet, fleet.publication.object_store)


def ledger_by_date(rows: str, connection: duckdb.DuckDBPyConnection) -> dict[str, Decimal]:
    query = f"select date::varchar, sum(energy_joules) from {rows} group by 1 order by 1"
    return dict(connection.execute(query).fetchall())


def of_files(fleet: Fleet) -> dict[str, Decimal]:
    """The ledger's joules by date, from the Parquet files that a reader opens."""
    with closing(duckdb.connect()) as connection:
        return ledger_by_date(f"'{latest(fleet)}/parquet/marts/energy_ledger/*.parquet'", connection)


def of_store(fleet: Fleet) -> dict[str, Decimal]:
    """The same from the files of the object store's manifest; its Delta table agrees."""
    assert fleet.publication.object_store is not None
    root = Path(fleet.publication.object_store.url)
    entry = json.loads((root / "latest.json").read_text())["tables"]["marts.energy_ledger"]
    with closing(duckdb.connect()) as connection:
        found = ledger_by_date(f"read_parquet({[str(root / one['path']) for one in entry['files']]})", connection)
        held = DeltaTable(str(root / entry["path"]), version=entry["delta_version"])
        connection.register("theirs", pa.table(held.scan()))
        assert ledger_by_date("theirs", connection) == found
    return found


# --- each kind of damage, in each copy --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", SAMPLE)
def test_the_next_publication_and_the_object_store_keep_every_figure(
    fleet: Fleet, kind: str, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage(latest(fleet) / file, kind)
    with caplog.at_level(logging.WARNING):
        a_third(fleet)
    (line,) = [one for one in caplog.messages if file in one]
    assert latest(fleet).parent.joinpath(line.split(":")[0]).name == Path(file).name
    assert of_files(fleet) == JOULES
    assert differing_files(latest(fleet)) == []
    assert "7.250000000000" in (latest(fleet) / FOCUS).read_text()
    store(fleet)
    assert of_store(fleet) == JOULES


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", [LEDGER, "wattledger.duckdb"])
def test_a_copy_of_the_same_publication_keeps_every_figure(
    fleet: Fleet, kind: str, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is damaged after the publication and before its copy, which then has all of its files to write."""
    a_third(fleet)
    shutil.rmtree(fleet.publication.object_store.url)
    damage(latest(fleet) / file, kind)
    with caplog.at_level(logging.WARNING):
        store(fleet)
    assert len([one for one in caplog.messages if file in one]) == 1
    assert of_store(fleet) == JOULES
    assert differing_files(latest(fleet)) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", [LEDGER, "wattledger.duckdb"])
def test_postgresql_keeps_every_figure(
    server: Postgresql, tmp_path: Path, kind: str, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    prefix = f"{kind}_{Path(file).suffix[1:]}_"
    fleet = tiny(tmp_path, prefix=prefix)
    target = fleet.publication.postgresql
    assert target is not None

    def on_the_server() -> dict[str, Decimal]:
        with dbapi.connect(server.uri) as connection, connection.cursor() as cursor:
            cursor.execute(f"select date::text, sum(energy_joules)::text from {prefix}marts.energy_ledger group by 1")
            return {on: Decimal(joules) for on, joules in cursor.fetchall()}

    two_dates(fleet)
    postgresql.publish(fleet, target, MARTS)
    # Damaged between two runs, and then between a publication and its copy.
    damage(latest(fleet) / file, kind)
    with caplog.at_level(logging.WARNING):
        a_third(fleet)
        damage(latest(fleet) / file, kind)
        done = postgresql.publish(fleet, target, MARTS)
    assert done is not None
    assert len([one for one in caplog.messages if file in one]) == 2
    assert on_the_server() == JOULES
    # What is there already and did not change is not sent again.
    assert done.rows["marts.energy_ledger"] == 2


@pytest.mark.rest
def test_an_object_store_behind_a_server_keeps_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_bucket(monkeypatch) as url:
        fleet = tiny(tmp_path, f"{url}/ledger")
        two_dates(fleet)
        store(fleet)
        damage(latest(fleet) / LEDGER, "deleted")
        a_third(fleet)
        damage(latest(fleet) / HOURS, "swapped")
        done = store(fleet)
        assert done is not None
        # The third date of two tables, two tables that are kept by month, the months, the row about the publication.
        assert done.files == 6
        damage(latest(fleet) / LEDGER, "cut")
        again = store(fleet)
        assert again is not None
        assert again.files == 0
