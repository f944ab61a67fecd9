"""Inputs of tests: times, families, and a source that holds exactly the samples it was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import duckdb
import numpy as np

from collectors.samples import Batch, Family, Window, microseconds, sample_batch
from collectors.series import SeriesRegister
from pipelines.landing.telemetry_landing import Catalogue

DAY_ONE = datetime(2026, 10, 1, tzinfo=UTC)

ENERGY = Family("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "power", "dcgm_exporter")
WATTS = Family("DCGM_FI_DEV_POWER_USAGE", "power", "dcgm_exporter")
TOKENS = Family("vllm:generation_tokens_total", "tokens", "vllm")
CATALOGUE = Catalogue(
    {family.metric: family for family in (ENERGY, WATTS, TOKENS)},
    [
        ("dcgm_exporter", "UUID", 10, "device_uuid"),
        ("dcgm_exporter", "uuid", 20, "device_uuid"),
        ("dcgm_exporter", "gpu", 10, "device_index"),
        ("dcgm_exporter", "Hostname", 10, "node"),
    ],
)


def at(days: float = 0, hours: float = 0, seconds: float = 0) -> datetime:
    """A time after the first day's midnight."""
    return DAY_ONE + timedelta(days=days, hours=hours, seconds=seconds)


def day(number: int) -> Window:
    """The window of the n-th UTC day, from 0."""
    return Window(at(number), at(number + 1))


@dataclass
class Samples:
    """A source that holds exactly these samples, as (metric, labels) -> [(time, value)].

    With `error` it raises that after `fails_after` batches.
    """

    source: str = "cluster"
    held: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[datetime, float]]] = field(default_factory=dict)
    error: Exception | None = None
    fails_after: int = 0
    batch_rows: int = 3
    is_additive: bool = False
    forgotten: list[Window] = field(default_factory=list)
    unknown: Mapping[str, int] = field(default_factory=dict)
    unknown_labels: Mapping[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    unlisted: str | None = None

    def put(self, family: Family, labels: Mapping[str, str], points: Sequence[tuple[datetime, float]]) -> Samples:
        self.held.setdefault((family.metric, tuple(sorted(labels.items()))), []).extend(points)
        return self

    def collect(self, window: Window, families: Mapping[str, Family], register: SeriesRegister) -> Iterator[Batch]:
        given = 0
        for metric, series in self.unknown.items():
            register.unknown(metric, series)
        for metric, labels in self.unknown_labels.items():
            for one in labels:
                register.unknown_device(metric, one)
        register.unlisted = self.unlisted
        for (metric, labels), points in self.held.items():
            family = families[metric]
            series_id = register.series_id(family, dict(labels))
            inside = [(t, v) for t, v in points if window.start_at <= t < window.end_at]
            for first in range(0, len(inside), self.batch_rows):
                if self.error is not None and given == self.fails_after:
                    raise self.error
                part = inside[first : first + self.batch_rows]
                samples = sample_batch(
                    np.full(len(part), series_id),
                    np.array([microseconds(t) for t, _ in part]),
                    np.array([v for _, v in part], dtype=float),
                )
                register.observe(samples)
                yield Batch(family.stream, samples)
                given += 1
        if self.error is not None and given <= self.fails_after:
            raise self.error

    def landed(self, window: Window) -> None:
        self.forgotten.append(window)


def nothing_is_held_back(connection: duckdb.DuckDBPyConnection) -> None:
    """The marts in which broken invariants are gathered, empty, as dbt would make them."""
    broken = "table_name varchar, row_key varchar, found double, unit varchar, expected varchar, remedy varchar"
    connection.execute("create schema if not exists marts")
    for mart, more in (("held_back_dates", "date date, "), ("held_back_tables", "")):
        columns = f"{more}invariant varchar, {broken}, broken_rows bigint"
        connection.execute(f"create table if not exists marts.{mart} ({columns})")
    connection.execute(
        "create table if not exists marts.doubts_daily"
        " (date date, reason varchar, entity_kind varchar, entity varchar, evidence varchar, remedy varchar)"
    )
