"""A value that a model cannot take costs its own series: it is found by DuckDB's message, refused, and listed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

from pipelines.booking import refused_series
from pipelines.booking.refused_series import Value, value_of
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables

DAY, NEXT = date(2026, 10, 15), date(2026, 10, 16)


@pytest.mark.parametrize(
    ("cast", "found"),
    [
        ("cast('tp0' as integer)", Value("tp0", "INT32", False)),
        ("cast('it''s' as bigint)", Value("it's", "INT64", False)),
        ("cast('a\"b' as decimal(28, 6))", Value('a"b', "DECIMAL(28,6)", False)),
        ("cast('N/A' as double)", Value("N/A", "DOUBLE", False)),
        ("cast('soon' as timestamptz)", Value("soon", "timestamp", False)),
        ("cast('soon' as date)", Value("soon", "date", False)),
        ("cast(1.79e18::double * 1e6 as bigint)", Value("1.79e+24", "INT64", True)),
        ("cast(1.79e18::double as integer)", Value("1.79e+18", "INT32", True)),
        (
            f"cast({2.0**100}::double as decimal(28, 6))",
            Value(f"{2**63 * 2.0**37:.6f}", "DECIMAL(28,6)", True),
        ),
        ("cast(1.79e18::decimal(28, 6) * 1000000 as bigint)", Value("1789999999999999953862656", "INT64", True)),
        ("9000000000000000000::bigint + 9000000000000000000::bigint", Value("9000000000000000000", None, True)),
        ("make_timestamp(9223372036854775807)", Value("9223372036854775807", None, True)),
        ("to_seconds(1.5e18::double)", Value("1500000000000000000.000000", None, True)),
        ("error('out of disk')", None),
    ],
)
def test_the_value_is_read_from_duckdbs_own_message(cast: str, found: Value | None) -> None:
    with closing(duckdb.connect()) as connection, pytest.raises(duckdb.Error) as refusal:
        connection.execute(f"select {cast} from range(1)").fetchall()
    assert value_of(f"Runtime Error in model m (models/m.sql)\n  {refusal.value}") == found


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (
            '[CAST_INVALID_INPUT] The value \'tp0\' of the type "STRING" cannot be cast to "INT" because it is'
            " malformed.",
            Value("tp0", "INT", False),
        ),
        (
            '[CAST_OVERFLOW] The value 1.79E24D of the type "DOUBLE" cannot be cast to "BIGINT" due to an overflow.',
            Value("1.79E24", "BIGINT", True),
        ),
    ],
)
def test_the_value_is_read_from_sparks_words(message: str, found: Value) -> None:
    assert value_of(message) == found


LABELS = {
    1: ("sglang", "tokens", '{"tp_rank":"0","pod":"a"}'),
    2: ("sglang", "tokens", '{"tp_rank":"tp0","pod":"tp0"}'),
    3: ("sglang", "tokens", '{"tp_rank":"tp1","pod":"b"}'),
    12: ("sglang", "tokens", '{"tp_rank":"stage1","pod":"b"}'),
    4: ("sglang", "tokens", '{"tp_rank":"","pod":"tp0"}'),  # named like the rank; its own rank is empty
    5: ("dcgm", "watts", '{"GPU_I_PROFILE":"1c.3g.40gb","UUID":"GPU-1c.3"}'),
    6: ("dcgm", "watts", '{"GPU_I_PROFILE":"1c.2g.20gb","UUID":"GPU-6"}'),
    7: ("dcgm", "watts", '{"GPU_I_PROFILE":"3g.40gb","UUID":"GPU-7"}'),
    8: ("vllm", "started", '{"pod":"a"}'),
    9: ("vllm", "started", '{"pod":"b"}'),
    10: ("vllm", "started", '{"pod":"c"}'),
    11: ("vllm", "tokens", '{"pod":"c"}'),
    13: ("vllm", "started", '{"pod":"d"}'),
}


@pytest.fixture
def warehouse() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(database.connect(":memory:")) as connection:
        create_tables(connection)
        connection.execute(
            """
            create schema reference;
            create table reference.label_catalog as from (values
                ('sglang', 'tp_rank', 'tensor_rank'), ('sglang', 'pod', 'pod'), ('vllm', 'pod', 'pod'),
                ('dcgm', 'GPU_I_PROFILE', 'mig_profile'), ('dcgm', 'UUID', 'device_uuid')
            ) as rows (source_kind, label, attribute);
            create table reference.metric_catalog as from (values
                ('vllm', 'started', 1), ('vllm', 'tokens', 1)) as rows (source_kind, metric, factor);
            """
        )
        for series_id, (kind, metric, labels) in LABELS.items():
            connection.execute(
                "insert into raw.series (series_id, source, source_kind, metric, labels)"
                " values (?, 'cluster', ?, ?, ?)",
                [series_id, kind, metric, labels],
            )
        # Engines b and d count nanoseconds, c microseconds.
        samples = [(8, 1.79e9), (9, 1.79e18), (10, 1.791e15), (11, 5e9), (13, 1.5e18)]
        connection.executemany(
            "insert into raw.token_samples values (?, timestamptz '2026-10-15 12:00:00+00', ?)", samples
        )
        yield connection


def refused(connection: duckdb.DuckDBPyConnection, message: str) -> list[tuple]:
    refused_series.refuse(connection, [("stg_series", message)], DAY, NEXT, "test")
    return connection.execute(
        "select series_id, label, value, model from raw.refused_series order by series_id"
    ).fetchall()


def test_a_label_is_refused_with_those_of_its_shape(warehouse: duckdb.DuckDBPyConnection) -> None:
    """A rank `tp0` is no pod `tp0`: no other pod is a number, and other ranks are. `stage1` may be read well."""
    assert refused(warehouse, "Conversion Error: Could not convert string 'tp0' to INT32 when casting") == [
        (2, "tp_rank", "tp0", "stg_series"),
        (3, "tp_rank", "tp1", "stg_series"),
    ]


def test_a_part_of_a_label_is_refused_with_those_of_its_shape(warehouse: duckdb.DuckDBPyConnection) -> None:
    """`1c.3` is what a model takes of the profile before its g."""
    warehouse.execute("update raw.series set labels = replace(labels, 'GPU-1c.3', 'GPU-5')")
    assert refused(warehouse, "Conversion Error: Could not convert string '1c.3' to DOUBLE when casting") == [
        (5, "GPU_I_PROFILE", "1c.3g.40gb", "stg_series"),
        (6, "GPU_I_PROFILE", "1c.2g.20gb", "stg_series"),
    ]


def test_a_sample_is_refused_with_those_of_its_metric_that_do_not_fit_either(
    warehouse: duckdb.DuckDBPyConnection,
) -> None:
    """Seconds are cast as microseconds. A start in microseconds stays, which a model may know; so do 5e9 tokens."""
    message = (
        "Conversion Error: Type DOUBLE with value 1.79e+24 can't be cast because the value is out of range for the"
        " destination type INT64"
    )
    assert refused(warehouse, message) == [
        (9, None, "1.79e+18", "stg_series"),
        (13, None, "1.5e+18", "stg_series"),
    ]


@pytest.mark.parametrize(
    "message",
    [
        "Conversion Error: Could not convert string 'of a price list' to DOUBLE",
        "Conversion Error: Could not convert string '' to INT32",
        "Binder Error: column nothing does not exist",
        "Conversion Error: Type DOUBLE with value 300.0 can't be cast because the value is out of range for the"
        " destination type INT8",
    ],
)
def test_a_value_of_no_series_refuses_none(warehouse: duckdb.DuckDBPyConnection, message: str) -> None:
    assert refused(warehouse, message) == []


def test_a_refused_series_is_tried_again(warehouse: duckdb.DuckDBPyConnection) -> None:
    message = "Conversion Error: Could not convert string 'tp0' to INT32"
    assert refused_series.refuse(warehouse, [("a", message), ("b", message)], DAY, NEXT, "first") == 2
    assert refused_series.refuse(warehouse, [("a", message)], DAY, NEXT, "again") == 0
    runs = warehouse.execute("select distinct run_id from raw.refused_series where refused_at is not null").fetchall()
    assert runs == [("first",)]
    refused_series.forget(warehouse)
    assert warehouse.execute("from raw.refused_series").fetchall() == []


def outcome(name: str, status: str, message: str = "", kind: str = "model") -> SimpleNamespace:
    return SimpleNamespace(node=SimpleNamespace(name=name, resource_type=kind), status=status, message=message)


@pytest.mark.parametrize(
    ("first", "builds"),
    [
        (outcome("m", "success"), 1),
        (outcome("m", "error", "Binder Error: no column"), 1),
        (outcome("t", "error", "Could not convert string 'tp0' to INT32", "test"), 1),
        (outcome("m", "error", "Could not convert string 'tp0' to INT32"), 2),  # the second fails on the same
    ],
    ids=["built", "no value", "a data test", "a series' value"],
)
def test_a_book_is_built_again_while_there_is_something_to_refuse(
    tmp_path: Path, first: SimpleNamespace, builds: int
) -> None:
    path = tmp_path / "warehouse.duckdb"
    with closing(database.connect(path)) as connection:
        create_tables(connection)
        connection.execute(
            "create schema reference; create table reference.label_catalog as select 'sglang' as source_kind,"
            " 'tp_rank' as label, 'tensor_rank' as attribute"
        )
        connection.execute(
            "insert into raw.series (series_id, source_kind, labels) values (1, 'sglang', '{\"tp_rank\":\"tp0\"}')"
        )
        # Of an earlier booking, whose version could not take it.
        connection.execute("insert into raw.refused_series (series_id) values (7)")
    seen = []

    def build() -> list[SimpleNamespace]:
        with closing(database.connect(path, read_only=True)) as connection:
            seen.append(connection.execute("select series_id from raw.refused_series").fetchall())
        return [first]

    assert refused_series.built(path, DAY, NEXT, "test", build) == [first]
    assert seen == [[], [(1,)]][:builds]
