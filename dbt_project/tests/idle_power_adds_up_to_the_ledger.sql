-- Every idle joule of the book has a holder: per date, site and account, exactly. A holder may have 0 joules of an account: the idle
-- floor of a device type without reference watts is not known, and its row still has the dollars of inactive GPU-hours.
{{ config(meta={'dagster': {'ref': {'name': 'idle_power'}}}) }}

with held as (

    select
        date,
        site,
        account,
        sum(idle_joules) as held_joules
    from {{ ref('idle_power') }}
    where {{ in_run('date') }}
    group by date, site, account

),

booked as (

    {% for account in ['idle_floor', 'parked', 'asleep', 'unallocated'] -%}
    select
        date,
        site,
        '{{ account }}' as account,
        sum({{ account }}_joules) as booked_joules
    from {{ ref('energy_ledger') }}
    where {{ in_run('date') }}
    group by date, site
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

)

select
    coalesce(booked.date, held.date) as date,
    coalesce(booked.site, held.site) as site,
    coalesce(booked.account, held.account) as account,
    booked.booked_joules,
    held.held_joules
from booked
full outer join held on booked.date = held.date and booked.site = held.site and booked.account = held.account
where coalesce(booked.booked_joules, 0) <> coalesce(held.held_joules, 0)
