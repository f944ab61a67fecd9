-- A row per source of the fleet: its newest sample of the date, and until when all its series have been read. A series
-- that was not seen for three of its usual intervals has ended, and is not waited for. NULL: no sample of the date.
with chunks as (
    select
        chunks.source,
        chunks.last_at,
        chunks.samples,
        coalesce(chunks.typical_interval_seconds, sources.interval_seconds, 0) as interval_seconds
    from raw.series_chunks as chunks
    inner join fleet.sources as sources on chunks.source = sources.source
    where chunks.chunk_start_at >= $start_at and chunks.chunk_start_at < $start_at + interval 1 day
        and chunks.last_at is not null
),

newest as (
    select source, max(last_at) as newest_at, sum(samples) as samples, max(interval_seconds) as interval_seconds
    from chunks
    group by source
),

closed as (
    select chunks.source, min(chunks.last_at) as closed_at
    from chunks
    inner join newest on chunks.source = newest.source
    where chunks.last_at >= newest.newest_at - to_seconds(greatest(3 * chunks.interval_seconds, 15))
    group by chunks.source
)

select
    sources.source,
    newest.newest_at,
    closed.closed_at,
    coalesce(newest.samples, 0)::bigint as samples,
    -- For so long the others wait for it.
    coalesce(
        newest.newest_at < $asked_until - to_seconds(greatest(3 * newest.interval_seconds, $silent_seconds)), true
    ) as is_silent
from fleet.sources as sources
left join newest on sources.source = newest.source
left join closed on sources.source = closed.source
order by sources.source
