-- What each MIG instance reported of itself and who held it, whether a meter measures its board or not.
with series as (

    select * from {{ ref('stg_series') }} where meter_scope = 'board' and meter is not null and mig_instance is not null

),

series_days as (

    select * from {{ ref('stg_series_days') }} where is_in_run

),

activity_series as (

    select * from {{ ref('int_activity_series') }} where mig_instance is not null and not is_of_pod

),

claims as (

    select * from {{ ref('int_claims') }} where mig_instance is not null

),

power_samples as (

    select * from {{ source('raw', 'power_samples') }}

),

instances as (

    select
        series_days.date,
        series.meter,
        series.mig_instance,
        max(series.site) as site,
        max(series.node) as node,
        max(series.meter_device_type) as device_type,
        {{ joined_in_order('series.mig_profile') }} as mig_profile
    from series
    inner join series_days on series.series_id = series_days.series_id
    group by series_days.date, series.meter, series.mig_instance

),

-- The best reading of each quantity, by rank.
chosen_series as (

    select *
    from activity_series
    qualify rank() over (partition by date, meter, mig_instance, quantity order by rank, source, metric) = 1

),

readings as (

    select
        chosen_series.date,
        chosen_series.meter,
        chosen_series.mig_instance,
        {{ ratio(
            exact_sum("case when chosen_series.quantity = 'activity' then least(samples.value * chosen_series.factor, 1) end"),
            "count(case when chosen_series.quantity = 'activity' then 1 end)"
        ) }} as activity_ratio,
        max(case when chosen_series.quantity = 'memory_used' then samples.value * chosen_series.factor end) as memory_used_bytes
    from power_samples as samples
    inner join chosen_series
        on samples.series_id = chosen_series.series_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }}
        = {{ int_div(epoch_us('cast(chosen_series.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
        and {{ is_believed_gauge('chosen_series.quantity', 'samples.value * chosen_series.factor') }}
    group by chosen_series.date, chosen_series.meter, chosen_series.mig_instance

),

-- Pods that share an instance hold one slice of the date together.
slices as (

    select
        date,
        meter,
        mig_instance,
        slice_start_us,
        min(case when engine = {{ unallocated() }} then 1 else 0 end) = 1 as is_free,
        max(held_end_us) - max(held_start_us) as held_us,
        {{ exact_sum(exact('1e6 * mig_share / models_of_engine')) }} as share
    from claims
    group by date, meter, mig_instance, slice_start_us

),

held as (

    select
        date,
        meter,
        mig_instance,
        {{ exact_sum(exact('case when is_free then 0 else held_us end / 1e6')) }} as held_seconds,
        {{ exact_sum(exact('case when is_free then held_us else 0 end / 1e6')) }} as free_seconds,
        {{ ratio(
            exact_sum(exact('cast(share as double) * held_us / 86400e6')),
            exact_sum(exact('1e6 * held_us / 86400e6'))
        ) }} as board_ratio
    from slices
    group by date, meter, mig_instance

),

holders as (

    select
        date,
        meter,
        mig_instance,
        {{ joined_in_order('coalesce(held_by, pod)') }} as held_by,
        {{ joined_in_order('case when engine <> ' ~ unallocated() ~ ' then model end') }} as models
    from claims
    group by date, meter, mig_instance

),

final as (

    select
        instances.date,
        instances.site,
        instances.node,
        instances.meter as device_uuid,
        instances.device_type,
        instances.mig_instance,
        instances.mig_profile,
        held.board_ratio,
        holders.held_by,
        holders.models,
        held.held_seconds,
        held.free_seconds,
        readings.activity_ratio,
        readings.memory_used_bytes
    from instances
    left join held on {{ equal_keys('instances', 'held', ['date', 'meter', 'mig_instance']) }}
    left join holders on {{ equal_keys('instances', 'holders', ['date', 'meter', 'mig_instance']) }}
    left join readings on {{ equal_keys('instances', 'readings', ['date', 'meter', 'mig_instance']) }}

)

select * from final
