-- What is in doubt of a place, a deployment or a log of requests, and needs its models' hours to be known. It marks no
-- hour: CO2 has its basis in each row (is_carbon_complete, hourly_carbon_ratio), goodput is in a table of its own, what a
-- commitment costs that is not used is a row of its own, and of tokens of a log tenant_usage_daily has who asked for them.
-- One row per date, reason and entity.
with dates as (

    select * from {{ ref('stg_run_dates') }}

),

site_hours as (

    select
        date,
        site,
        hour_start_at,
        {{ exact_sum('facility_energy_kwh') }} as facility_energy_kwh
    from {{ ref('model_hourly') }}
    where {{ in_run('date') }}
    group by date, site, hour_start_at

),

grid_hours as (

    select * from {{ ref('site_carbon_hourly') }} where {{ in_run('date') }}

),

hourly_zones as (

    select distinct zone from {{ source('raw', 'grid_intensity') }} where direct_gco2e_per_kwh is not null

),

goodput as (

    select * from {{ ref('goodput_hourly') }} where {{ in_run('date') }}

),

booked_hours as (

    select
        date,
        site,
        count(distinct hour_start_at) as hours,
        sum(hour_seconds) / 3600 as booked_hours
    from {{ ref('site_power_hourly') }}
    where {{ in_run('date') }}
    group by date, site

),

unused_commitments as (

    select
        date,
        site,
        device_type,
        count(distinct hour_start_at) as hours,
        {{ exact_sum(exact(ratio('capacity_cost_usd', 'rate_usd_per_gpu_hour'))) }} as gpu_hours,
        {{ money_sum('capacity_cost_usd') }} as cost_usd
    from {{ ref('cost_drivers_hourly') }}
    where {{ in_run('date') }} and deployment = {{ unused_commitment() }}
    group by date, site, device_type

),

contradicted_logs as (

    select
        date,
        source,
        count(case when contradicted_tokens > 0 then 1 end) as contradicted_requests,
        count(*) as requests,
        {{ exact_sum('contradicted_tokens') }} as contradicted_tokens
    from {{ ref('int_requests') }}
    group by date, source
    having sum(contradicted_tokens) > 0
        and sum(contradicted_tokens) >= {{ doubt_threshold() }} * sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0))

),

factors as (

    select
        grid_hours.date,
        case when grid_hours.location_gco2e_per_kwh is null then 'no_grid_factor' else 'yearly_grid_factor' end as reason,
        grid_hours.site,
        grid_hours.zone,
        {{ epoch_us('grid_hours.hour_start_at') }} as start_us,
        site_hours.facility_energy_kwh
    from grid_hours
    inner join site_hours on {{ equal_keys('grid_hours', 'site_hours', ['date', 'site', 'hour_start_at']) }}
    left join hourly_zones on grid_hours.zone = hourly_zones.zone
    where site_hours.facility_energy_kwh > 0
        and (
            grid_hours.location_gco2e_per_kwh is null
            or (hourly_zones.zone is not null and grid_hours.carbon_basis not in ('hourly', 'hourly_estimated'))
        )

),

impossible_goodput as (

    select
        date,
        deployment,
        {{ epoch_us('hour_start_at') }} as start_us
    from goodput
    where not (
        coalesce(0 <= good_requests_low and good_requests_low <= good_requests_high and good_requests_high <= requests, true)
        and coalesce(0 <= good_output_tokens_low and good_output_tokens_low <= good_output_tokens_high, true)
        and coalesce(good_output_tokens_high <= coalesce(logged_output_tokens, output_tokens), true)
        and coalesce(0 <= gpu_utilization_ratio and gpu_utilization_ratio <= 1, true)
    )

),

-- All day long: an hour of more accelerators than are committed shows that they are there.
missing_gpus as (

    select
        unused.date,
        unused.site,
        unused.cost_usd,
        {{ rounded_text(ratio('unused.gpu_hours', 'booked_hours.booked_hours'), 1) }} || ' ' || unused.device_type as evidence
    from unused_commitments as unused
    inner join booked_hours
        on unused.date = booked_hours.date and unused.site = booked_hours.site and unused.hours = booked_hours.hours

),

final as (

    select
        date,
        reason,
        'site' as entity_kind,
        site as entity,
        min(start_us) as from_us,
        max(start_us) + {{ hour_us() }} as to_us,
        cast(null as {{ exact_type() }}) as doubted_tokens,
        cast(null as {{ money_type() }}) as doubted_usd,
        min(zone) || ': ' || {{ rounded_text('count(*)') }} || ' hours, ' || {{ rounded_text('sum(facility_energy_kwh)', 3) }} || ' kWh'
            as evidence
    from factors
    group by date, reason, site
    union all
    select
        date,
        'impossible_goodput' as reason,
        'deployment' as entity_kind,
        deployment as entity,
        min(start_us) as from_us,
        max(start_us) + {{ hour_us() }} as to_us,
        cast(null as {{ exact_type() }}) as doubted_tokens,
        cast(null as {{ money_type() }}) as doubted_usd,
        {{ rounded_text('count(*)') }} || ' hours and models' as evidence
    from impossible_goodput
    group by date, deployment
    union all
    select
        missing_gpus.date,
        'missing_gpus' as reason,
        'site' as entity_kind,
        missing_gpus.site as entity,
        min(dates.start_us) as from_us,
        max(dates.end_us) as to_us,
        cast(null as {{ exact_type() }}) as doubted_tokens,
        {{ money_sum('missing_gpus.cost_usd') }} as doubted_usd,
        {{ joined_in_order('missing_gpus.evidence') }} as evidence
    from missing_gpus
    inner join dates on missing_gpus.date = dates.date
    group by missing_gpus.date, missing_gpus.site
    union all
    select
        contradicted_logs.date,
        'contradicted_totals' as reason,
        'source' as entity_kind,
        contradicted_logs.source as entity,
        dates.start_us as from_us,
        dates.end_us as to_us,
        contradicted_logs.contradicted_tokens as doubted_tokens,
        cast(null as {{ money_type() }}) as doubted_usd,
        {{ rounded_text('contradicted_logs.contradicted_requests') }} || ' of '
            || {{ rounded_text('contradicted_logs.requests') }} || ' requests' as evidence
    from contradicted_logs
    inner join dates on contradicted_logs.date = dates.date

)

select * from final
