{{ config(
    severity='warn',
    meta={
        'description':
            'The compute cost of the models of a date and site, and what of it is idle, is the capacity, electricity,'
            ~ ' cooling and overhead that cost_daily has for them, where every row has a price.',
        'dagster': {'ref': {'name': 'cost_daily'}},
        'expected': 'one amount in USD in both tables',
        'remedy': 'dollars were lost or charged twice: keep the warehouse and report these rows'
    }
) }}

-- Accelerators and electricity cost one amount, in the hours of the models and in the parts of the cost, per date and
-- site. Where a price is missing the hours have no amount, and the parts have what is known of it.
with hours as (

    select
        date,
        site,
        sum(compute_cost_usd) as hours_usd,
        sum(idle_compute_cost_usd) as idle_hours_usd
    from {{ ref('model_hourly') }}
    where {{ in_run('date') }}
    group by date, site
    having min(case when energy_joules is null and capacity_cost_usd is null then 1 when is_cost_complete then 1 else 0 end) = 1

),

parts as (

    select
        date,
        site,
        sum(cost_usd) as parts_usd,
        sum(idle_cost_usd) as idle_parts_usd
    from {{ ref('cost_daily') }}
    where {{ in_run('date') }}
        and basis = 'allocation'
        and part in ('capacity', 'energy', 'cooling', 'overhead')
        and deployment not in ({{ unused_commitment() }}, {{ unmetered() }})
    group by date, site
    having min(case when is_cost_complete then 1 else 0 end) = 1

)

select
    hours.date,
    hours.site,
    hours.hours_usd,
    parts.parts_usd,
    hours.hours_usd - parts.parts_usd as difference_usd,
    hours.idle_hours_usd,
    parts.idle_parts_usd
from hours
inner join parts on hours.date = parts.date and hours.site = parts.site
where hours.hours_usd is distinct from parts.parts_usd
    or hours.idle_hours_usd is distinct from parts.idle_parts_usd
