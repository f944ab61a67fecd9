"""A run's history is what Dagster's own storage would have written, by one connection for each file."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.event_log import SqliteEventLogStorage
from sqlalchemy import Engine, event

from pipelines.command_line.instance import CONFIGURATION
from pipelines.upkeep.event_log import instance_of


@dg.asset(check_specs=[dg.AssetCheckSpec("is_there", asset="joules")])
def joules() -> Iterator[object]:
    yield dg.MaterializeResult(metadata={"kilowatt_hours": 1.5})
    yield dg.AssetCheckResult(asset_key="joules", check_name="is_there", passed=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    shutil.copy(CONFIGURATION, tmp_path / "dagster.yaml")
    return tmp_path


@contextmanager
def opened() -> Iterator[Counter[str]]:
    """How often each file is opened meanwhile, by its name."""
    counted = Counter[str]()

    def count(connection: object, _: object) -> None:
        counted[Path(connection.execute("pragma database_list").fetchone()[2]).name] += 1  # type: ignore[attr-defined]

    event.listen(Engine, "connect", count)
    try:
        yield counted
    finally:
        event.remove(Engine, "connect", count)


def materialized(instance: dg.DagsterInstance) -> str:
    return dg.materialize([joules], instance=instance).run_id


def written(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    return [str(entry.dagster_event_type) for entry in instance.all_logs(run_id)]


def test_the_history_is_what_dagsters_own_storage_writes_and_reads(home: Path) -> None:
    with dg.DagsterInstance.from_config(str(home)) as theirs:
        expected = written(theirs, materialized(theirs))
        with instance_of(home) as ours:
            run_id = materialized(ours)
        assert written(theirs, run_id) == expected
        (value,) = theirs.get_latest_materialization_event(
            dg.AssetKey("joules")
        ).asset_materialization.metadata.values()
        assert (value.value, len(theirs.fetch_materializations(dg.AssetKey("joules"), limit=9).records)) == (1.5, 2)
        assert theirs.get_run_by_id(run_id).is_success


def test_each_file_of_events_is_opened_as_often_in_a_long_run_as_in_a_short_one(home: Path) -> None:
    with instance_of(home) as ours, opened() as counted:
        run_id = materialized(ours)
        first = counted[f"{run_id}.db"], counted["index.db"]
        for _ in range(3):
            ours.report_engine_event("again", ours.get_run_by_id(run_id))
            ours.all_logs(run_id)
        assert (counted[f"{run_id}.db"], counted["index.db"]) == first
    with dg.DagsterInstance.from_config(str(home)) as theirs, opened() as counted:
        run_id = materialized(theirs)
        assert min(counted[f"{run_id}.db"], counted["index.db"]) > 2 * max(first)


def test_threads_that_write_at_once_lose_no_event(home: Path) -> None:
    with instance_of(home) as ours, ThreadPoolExecutor(4) as threads:
        run_id = materialized(ours)
        run = ours.get_run_by_id(run_id)
        before = len(ours.all_logs(run_id))
        list(threads.map(lambda number: ours.report_engine_event(f"event {number}", run), range(40)))
        assert len(ours.all_logs(run_id)) == before + 40


def test_an_instance_with_another_database_stays_as_it_is(home: Path) -> None:
    with (home / "dagster.yaml").open("a") as configuration:
        configuration.write(
            "event_log_storage:\n  module: dagster._core.storage.event_log\n"
            f"  class: ConsolidatedSqliteEventLogStorage\n  config: {{base_dir: {home}/theirs}}\n"
        )
    with instance_of(home) as theirs:
        assert type(theirs.event_log_storage).__name__ == "ConsolidatedSqliteEventLogStorage"
    (home / "dagster.yaml").unlink()
    with instance_of(home) as ours:
        assert isinstance(ours.event_log_storage, SqliteEventLogStorage)
        assert type(ours.event_log_storage).__name__ == "OpenedOnce"
