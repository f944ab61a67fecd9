-- The watts that each reading reports of each moment, for meters whose readings take turns: the sample times cut the
-- meter's time into moments. Reads int_metered_steps, none of the book's steps. One row per moment of a meter and
-- reading that steps over it.
with shared_days as (

    select * from {{ ref('int_shared_meter_days') }}

),

steps as (

    select * from {{ ref('int_metered_steps') }}

),

places as (

    select distinct meter_scope, meter, place from steps

),

cuts as (

    select meter_scope, meter, observed_us as at_us from steps
    union
    select meter_scope, meter, start_us as at_us from shared_days
    union
    select meter_scope, meter, end_us as at_us from shared_days

),

moments as (

    select
        meter_scope,
        meter,
        at_us,
        lead(at_us) over (partition by meter_scope, meter order by at_us) as to_us
    from cuts

),

-- Every reading of the meter at every moment: the sample that it saw last.
held as (

    select
        moments.meter_scope,
        moments.meter,
        moments.at_us,
        moments.to_us,
        places.place,
        max(steps.observed_us) over (
            partition by moments.meter_scope, moments.meter, places.place order by moments.at_us
        ) as held_us
    from moments
    inner join places on moments.meter_scope = places.meter_scope and moments.meter = places.meter
    left join steps
        on {{ equal_keys('places', 'steps', ['meter_scope', 'meter', 'place']) }}
        and moments.at_us = steps.observed_us
    where moments.to_us is not null

),

watts_reported as (

    select
        held.*,
        steps.until_us,
        steps.risen,
        steps.has_fallen,
        steps.possible_watts,
        steps.is_counted_leap as is_leap,
        steps.is_silence or steps.is_counted_leap as is_open,
        steps.is_counter,
        case when steps.is_counter then steps.risen / (steps.until_us - held_us) * 1e6
            else value + (until_value - value) * ((at_us - held_us) / cast(until_us - held_us as double))
        end as from_watts,
        case when steps.is_counter then steps.risen / (steps.until_us - held_us) * 1e6
            else value + (until_value - value) * ((to_us - held_us) / cast(until_us - held_us as double))
        end as to_watts
    from held
    inner join steps
        on {{ equal_keys('held', 'steps', ['meter_scope', 'meter', 'place']) }}
        and held.held_us = steps.observed_us
    where steps.until_us is not null

),

final as (

    select
        *,
        min(case when not is_open then place end) over (partition by meter_scope, meter, at_us) as best_place,
        min(case when is_open and is_counter then place end) over (partition by meter_scope, meter, at_us) as open_place
    from watts_reported

)

select * from final
