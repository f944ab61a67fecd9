"""Names of tenants in labels of gateways' counters: the book has keys in their place, the same one each time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import duckdb
import pytest

from pipelines.warehouse.raw_tables import create_tables
from pipelines.warehouse.tenants import tenant_names


@pytest.fixture
def warehouse() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        create_tables(connection)
        connection.execute(
            "insert into fleet.tenant_labels values ('gateway', 0, 'tenant', 'tenant'),"
            " ('gateway', 1, 'tenant', 'api_key_alias'), ('gateway', 0, 'team', 'team')"
        )
        yield connection


def see(connection: duckdb.DuckDBPyConnection, number: int, source: str, kind: str, **labels: str) -> None:
    connection.execute(
        "insert into raw.series (series_id, source, source_kind, labels) values (?, ?, ?, ?)",
        [number, source, kind, json.dumps(labels)],
    )


def labels(connection: duckdb.DuckDBPyConnection) -> dict[int, dict[str, str]]:
    found = connection.execute("select series_id, labels from raw.series order by series_id").fetchall()
    return {number: json.loads(text) for number, text in found}


def test_each_stated_label_holds_the_key_of_its_name(warehouse: duckdb.DuckDBPyConnection) -> None:
    see(warehouse, 1, "gateway", "envoy", tenant="acme", model="chat")
    see(warehouse, 2, "gateway", "envoy", tenant="acme", api_key_alias="zürich", team="acme")
    tenant_names.key_labels(warehouse)
    names = dict(warehouse.execute("select tenant, tenant_key from raw.tenant_names").fetchall())
    assert names.keys() == {"acme", "zürich"}
    assert all(re.fullmatch("tenant-[0-9a-f]{16}", key) for key in names.values())
    # A team is no tenant, whatever it is called.
    assert labels(warehouse) == {
        1: {"tenant": names["acme"], "model": "chat"},
        2: {"tenant": names["acme"], "api_key_alias": names["zürich"], "team": "acme"},
    }


def test_a_second_run_changes_nothing_and_a_name_that_comes_again_has_its_key(
    warehouse: duckdb.DuckDBPyConnection,
) -> None:
    see(warehouse, 1, "gateway", "envoy", tenant="acme")
    tenant_names.key_labels(warehouse)
    before = labels(warehouse)
    tenant_names.key_labels(warehouse)
    assert labels(warehouse) == before
    see(warehouse, 2, "gateway", "envoy", tenant="acme", pod="p1")
    tenant_names.key_labels(warehouse)
    assert labels(warehouse) == {1: before[1], 2: {**before[1], "pod": "p1"}}
    assert warehouse.execute("select count(*) from raw.tenant_names").fetchall() == [(1,)]


def test_what_names_no_tenant_stays(warehouse: duckdb.DuckDBPyConnection) -> None:
    """Another source's label of that name, no name at all, and LiteLLM's word for no name; of another gateway it may
    be a name."""
    see(warehouse, 1, "cluster", "envoy", tenant="acme")
    see(warehouse, 2, "gateway", "envoy", model="chat", tenant="")
    see(warehouse, 3, "gateway", "litellm", api_key_alias="None")
    tenant_names.key_labels(warehouse)
    assert labels(warehouse) == {
        1: {"tenant": "acme"},
        2: {"model": "chat", "tenant": ""},
        3: {"api_key_alias": "None"},
    }
    see(warehouse, 4, "gateway", "envoy", tenant="None")
    tenant_names.key_labels(warehouse)
    assert labels(warehouse)[4]["tenant"].startswith("tenant-")
