-- Who held the accelerators whose power no meter measures, and what they report of themselves. The ledger has no row of
-- them: its joules are metered.
with boards as (

    select * from {{ ref('int_unmetered_boards') }}

),

claims as (

    select * from {{ ref('int_claims') }} where is_unmetered

),

series as (

    select * from {{ ref('int_activity_series') }} where not is_of_pod

),

-- The first reading of each quantity, by rank. A MIG instance's values are not its board's, but they show that the
-- board exists.
chosen_series as (

    select
        boards.date,
        boards.meter,
        series.series_id,
        case when series.mig_instance is null then series.quantity else 'presence' end as quantity,
        series.factor
    from boards
    inner join series on boards.date = series.date and boards.meter = series.meter
    qualify rank() over (
        partition by boards.date, boards.meter, series.quantity, series.mig_instance
        order by series.rank, series.source, series.metric
    ) = 1

),

readings as (

    select
        chosen_series.date,
        chosen_series.meter,
        {{ int_div(epoch_us('samples.observed_at'), grid_us()) }} as interval_number,
        {{ ratio(
            exact_sum("case when chosen_series.quantity = 'activity' then least(samples.value * chosen_series.factor, 1) end"),
            "count(case when chosen_series.quantity = 'activity' then 1 end)"
        ) }} as activity_ratio,
        max(case when chosen_series.quantity = 'memory_used' then samples.value * chosen_series.factor end) as memory_used_bytes
    from {{ source('raw', 'power_samples') }} as samples
    inner join chosen_series
        on samples.series_id = chosen_series.series_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }}
        = {{ int_div(epoch_us('cast(chosen_series.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
        and {{ is_believed_gauge('chosen_series.quantity', 'samples.value * chosen_series.factor') }}
    group by chosen_series.date, chosen_series.meter, {{ int_div(epoch_us('samples.observed_at'), grid_us()) }}

),

-- A device that reported within an interval was held all of it, by whoever claims it then.
held as (

    select
        readings.*,
        claims.engine as claimed_engine,
        claims.deployment as claimed_deployment,
        claims.model,
        claims.namespace,
        claims.team,
        claims.role,
        claims.pod,
        coalesce(claims.mig_share / claims.models_of_engine, cast(1 as double) / claims.members) as share,
        least((readings.interval_number + 1) * {{ grid_us() }}, claims.slice_end_us)
        - greatest(readings.interval_number * {{ grid_us() }}, claims.slice_start_us) as held_us
    from readings
    inner join claims
        on readings.date = claims.date
        and readings.meter = claims.meter
        and readings.interval_number * {{ grid_us() }} < claims.slice_end_us
        and (readings.interval_number + 1) * {{ grid_us() }} > claims.slice_start_us

),

-- Where no engine is known that works in the claiming pod, the pod's own name is that of engine and deployment.
named as (

    select
        *,
        case when claimed_engine = {{ unknown() }} then coalesce(pod, {{ unknown() }}) else claimed_engine end as engine,
        case
            when claimed_deployment <> {{ unknown() }} then claimed_deployment
            when claimed_engine <> {{ unknown() }} then claimed_engine
            else coalesce(pod, {{ unknown() }})
        end as deployment
    from held

),

final as (

    select
        named.date,
        {{ from_epoch_us('named.interval_number * ' ~ grid_us()) }} as interval_start_at,
        cast({{ var('grid_seconds') }} as integer) as interval_seconds,
        boards.site,
        boards.rack,
        boards.node,
        boards.meter as device_uuid,
        boards.device_type,
        boards.source,
        named.engine,
        named.deployment,
        named.namespace,
        named.team,
        named.model,
        named.role,
        {{ exact_sum(exact('named.held_us / 1e6 * boards.gpu_count * named.share')) }} as gpu_seconds,
        max(named.activity_ratio) as activity_ratio,
        max(named.memory_used_bytes) as memory_used_bytes
    from named
    inner join boards on named.date = boards.date and named.meter = boards.meter
    group by
        named.date,
        named.interval_number,
        boards.site,
        boards.rack,
        boards.node,
        boards.meter,
        boards.device_type,
        boards.source,
        named.engine,
        named.deployment, named.namespace, named.team, named.model, named.role

)

select * from final
