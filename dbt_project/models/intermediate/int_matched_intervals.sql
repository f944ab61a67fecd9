-- Engine intervals with both tokens and power: power over (nearly) all the time for which tokens are known. Ratios use these intervals alone.
with attributed as (

    select * from {{ ref('int_attributed_energy') }}

),

engine_intervals as (

    select * from {{ ref('int_engine_intervals') }}

),

powered as (

    select
        date,
        engine,
        interval_number,
        min(slice_covered_seconds) as least_covered_seconds
    from attributed
    where state in ('active', 'parked', 'asleep') and has_token_telemetry
    group by date, engine, interval_number

),

final as (

    select
        powered.date,
        powered.engine,
        powered.interval_number
    from powered
    left join engine_intervals
        on powered.engine = engine_intervals.engine and powered.interval_number = engine_intervals.interval_number
    where powered.least_covered_seconds * 1000000 >= 0.9 * coalesce(engine_intervals.covered_us, 0)
        -- A complete source that reports nothing in an interval moved no tokens; one that reports requests alone may have moved some.
        and coalesce(engine_intervals.is_countable, true)

)

select * from final
