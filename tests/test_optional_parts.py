"""A fleet file that asks for an optional part, where the package that the part needs is not installed: one message with
the fix. A fleet that does not ask for it never imports the package (`test_imports`)."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from collectors.records.litellm import LiteLLMPostgresCollector
from collectors.rows import Rejects
from collectors.samples import SourceError, Window
from pipelines import code_location
from pipelines.command_line import instance
from pipelines.command_line.main import main
from pipelines.fleet.fleet_errors import FleetError
from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.publishing.object_store import storing
from pipelines.publishing.object_store.place import ObjectStoreError
from pipelines.publishing.parts import Parts
from pipelines.publishing.postgresql import loading
from pipelines.publishing.postgresql.server import PostgresqlError
from tests.tiny_marts import book, publish

FLEET = """
fleet: tiny
synthetic: true
period: {start: 2026-10-01}
sources: [{name: synthetic, kind: synthetic, scenario: demo, interval_seconds: 60}]
"""
PLACE = "postgresql://reader@127.0.0.1:1/ledger"


def fleet_of(folder: Path, more: str) -> Fleet:
    path = folder / "tiny.yaml"
    path.write_text(FLEET + more)
    environ = {**os.environ, "WATTLEDGER_DATA": str(folder / "data"), "PLACE": PLACE}
    made = load_fleet(path, environ)
    made.root.mkdir(parents=True, exist_ok=True)
    return made


def published(folder: Path, more: str) -> Fleet:
    made = fleet_of(folder, more)
    book(made, {"2026-10-01": 1.0})
    publish(made)
    return made


def test_spark_without_pyspark_is_refused_before_anything_lands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    fleet = fleet_of(tmp_path, "landing: {target: lake, path: lake/, engine: spark}\n")
    with pytest.raises(FleetError) as refused:
        code_location.validate(fleet)
    assert "landing.engine: pyspark is not installed: pip install 'wattledger[spark]'" in str(refused.value)


def test_delta_tables_without_deltalake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = published(tmp_path, "publication: {object_store: {url: store/}}\n")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ObjectStoreError) as refused:
        storing.publish(fleet, fleet.publication.object_store)
    assert str(refused.value).startswith(
        "publication.object_store: the package deltalake is not installed. Install it"
        " (pip install 'wattledger[object-store]'), or set publication.object_store.tables: parquet."
    )


def test_plain_files_in_an_object_store_need_no_deltalake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = published(tmp_path, "publication: {object_store: {url: store/, tables: parquet}}\n")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert storing.publish(fleet, fleet.publication.object_store) is not None


def test_postgresql_without_its_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", PLACE)
    fleet = published(tmp_path, "publication: {postgresql: {dsn_env: PLACE}}\n")
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    with pytest.raises(PostgresqlError) as refused:
        loading.publish(fleet, fleet.publication.postgresql, {})
    assert str(refused.value).startswith(
        "publication.postgresql: the package adbc-driver-postgresql is not installed. Install it"
        " (pip install 'wattledger[postgres]'), or remove publication.postgresql from the fleet file."
    )


def test_litellms_spend_log_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", PLACE)
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    start = datetime(2026, 10, 1, tzinfo=UTC)
    with pytest.raises(SourceError, match="the package adbc-driver-postgresql is not installed"):
        list(
            LiteLLMPostgresCollector("proxy", "PLACE", {}).collect(Window(start, start + timedelta(days=1)), Rejects())
        )


def test_pictures_without_matplotlib_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    parts = Parts()
    assert parts.picture("plan", lambda: "drawn") == (
        "Pictures are drawn where matplotlib is installed: pip install 'wattledger[ui]'."
    )
    assert parts.failed == []


def test_the_ui_without_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(instance, "find_spec", lambda _: None)
    fleet = fleet_of(tmp_path, "")
    assert main(["dev", "--fleet", str(fleet.path)]) == 2
    assert capsys.readouterr().err == "the Dagster UI is not installed: pip install 'wattledger[ui]'\n"
