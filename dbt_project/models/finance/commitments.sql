-- How far each month used the accelerators that are paid for whether they are used or not.
with hours as (

    select distinct site, hour_start_at, local_date, billing_month, hour_seconds from {{ ref('site_power_hourly') }}

),

commitments as (

    select * from {{ source('fleet', 'commitments') }}

),

drivers as (

    select * from {{ ref('cost_drivers_hourly') }}

),

committed as (

    select
        hours.billing_month as month,
        hours.site,
        commitments.device_type,
        {{ exact_sum(exact('commitments.gpus * hours.hour_seconds / 3600')) }} as committed_gpu_hours,
        {{ money_sum(money('commitments.gpus * hours.hour_seconds / 3600 * commitments.usd_per_gpu_hour')) }} as committed_cost_usd
    from hours
    inner join commitments
        on hours.site = commitments.site
        and hours.local_date >= commitments.valid_from
        and (commitments.valid_to is null or hours.local_date < commitments.valid_to)
    group by hours.billing_month, hours.site, commitments.device_type

),

-- A row of an unused commitment has its cost at the rate that was committed to.
paid as (

    select
        billing_month as month,
        site,
        device_type,
        {{ exact_sum('case when deployment <> ' ~ unused_commitment() ~ ' then claimed_gpu_seconds end') }} as claimed_gpu_seconds,
        {{ money_sum('case when deployment = ' ~ unused_commitment() ~ ' then capacity_cost_usd end') }} as unused_cost_usd,
        {{ exact_sum(exact(
            'case when deployment = ' ~ unused_commitment() ~ ' then ' ~ ratio('capacity_cost_usd', 'rate_usd_per_gpu_hour') ~ ' end'
        )) }} as unused_gpu_hours
    from drivers
    group by billing_month, site, device_type

),

joined as (

    select
        committed.*,
        coalesce(paid.unused_gpu_hours, 0) as unused_gpu_hours,
        coalesce(paid.unused_cost_usd, 0) as unused_cost_usd,
        coalesce(paid.claimed_gpu_seconds, 0) as claimed_gpu_seconds
    from committed
    left join paid
        on committed.month = paid.month and committed.site = paid.site and committed.device_type = paid.device_type

),

final as (

    select
        month,
        {{ plain_name('site', 'site') }} as site,
        device_type,
        committed_gpu_hours,
        cast(committed_gpu_hours - unused_gpu_hours as {{ exact_type() }}) as used_gpu_hours,
        cast(unused_gpu_hours as {{ exact_type() }}) as unused_gpu_hours,
        committed_cost_usd,
        cast(unused_cost_usd as {{ money_type() }}) as unused_cost_usd,
        {{ ratio('committed_gpu_hours - unused_gpu_hours', 'committed_gpu_hours') }} as utilisation_ratio,
        {{ ratio('(committed_gpu_hours - unused_gpu_hours) * 3600', 'claimed_gpu_seconds') }} as coverage_ratio
    from joined

)

select * from final
