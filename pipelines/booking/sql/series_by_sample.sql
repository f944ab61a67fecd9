-- The series with a valid sample of the value $sample in the days read, in its own unit or the catalogue's; and those of
-- the same metric with one of the same size, a tenth to ten times it, that the type cannot hold either ($limit or more).
with named as (
    select series.series_id, series.source_kind, series.metric, coalesce(max(catalog.factor), 1) as factor
    from raw.series as series
    left join reference.metric_catalog as catalog
        -- The name may have a prefix.
        on series.source_kind = catalog.source_kind and ends_with(series.metric, catalog.metric)
    group by series.series_id, series.source_kind, series.metric
),
samples as (
    select series_id, value from raw.power_samples where observed_at >= $start and observed_at < $end
    union all
    select series_id, value from raw.token_samples where observed_at >= $start and observed_at < $end
    union all
    select series_id, first_value from raw.series_chunks
    union all
    select series_id, last_value from raw.series_chunks
),
-- The models read no other samples (is_valid_sample of the dbt project).
valid as (
    select series_id, value from samples where value >= 0 and value < 9.2e18
),
hits as (
    select distinct named.source_kind, named.metric
    from valid
    join named on valid.series_id = named.series_id
    where abs(valid.value - $sample) <= 1e-9 * abs($sample) or abs(valid.value * named.factor - $sample) <= 1e-9 * abs($sample)
)
select valid.series_id, cast(max(valid.value) as varchar)
from valid
join named on valid.series_id = named.series_id
join hits on named.source_kind = hits.source_kind and named.metric = hits.metric
where greatest(valid.value, valid.value * named.factor) >= greatest($limit, abs($sample) / 10) * (1 - 1e-9)
    and least(valid.value, valid.value * named.factor) <= 10 * abs($sample)
group by valid.series_id
