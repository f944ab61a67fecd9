"""Merging into a day that is already held: the rows of a source that gives its day piece by piece.

A spool's files arrive when they arrive, and arrive again after a crash between commit and removal. Here is what merging
means, as SQL over wherever the samples lie. Keep out where that is (`stores`), the first landing of a day and
everything about windows (`telemetry_landing`).
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from collectors.samples import Window

# Of the series in the registered table `chunks_came`: those to merge.
OF_CAME = "series_id in (select series_id from chunks_came)"


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

    `power` and `tokens` are the relations of samples. Facts are counted in time order, whatever order rows came in.
    """
    span = (day.start_at, day.end_at)
    query = _CHUNKS.format(power=power, tokens=tokens, of_came=OF_CAME)
    return connection.sql(query, params=[*span, *span, source, source, *span]).to_arrow_table()


_CHUNKS = """
with rows_of_day as (
    select * from {power} as power_rows
    where observed_at >= ? and observed_at < ? and {of_came}
    union all
    select * from {tokens} as token_rows
    where observed_at >= ? and observed_at < ? and {of_came}
),
timed as (
    select series_id, observed_at, max(value) as value, count(*) as samples
    from rows_of_day where value >= 0 and value < 9.2e18 group by series_id, observed_at
),
stepped as (
    select *,
        value - lag(value) over in_time as step,
        epoch_us(observed_at) - epoch_us(lag(observed_at) over in_time) as gap_us
    from timed
    window in_time as (partition by series_id order by observed_at)
),
valid as (
    select series_id, cast(sum(samples) as bigint) as samples, cast(sum(samples - 1) as bigint) as duplicates,
        min(observed_at) as first_at, min_by(value, observed_at) as first_value,
        max(observed_at) as last_at, max_by(value, observed_at) as last_value,
        count(*) filter (where step < 0) as falls, coalesce(max(gap_us), 0) / 1e6 as longest_gap_seconds,
        median(gap_us) / 1e6 as typical_interval_seconds,
        max(step / (gap_us / 1e6)) as steepest_rise_per_second
    from stepped group by series_id
),
rejected as (
    select series_id, count(*) filter (where not (value >= 0 and value < 9.2e18)) as rejects
    from rows_of_day group by series_id
)
select came.series_id, ? as source,
    least(came.chunk_start_at, held.chunk_start_at) as chunk_start_at,
    greatest(came.chunk_end_at, held.chunk_end_at) as chunk_end_at,
    coalesce(valid.samples, 0) as samples, valid.first_at, valid.first_value, valid.last_at, valid.last_value,
    coalesce(valid.falls, 0) as falls, coalesce(valid.duplicates, 0) as duplicates,
    greatest(came.out_of_order, held.out_of_order) as out_of_order,
    greatest(came.rejects, rejected.rejects) as rejects,
    valid.longest_gap_seconds, valid.typical_interval_seconds, valid.steepest_rise_per_second
from chunks_came as came
join rejected on rejected.series_id = came.series_id
left join valid on valid.series_id = came.series_id
left join raw.series_chunks as held
    on held.series_id = came.series_id and held.source = ? and held.chunk_start_at >= ? and held.chunk_start_at < ?
"""
