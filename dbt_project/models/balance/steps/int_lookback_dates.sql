-- The booked dates of the lookback that are evidence: one row per date, without those that are held back. A held-back
-- date counts as one without telemetry.

with lookback as (

    select * from {{ ref('int_lookback') }}

),

held_back as (

    select distinct date as held_back_date from {{ ref('held_back_dates') }}

),

booked as (

    select date from {{ ref('model_daily') }}
    union
    select date from {{ ref('unmetered_devices') }}

),

final as (

    select booked.date
    from booked
    cross join lookback
    left join held_back on booked.date = held_back.held_back_date
    where {{ in_lookback('booked.date', 'lookback.as_of_date') }} and held_back.held_back_date is null

)

select * from final
