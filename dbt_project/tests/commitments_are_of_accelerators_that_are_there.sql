{{ config(
    severity='warn',
    meta={
        'description':
            'Of no type at a site more accelerators are committed all day long than there are, used or not, metered or not.',
        'dagster': {'ref': {'name': 'cost_drivers_hourly'}},
        'expected': 'at most as many committed GPUs as the book has of the type at the site',
        'remedy':
            'correct gpus or the dates under commitments of the fleet file; if the GPUs are there, add their meters or '
            ~ 'nodes[].gpus. Until then they are paid for and cannot be used (`__unused_commitment__`)'
    }
) }}

with booked as (

    select
        date,
        site,
        count(distinct hour_start_at) as hours,
        sum(hour_seconds) / 3600 as booked_hours
    from {{ ref('site_power_hourly') }}
    where {{ in_run('date') }}
    group by date, site

),

unused as (

    select
        date,
        site,
        device_type,
        count(distinct hour_start_at) as hours,
        {{ exact_sum(exact(ratio('capacity_cost_usd', 'rate_usd_per_gpu_hour'))) }} as unused_gpu_hours
    from {{ ref('cost_drivers_hourly') }}
    where {{ in_run('date') }} and deployment = {{ unused_commitment() }}
    group by date, site, device_type

)

select
    unused.date,
    unused.site,
    unused.device_type,
    unused.unused_gpu_hours,
    {{ ratio('unused.unused_gpu_hours', 'booked.booked_hours') }} as missing_gpus
from unused
inner join booked on unused.date = booked.date and unused.site = booked.site and unused.hours = booked.hours
