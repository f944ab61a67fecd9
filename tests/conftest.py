"""What several tests share: an empty warehouse, and the four weeks of the bundled demo."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import duckdb
import pytest
from filelock import FileLock

from pipelines.fleet.fleet_file import DEFAULT_FLEET
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from tests import composed
from tests.books import Book, command
from tests.servers import openmetrics, prometheus_with_history

# Where it is installed (`make test-spark`), pyspark takes xdist's workers for its own doctests and ends them.
if sys.modules["__main__"].__spec__ is None:
    sys.modules["__main__"].__spec__ = ModuleSpec("__main__", None)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """An open warehouse with empty tables."""
    connection = database.connect(tmp_path / "warehouse.duckdb")
    create_tables(connection)
    yield connection
    connection.close()


@pytest.fixture(scope="session")
def four_weeks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Book, str]:
    """The bundled demo, run once as a user runs it and shared by all worker processes; with what the run printed."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "four_weeks"
    folder.mkdir(exist_ok=True)
    printed = folder / "printed.txt"
    with FileLock(folder / "lock"):
        if not printed.exists():
            done = command(DEFAULT_FLEET, folder / "data")
            assert done.returncode == 0, done.stdout + done.stderr
            printed.write_text(done.stdout, encoding="utf-8")
    return Book.of(DEFAULT_FLEET, folder / "data"), printed.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def composed_book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The composed cluster's book, from a real Prometheus that is gone by now."""
    folder = tmp_path_factory.mktemp("composed")
    (folder / "server").mkdir()
    with prometheus_with_history(folder / "server", openmetrics(composed.series())) as url:
        book = Book.of(composed.fleet(folder, url=url), folder / "data")
        book.run()
    return book
