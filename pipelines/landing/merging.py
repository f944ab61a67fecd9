"""Merging into a day that is already held: the rows of a source that gives its day piece by piece.

A spool's files arrive when they arrive, and arrive again after a crash between commit and removal. Here is what merging
means, as SQL over samples in any store. Keep out where that is (`stores`), the first landing of a day and
everything about windows (`telemetry_landing`).
"""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import numpy as np
import pyarrow as pa

from collectors.facts import Facts
from collectors.samples import OBSERVED_AT, Window
from pipelines.warehouse import database, statements

BATCH_ROWS = 1 << 19

# Of the series in the registered table `chunks_came`: those to merge.
OF_CAME = "series_id in (select series_id from chunks_came)"

# As collectors give samples. Series by series they take a quarter less room on disk than in the order of time
# (9.0 and 12.0 bytes a sample of 300 series at 15 s with milliseconds of jitter).
ORDER = "order by series_id, observed_at"


def one_per_time(rows: str) -> str:
    """A query for one row per (series, time) of `rows`: among rows of one time the larger valid value is kept."""
    return f"""
        select series_id, observed_at,
            arg_max(value, case when value >= 0 and value < 9.2e18 then value else -1 end) as value
        from {rows}
        group by series_id, observed_at
    """


def recounted(connection: duckdb.DuckDBPyConnection, source: str, day: Window, power: str, tokens: str) -> pa.Table:
    """Rows for raw.series_chunks of the series in the registered table `chunks_came`, over the whole day.

    `power` and `tokens` are the relations of samples. Facts are counted in time order, whatever order rows came in, by
    what counts them when a day comes at once.
    """
    span = (day.start_at, day.end_at)
    parts = [
        f"select series_id, observed_at, value from {rows} where observed_at >= ? and observed_at < ? and {OF_CAME}"
        for rows in (power, tokens)
    ]
    ordered = connection.sql(f"{' union all '.join(parts)} {ORDER}", params=[*span, *span])
    counted = _counted(ordered.to_arrow_reader(BATCH_ROWS))
    with database.registered(connection, chunks_counted=counted):
        params = [source, source, *span]
        return connection.sql(statements.read(__file__, "merged_chunks"), params=params).to_arrow_table()


def _counted(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The facts of every series of these samples, which are ordered by series and time."""
    facts, ids = Facts(0), np.empty(0, np.int64)
    for batch in batches:
        series, times, values = (
            batch.column(0).to_numpy(),
            batch.column(1).cast(pa.int64()).to_numpy(),
            batch.column(2).to_numpy(),
        )
        starts = np.flatnonzero(np.concatenate([[True], series[1:] != series[:-1]]))
        # A series may go on from batch to batch: then the newest one is its row.
        fresh = series[starts][1:] if len(ids) and ids[-1] == series[0] else series[starts]
        ids = np.concatenate([ids, fresh])
        facts.grow(len(ids))
        facts.count(np.arange(len(ids) - len(starts), len(ids)), starts, times, values)
    rows = np.arange(len(ids))
    is_empty, interval_us = facts.samples[rows] == 0, facts.steps.medians(rows)
    rises = facts.steepest_rise[rows]
    return pa.table(
        {
            "series_id": ids,
            "samples": facts.samples[rows],
            "first_at": pa.array(facts.run_first_at[rows], pa.int64(), mask=is_empty).view(OBSERVED_AT),
            "first_value": pa.array(facts.run_first_value[rows], mask=is_empty),
            "last_at": pa.array(facts.last_at[rows], pa.int64(), mask=is_empty).view(OBSERVED_AT),
            "last_value": pa.array(facts.last_value[rows], mask=is_empty),
            "falls": facts.falls[rows],
            "duplicates": facts.duplicates[rows],
            "rejects": facts.rejects[rows],
            "longest_gap_seconds": pa.array(facts.longest_gap_us[rows] / 1e6, mask=is_empty),
            "typical_interval_seconds": pa.array(interval_us / 1e6, mask=np.isnan(interval_us)),
            "steepest_rise_per_second": pa.array(rises, mask=np.isneginf(rises)),
        }
    )
