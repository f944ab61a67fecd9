-- Prefill + decode + unknown = productive, per date and curve, over the whole lookback. Exact; and none of them is
-- negative.
with lookback as (

    select * from {{ ref('int_lookback') }}

),

booked as (

    select
        days.date,
        {{ columns_of('days', curve_keys()) }},
        sum(days.productive_joules) as productive_joules
    from {{ ref('model_daily') }} as days
    cross join lookback
    where {{ in_lookback('days.date', 'lookback.as_of_date') }} and days.productive_joules > 0
    group by days.date, {{ columns_of('days', curve_keys()) }}

),

phases as (

    select
        date,
        {{ curve_keys() | join(', ') }},
        sum(productive_joules) as phase_joules,
        min(productive_joules) as least_joules
    from {{ ref('phase_energy') }}
    group by date, {{ curve_keys() | join(', ') }}

),

compared as (

    select
        coalesce(booked.date, phases.date) as date,
        coalesce(booked.deployment, phases.deployment) as deployment,
        coalesce(booked.model, phases.model) as model,
        booked.productive_joules,
        phases.phase_joules
    from booked
    full outer join phases on {{ equal_keys('booked', 'phases', ['date'] + curve_keys()) }}
    where booked.productive_joules is distinct from phases.phase_joules or phases.least_joules < 0

)

select
    cast(null as date) as date,
    'phase_energy' as table_name,
    {{ row_key(['date', 'deployment', 'model']) }} as row_key,
    cast(phase_joules as double) as found,
    'J of all phases' as unit,
    coalesce(cast(productive_joules as {{ dbt.type_string() }}), 'none') || ' productive, no phase negative' as expected
from compared
