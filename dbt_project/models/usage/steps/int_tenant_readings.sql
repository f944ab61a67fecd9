-- Readings of the token counters that gateways and frontends have by tenant: those with a label that the fleet file's
-- source states under `tenant_labels` or `team_labels`, and their neighbours without one. A counter that appears on a
-- page that was read before began at zero since: its first sample counts.
{# Only int_tenant_counters reads it: DuckDB need not store it, and Spark would otherwise plan these steps as one. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}

with all_series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

glitches as (

    select * from {{ ref('int_token_glitches') }}

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

targets as (

    select * from {{ ref('int_scrape_targets') }}

),

tenant_labels as (

    select * from {{ source('fleet', 'tenant_labels') }}

),

-- Process starts as they are of any engine: by them a bad scrape is no restart.
series as (

    select all_series.*
    from all_series
    where all_series.quantity = 'process_start'
    union all
    select all_series.*
    from all_series
    inner join (select distinct source from tenant_labels) as sources on all_series.source = sources.source
    where all_series.quantity = 'tokens' and all_series.level in ('frontend', 'gateway')

),

tenant_series as (

    select distinct
        series_id,
        reading_id,
        engine,
        source,
        factor,
        cast(null as date) as copied_on
    from series
    where quantity = 'tokens'
    union
    select
        series.series_id,
        copies.reading_id,
        copies.label_engine as engine,
        series.source,
        series.factor,
        copies.date as copied_on
    from series
    inner join copies on series.series_id = copies.series_id
    where series.quantity = 'tokens'

),

{{ engine_counter_ctes('tenant_series') }},

sights as (

    select
        targets.target,
        targets.metric,
        targets.series_id,
        {{ epoch_us('raw_series.first_seen_at') }} as first_us,
        {{ epoch_us('raw_series.last_seen_at') }} as last_us
    from targets
    inner join {{ ref('stg_raw_series') }} as raw_series on targets.series_id = raw_series.series_id

),

-- Of the page on which a counter appeared: what was there before and stayed. Where all counters of its family were
-- replaced at once, labels have changed, and what the new ones show is old.
births as (

    select
        born.series_id,
        born.first_us
    from sights as born
    inner join sights as others on born.target = others.target and others.first_us < born.first_us
    inner join (select distinct series_id from tenant_series) as counted on born.series_id = counted.series_id
    group by born.series_id, born.first_us
    having max(case when others.last_us >= born.first_us then 1 else 0 end) = 1
        and max(case when others.metric = born.metric then 1 else 0 end)
        = max(case when others.metric = born.metric and others.last_us >= born.first_us then 1 else 0 end)

),

zeros as (

    select
        tenant_series.reading_id,
        max(births.first_us) as first_us,
        min(sampling_intervals.sampling_interval_seconds) as sampling_interval_seconds
    from births
    inner join tenant_series
        on births.series_id = tenant_series.series_id
        and coalesce(tenant_series.copied_on = {{ date_of_us('births.first_us') }}, true)
    inner join first_readings on tenant_series.reading_id = first_readings.reading_id and births.first_us = first_readings.first_us
    left join sampling_intervals on tenant_series.reading_id = sampling_intervals.reading_id
    group by tenant_series.reading_id

),

born_readings as (

    select
        reading_id,
        greatest(
            first_us - cast(coalesce(sampling_interval_seconds, 60) * 1e6 as bigint), {{ int_div('first_us', day_us()) }} * {{ day_us() }}
        ) as start_us
    from zeros
    where first_us > {{ int_div('first_us', day_us()) }} * {{ day_us() }}

),

final as (

    select * from started_readings
    union all
    select
        born_readings.reading_id,
        born_readings.start_us as first_us,
        cast(0 as double) as first_reading,
        born_readings.start_us as last_us,
        cast(0 as double) as last_reading,
        cast(null as double) as possible_watts,
        false as is_doubted,
        {{ most_tokens_per_second() }} as ceiling_watts
    from born_readings
    left join readings_from_zero on born_readings.reading_id = readings_from_zero.reading_id
    where readings_from_zero.reading_id is null

)

select * from final
