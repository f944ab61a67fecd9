"""A damaged file of the spool costs itself: the others land, it stays where it is, and is named with the reason."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collectors.devices.spool import UNKNOWN_KEY, UNKNOWN_LABELS_KEY, Spool
from collectors.devices.spool_collector import SPOOL_SCHEMA, SpoolCollector
from collectors.samples import Family, Window
from collectors.series import SeriesRegister
from tests.odd_inputs import DEEP

DAY = Window.of_day(date(2026, 10, 1))
NOON = datetime(2026, 10, 1, 12, tzinfo=UTC)
POWER = "DCGM_FI_DEV_POWER_USAGE"
FAMILIES = {POWER: Family(POWER, "power", "dcgm")}
GOOD = '{"UUID":"GPU-a"}'


def payload(labels: str = GOOD, metadata: dict[bytes, bytes] | None = None) -> bytes:
    rows = {"observed_at": [NOON], "source_kind": ["dcgm"], "metric": [POWER], "labels": [labels], "value": [250.5]}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(rows, SPOOL_SCHEMA).replace_schema_metadata(metadata), sink)
    return sink.getvalue().to_pybytes()


def collected(folder: Path, held: bytes) -> tuple[list[float], SpoolCollector]:
    """The values that come of a good file and one that holds `held`, between whose names it is."""
    spool = Spool(folder)
    for name, content in (("1", payload()), ("2", held), ("3", payload())):
        spool.put(f"host=n{name}/date=2026-10-01/{name}.parquet", content)
    collector = SpoolCollector("agents", folder)
    register = SeriesRegister("agents", DAY)
    values = [v for batch in collector.collect(DAY, FAMILIES, register) for v in batch.samples["value"].to_pylist()]
    return values, collector


def deep(opening: str, closing: str) -> str:
    return opening * DEEP + "1" + closing * DEEP


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        (payload(deep('{"a":', "}")), "depth limit exceeded"),
        (payload(deep("[", "]")), "depth limit exceeded"),
        (payload("[1]"), "labels are no JSON object of texts: '[1]'"),
        (payload('{"UUID":1}'), "labels are no JSON object of texts: '{\"UUID\":1}'"),
        (payload('{"UUID":"\\ud800"}'), "surrogate"),
        (payload("{"), "unexpected end of data"),
        (payload(metadata={UNKNOWN_KEY: deep('{"a":', "}").encode()}), "depth limit exceeded"),
        (payload(metadata={UNKNOWN_LABELS_KEY: deep("[", "]").encode()}), "depth limit exceeded"),
        (payload(metadata={UNKNOWN_KEY: b"\xff"}), "is not valid UTF-8"),
        (payload()[:-9], "Parquet magic bytes not found"),
        (b"", "Parquet"),
        (b"<html>Sign in</html>", "Parquet magic bytes not found"),
    ],
)
def test_a_damaged_file_costs_itself(tmp_path: Path, held: bytes, reason: str) -> None:
    values, collector = collected(tmp_path, held)
    assert values == [250.5, 250.5]
    (problem,) = collector.problems
    assert problem.startswith(f"{tmp_path}/host=n2/date=2026-10-01/2.parquet: ")
    assert reason in problem
    # It stays for whoever looks into it; the files that landed are removed.
    assert collector.landed(DAY) == 2
    assert [path.name for path in tmp_path.rglob("*.parquet")] == ["2.parquet"]


@pytest.mark.parametrize(
    "held",
    [
        payload('{"UUID":"GPU-b","pod":"' + "[" * DEEP + '"}'),
        payload('{"UUID":"GPU-é🔥"}'),
        payload(metadata={UNKNOWN_KEY: json.dumps({"other_watts": 3}).encode()}),
    ],
)
def test_odd_labels_that_can_be_are_no_damage(tmp_path: Path, held: bytes) -> None:
    values, collector = collected(tmp_path, held)
    assert (values, collector.problems) == ([250.5] * 3, [])
