-- Over everything that is landed, not the run's days alone: one moment that both have is enough to trust the clocks.
with spans as (
    select catalog.quantity = 'tokens' as is_tokens, series.source,
        min(chunks.first_at) as first_at, max(chunks.last_at) as last_at
    from raw.series_chunks as chunks
    join raw.series as series on series.series_id = chunks.series_id
    join (
        select distinct metric, quantity from reference.metric_catalog where quantity in ('energy', 'power', 'tokens')
    ) as catalog on catalog.metric = series.metric
    group by all
    union all
    select true as is_tokens, source, min(started_at) as first_at, max(coalesce(ended_at, started_at)) as last_at
    from raw.requests
    where output_tokens > 0
    group by all
),

pairs as (
    select power.source as power_source, power.first_at as power_first_at, power.last_at as power_last_at,
        tokens.source as tokens_source, tokens.first_at as tokens_first_at, tokens.last_at as tokens_last_at
    from spans as power
    join spans as tokens on not power.is_tokens and tokens.is_tokens
)

select *, round(abs(epoch(tokens_first_at) - epoch(power_first_at)) / 3600, 2) as hours_apart
from pairs
where not exists (
    from pairs as others
    where others.power_first_at <= others.tokens_last_at and others.tokens_first_at <= others.power_last_at
)
order by all
