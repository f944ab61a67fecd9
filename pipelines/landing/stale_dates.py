"""Which dates a landing makes stale: those whose neighbours it changed.

A delta between two samples belongs to every date from the first to the second. So when the first or last sample of an
entity's day changes, its dates back to the previous landed sample, or on to the next, are stale and must be booked
again. Keep out what is done with them: they wait in raw.due_dates (`pipelines.warehouse.due_dates`).
"""

from __future__ import annotations

from datetime import UTC, date, timedelta

import duckdb
import pyarrow as pa

from collectors.samples import Window
from pipelines.fleet import catalog
from pipelines.warehouse import due_dates, statements
from pipelines.warehouse.database import registered

# Of a label that identifies a device: its place among its source kind's, and what it names.
LABELS = pa.schema({"source_kind": pa.string(), "label": pa.string(), "rank": pa.int32(), "attribute": pa.string()})


def utc_day(window: Window) -> Window:
    """The UTC day that holds the window; ValueError when it crosses midnight."""
    day = Window.of_day(window.start_at.astimezone(UTC).date())
    if window.end_at > day.end_at:
        raise ValueError(f"a landing must be within one UTC day, got {window}")
    return day


def chunks(connection: duckdb.DuckDBPyConnection, source: str, window: Window) -> pa.Table:
    """The rows of raw.series_chunks of a source on the window's UTC day."""
    day = utc_day(window)
    return connection.sql(
        "select * from raw.series_chunks where source = ? and chunk_start_at >= ? and chunk_start_at < ?",
        params=[source, day.start_at, day.end_at],
    ).to_arrow_table()


def mark_stale(
    connection: duckdb.DuckDBPyConnection,
    before: pa.Table,
    after: pa.Table,
    device_labels: list[tuple[str, str, int, str]],
    *,
    is_head: bool = False,
    booked_dates: tuple[date, date | None] | None = None,
) -> int:
    """Mark as due the dates that became stale when one (source, day) changed from `before` to `after`.

    Both are rows of raw.series_chunks of that day, the warehouse already holds `after`. `device_labels` are
    (source kind, label, rank, attribute) of the labels that identify a device: a device's counter runs on when its
    labels change, so its neighbours are looked for over all its series. The day of a mere head is not due itself: it
    will be booked when it has landed. Where another meter of the device changed while its counter was silent, all dates
    of the silence are due: the counter's difference is the sum over them. Dates outside `booked_dates` [start, end) and
    dates that no run asked for are never due. Returns how many entities changed their ends.
    """
    labels = pa.Table.from_pylist([dict(zip(LABELS.names, row, strict=True)) for row in device_labels], LABELS)
    kinds = ((catalog.metrics(quantity="power"), False), (catalog.metrics(quantity="energy"), True))
    meters = pa.Table.from_pylist([{"metric": name, "is_counter": is_} for names, is_ in kinds for name in names])
    with registered(connection, chunks_before=before, chunks_after=after, device_labels=labels, meter_metrics=meters):
        connection.execute(statements.read(__file__, "touched_series"))
        connection.execute(statements.read(__file__, "named_series"))
        changed, day, first, last = connection.execute(statements.read(__file__, "stale_dates")).fetchall()[0]
        silent_from, silent_to = connection.execute(statements.read(__file__, "silent_counters")).fetchall()[0]
        for name in ("touched_series", "named_series"):
            connection.execute(f"drop table {name}")
    start, end = booked_dates or (date.min, None)
    for since, until in ((first, last), (silent_from, silent_to)):
        if since is None or until is None:
            continue
        last_end = until if is_head and until == day else until + timedelta(days=1)
        span = max(since, start), min(last_end, end or date.max)
        due_dates.mark(connection, due_dates.BOOKING, *span, landing=None if is_head else day)
    return int(changed)
