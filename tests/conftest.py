"""What several tests share: an empty warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from pipelines import warehouse
from pipelines.raw_tables import create_tables


@pytest.fixture
def held(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """An open warehouse with empty tables."""
    connection = warehouse.connect(tmp_path / "warehouse.duckdb")
    create_tables(connection)
    yield connection
    connection.close()
