"""Merging into a day that is already held: the rows of a source that gives its day piece by piece.

A spool's files arrive when they arrive, and arrive again after a crash between commit and removal. Keep out the first
landing of a day and everything about windows: that is `landing`.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from collectors.samples import Window
from pipelines import booking

SAMPLES = ("raw.power_samples", "raw.token_samples")


def merge(connection: duckdb.DuckDBPyConnection, source: str, day: Window, came: pa.Table) -> pa.Table:
    """Leave one row per (series, time) of the series in `came`, whose new rows already lie in the sample tables.

    Among rows of one time the larger valid value stands. `came` holds their rows for raw.series_chunks, over the new
    rows alone; returned are such rows over the whole day, counted again from the samples.
    """
    if not came.num_rows:
        return came
    span = (day.start_at, day.end_at)
    with booking.registered(connection, chunks_came=came):
        for table in SAMPLES:
            connection.execute(
                f"""
                create or replace temp table merged as
                select series_id, observed_at,
                    arg_max(value, case when value >= 0 and value < 9.2e18 then value else -1 end) as value
                from {table}
                where observed_at >= ? and observed_at < ? and series_id in (select series_id from chunks_came)
                group by series_id, observed_at
                """,
                span,
            ).fetchall()
            connection.execute(
                f"""
                delete from {table}
                where observed_at >= ? and observed_at < ? and series_id in (select series_id from chunks_came)
                """,
                span,
            ).fetchall()
            connection.execute(f"insert into {table} select * from merged order by observed_at").fetchall()
        connection.execute("drop table merged")
        return connection.sql(_CHUNKS, params=[*span, *span, source, source, *span]).to_arrow_table()


_CHUNKS = """
with rows_of_day as (
    select * from raw.power_samples
    where observed_at >= ? and observed_at < ? and series_id in (select series_id from chunks_came)
    union all
    select * from raw.token_samples
    where observed_at >= ? and observed_at < ? and series_id in (select series_id from chunks_came)
),
stepped as (
    select *,
        value - lag(value) over in_time as step,
        epoch_us(observed_at) - epoch_us(lag(observed_at) over in_time) as gap_us
    from rows_of_day where value >= 0 and value < 9.2e18
    window in_time as (partition by series_id order by observed_at)
),
valid as (
    select series_id, count(*) as samples, min(observed_at) as first_at, min_by(value, observed_at) as first_value,
        max(observed_at) as last_at, max_by(value, observed_at) as last_value,
        count(*) filter (where step < 0) as falls, coalesce(max(gap_us), 0) / 1e6 as longest_gap_seconds,
        median(gap_us) / 1e6 as typical_interval_seconds
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
    coalesce(valid.falls, 0) as falls, cast(0 as bigint) as duplicates,
    greatest(came.out_of_order, held.out_of_order) as out_of_order, rejected.rejects,
    valid.longest_gap_seconds, valid.typical_interval_seconds
from chunks_came as came
join rejected on rejected.series_id = came.series_id
left join valid on valid.series_id = came.series_id
left join raw.series_chunks as held
    on held.series_id = came.series_id and held.source = ? and held.chunk_start_at >= ? and held.chunk_start_at < ?
"""
