"""Dagster's log of events with each of its SQLite files opened once, for the process of `wattledger run`.

Dagster's own storage makes an engine and opens the file again for each of a run's 900 transactions. Other processes
read and write the same files in Dagster's way. Keep out an instance with another database: it stays as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData
from sqlalchemy import Connection, Engine, QueuePool, create_engine


class OpenedOnce(SqliteEventLogStorage):
    """Dagster's storage, which still sets each file up; then one connection of one engine serves all transactions."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._engines: dict[str, Engine] = {}
        # As Dagster has it: a transaction that reads first could not write after another thread's.
        self._one_at_a_time = threading.Lock()
        super().__init__(base_dir, inst_data)

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> OpenedOnce:
        """The storage in the folder `base_dir`."""
        return cls(config_value["base_dir"], inst_data)

    def run_connection(self, run_id: str | None = None) -> AbstractContextManager[Connection]:
        """A transaction in the file of a run."""
        return self._transaction(str(run_id))

    def index_connection(self) -> AbstractContextManager[Connection]:
        """A transaction in the file of all runs' assets and checks."""
        return self._transaction(INDEX_SHARD_NAME)

    def dispose(self) -> None:
        """Close the files."""
        for engine in self._engines.values():
            engine.dispose()
        self._engines.clear()
        super().dispose()

    @contextmanager
    def _transaction(self, file: str) -> Iterator[Connection]:
        with self._one_at_a_time:
            if file not in self._engines:
                with super().run_connection(file):
                    pass
                arguments = {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
                self._engines[file] = create_engine(
                    self.conn_string_for_shard(file), poolclass=QueuePool, connect_args=arguments
                )
            with self._engines[file].begin() as connection:
                yield connection


def instance_of(home: Path) -> dg.DagsterInstance:
    """The instance of a folder, with this log of events where it has Dagster's own."""
    ref = InstanceRef.from_dir(str(home))
    own = ref.event_storage_data
    if own is not None and own.class_name == SqliteEventLogStorage.__name__:
        log = {"module": __name__, "class": OpenedOnce.__name__, "config": own.config_dict}
        ref = InstanceRef.from_dir(str(home), overrides={"event_log_storage": log})
    return dg.DagsterInstance.from_ref(ref)
