-- Of a server, the dates that stay due (raw.unfilled_dates); of other sources, and of dates that a run books anew, those
-- of the run.
with spoken as (
    select source, cast(chunk_start_at as date) as date, max(last_at) as last_at
    from raw.series_chunks where chunk_start_at >= (select min(date) from run_days) group by all
)
select sources.source, run_days.date, spoken.last_at as last_sample_at
from fleet.sources as sources
cross join run_days
left join spoken using (source, date)
where last_at is null
    or last_at < cast(date + 1 as timestamptz) - to_seconds(greatest(3 * coalesce(interval_seconds, 0), 600))
union
select source, date, last_sample_at
from raw.unfilled_dates
where given_up_at is null and source in (select source from fleet.sources)
order by all
