merge into raw.unknown_families as held
using (
    select $source as source, metric, series, cast($seen_at as timestamptz) as last_seen_at from unknown_seen
) as seen
on held.source = seen.source and held.metric = seen.metric
when matched and seen.last_seen_at >= held.last_seen_at
    then update set series = seen.series, last_seen_at = seen.last_seen_at
when not matched then insert (source, metric, series, last_seen_at)
    values (seen.source, seen.metric, seen.series, seen.last_seen_at)
