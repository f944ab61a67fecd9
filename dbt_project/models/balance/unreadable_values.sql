-- Labels and samples that are not what they should be, and what the book made of them; the grammar is in
-- macros/outside_values.sql. What they were before they were read is in raw alone.
with raw_series as (

    select * from {{ source('raw', 'series') }}

),

label_catalog as (

    select * from {{ ref('label_catalog') }} where attribute in ('tensor_rank', 'pipeline_rank', 'mig_profile', 'bucket_le')

),

series as (

    select
        series_id,
        max(quantity) as quantity,
        max(meter_scope) as meter_scope,
        max(factor) as factor
    from {{ ref('stg_series') }}
    group by series_id

),

known_metrics as (

    select distinct source_kind, metric from {{ ref('stg_metric_catalog') }}

),

refused_token_steps as (

    select * from {{ ref('int_refused_token_steps') }}

),

chunks as (

    select
        *,
        cast(chunk_start_at as date) as date
    from {{ source('raw', 'series_chunks') }}
    where chunk_start_at >= {{ run_start_at() }} and chunk_start_at < {{ run_end_at() }}

),

named_labels as (

    select
        raw_series.series_id,
        label_catalog.attribute,
        label_catalog.rank,
        label_catalog.label,
        {{ label_value('raw_series.labels', 'label_catalog.label') }} as value
    from raw_series
    inner join known_metrics on raw_series.source_kind = known_metrics.source_kind and raw_series.metric = known_metrics.metric
    inner join label_catalog on raw_series.source_kind = label_catalog.source_kind

),

preferred_labels as (

    select *
    from named_labels
    where value <> ''
    qualify row_number() over (partition by series_id, attribute order by rank, label) = 1

),

odd_labels as (

    select
        preferred_labels.series_id,
        preferred_labels.label,
        substr(preferred_labels.value, 1, 120) as value,
        case preferred_labels.attribute
            when 'mig_profile' then 'a MIG profile such as 3g.40gb or 1c.3g.40gb'
            when 'bucket_le' then 'a number or +Inf'
            else 'a whole number'
        end as expected,
        case
            when preferred_labels.attribute in ('mig_profile', 'bucket_le') then 'unknown'
            when {{ rank_of('preferred_labels.value') }} is not null then 'converted'
            when series.series_id is null then 'redundant'
            else 'unknown'
        end as outcome
    from preferred_labels
    left join series on preferred_labels.series_id = series.series_id
    where case preferred_labels.attribute
        when 'mig_profile' then {{ mig_slices('preferred_labels.value') }} is null
        when 'bucket_le' then {{ bucket_bound('preferred_labels.value') }} is null
        else not {{ is_rank('preferred_labels.value') }}
    end

),

label_rows as (

    select
        chunks.date,
        odd_labels.series_id,
        odd_labels.label,
        odd_labels.value,
        odd_labels.expected,
        odd_labels.outcome,
        sum(chunks.samples) as samples,
        min(chunks.first_at) as first_seen_at,
        max(chunks.last_at) as last_seen_at
    from odd_labels
    inner join chunks on odd_labels.series_id = chunks.series_id and chunks.samples > 0
    group by 1, 2, 3, 4, 5, 6

),

-- A date on which a process start changed, or was odd at either end, is read sample by sample.
start_days as (

    select distinct
        chunks.series_id,
        chunks.date
    from chunks
    inner join series on chunks.series_id = series.series_id
    where series.quantity = 'process_start'
        and chunks.samples > 0
        and (
            chunks.falls > 0
            or chunks.first_value <> chunks.last_value
            or chunks.first_value >= 1e11
            or not {{ is_moment('chunks.first_value', epoch_us('chunks.first_at')) }}
        )

),

start_samples as (

    select
        start_days.date,
        samples.series_id,
        samples.observed_at,
        samples.value,
        {{ moment_of('samples.value', epoch_us('samples.observed_at')) }} as start_seconds
    from {{ source('raw', 'token_samples') }} as samples
    inner join start_days on samples.series_id = start_days.series_id and cast(samples.observed_at as date) = start_days.date
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}

),

odd_samples as (

    select
        date,
        series_id,
        observed_at,
        value,
        'Unix seconds from 2000 to a day after the sample' as expected,
        case when start_seconds is null then 'unknown' else 'converted' end as outcome
    from start_samples
    where start_seconds is null or start_seconds <> value
    union all
    select
        date,
        series_id,
        {{ from_epoch_us('observed_us') }} as observed_at,
        value,
        'at most {{ var("most_tokens_per_second") }} tokens a second (limits.tokens_per_second)' as expected,
        'refused' as outcome
    from refused_token_steps

),

sample_rows as (

    select
        date,
        series_id,
        cast(null as {{ dbt.type_string() }}) as label,
        min_by({{ whole_text('value') }}, observed_at) as value,
        expected,
        outcome,
        count(*) as samples,
        min(observed_at) as first_seen_at,
        max(observed_at) as last_seen_at
    from odd_samples
    group by date, series_id, expected, outcome

),

chunk_rows as (

    select
        chunks.date,
        chunks.series_id,
        cast(null as {{ dbt.type_string() }}) as label,
        min_by({{ whole_text('chunks.last_value') }}, chunks.last_at) as value,
        'at most what any ' || max(series.meter_scope) || ' draws' as expected,
        'unknown' as outcome,
        sum(chunks.samples) as samples,
        min(chunks.first_at) as first_seen_at,
        max(chunks.last_at) as last_seen_at
    from chunks
    inner join series on chunks.series_id = series.series_id
    where series.quantity = 'power_limit'
        and chunks.samples > 0
        and greatest(chunks.first_value, chunks.last_value) * series.factor > {{ ceiling_watts('series.meter_scope') }}
    group by chunks.date, chunks.series_id
    union all
    select
        date,
        series_id,
        cast(null as {{ dbt.type_string() }}) as label,
        cast(null as {{ dbt.type_string() }}) as value,
        'a number from 0 to 9.2e18, at a time from 2000 to 2099' as expected,
        'refused' as outcome,
        sum(rejects) as samples,
        cast(null as {{ timestamp_type() }}) as first_seen_at,
        cast(null as {{ timestamp_type() }}) as last_seen_at
    from chunks
    where rejects > 0
    group by date, series_id

),

final as (

    select
        found.date,
        found.series_id,
        raw_series.source,
        raw_series.metric,
        found.label,
        found.value,
        found.expected,
        found.outcome,
        cast(found.samples as bigint) as samples,
        found.first_seen_at,
        found.last_seen_at
    from (select * from label_rows union all select * from sample_rows union all select * from chunk_rows) as found
    inner join raw_series on found.series_id = raw_series.series_id

)

select * from final
