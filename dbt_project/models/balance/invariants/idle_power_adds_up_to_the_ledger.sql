-- Every idle joule of the book has a holder: per date, site and account, exactly. A holder may have 0 joules of an
-- account: the idle floor of a device type without reference watts is not known, and its row still has the dollars of
-- inactive GPU-hours.
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

),

compared as (

    select
        coalesce(booked.date, held.date) as date,
        coalesce(booked.site, held.site) as site,
        coalesce(booked.account, held.account) as account,
        coalesce(booked.booked_joules, 0) as booked_joules,
        coalesce(held.held_joules, 0) as held_joules
    from booked
    full outer join held on {{ equal_keys('booked', 'held', ['date', 'site', 'account']) }}

)

select
    date,
    'idle_power' as table_name,
    {{ row_key(['site', 'account']) }} as row_key,
    cast(held_joules as double) as found,
    'J held' as unit,
    cast(booked_joules as {{ dbt.type_string() }}) || ' booked' as expected
from compared
where booked_joules <> held_joules
