-- The lookback of everything that is read from several dates at once: which date it ends with, and which of its dates
-- are held back.
with days as (

    select max(date) as as_of_date
    from (
        select date from {{ ref('model_daily') }}
        union all
        select date from {{ ref('unmetered_devices') }}
    ) as booked_dates

),

-- Also those after the newest date that the marts have: held back, it is not among them.
held_back as (

    select {{ joined_in_order('cast(held.date as ' ~ dbt.type_string() ~ ')') }} as held_back_dates
    from {{ ref('held_back_dates') }} as held
    cross join days
    where held.date > coalesce(days.as_of_date, date '1970-01-01') - interval {{ var('curve_lookback_days') }} day

),

final as (

    select
        days.as_of_date,
        held_back.held_back_dates,
        held_back.held_back_dates is null as is_complete
    from days
    cross join held_back

)

select * from final
