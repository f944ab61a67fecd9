-- What each meter measured on each date according to raw: the other side of the balance. Reads raw, the catalogues and
-- int_metered_readings alone, none of the book's steps but what is refuted. Days of a counter without trouble are telescoped from the chunk
-- facts; others are added up sample by sample (int_metered_troubled_days). One row per date and meter that ought to be
-- booked.
with readings as (

    select * from {{ ref('int_metered_readings') }}

),

handovers as (

    select * from {{ ref('int_metered_handovers') }}

),

troubled_days as (

    select * from {{ ref('int_metered_troubled_days') }}

),

cross_checks as (

    select * from {{ ref('int_metered_cross_checks') }}

),

chosen as (

    select * from readings where preference = 1

),

-- The counter's difference, and of the steps over midnight the part within the date.
calm as (

    select
        date,
        meter_scope,
        meter,
        {{ exact(
            'coalesce(last_value - first_value, 0)'
            ~ ' + coalesce((first_value - previous_value)'
            ~ ' * ((first_us - greatest(start_us, previous_us)) / cast(first_us - previous_us as double)), 0)'
            ~ ' + coalesce((next_value - last_value)'
            ~ ' * ((least(end_us, next_us) - last_us) / cast(next_us - last_us as double)), 0)'
            ~ ' + case when first_us is null then (next_value - previous_value)'
            ~ ' * ((end_us - start_us) / cast(next_us - previous_us as double)) else 0 end'
        ) }} as metered_joules
    from chosen
    where not is_shared
        and {{ is_calm_reading() }}

),

totals as (

    select date, meter_scope, meter, metered_joules from calm
    union all
    select date, meter_scope, meter, metered_joules from troubled_days
    union all
    -- Where all samples are above the limit, the seconds are unknown: 0 J, as elsewhere. Where they are refuted, so is 0.
    select
        chosen.date,
        chosen.meter_scope,
        chosen.meter,
        coalesce(
            handovers.metered_joules,
            case when not chosen.is_node_shared and not coalesce(chosen.is_refuted, false) then {{ exact('0') }} end
        ) as metered_joules
    from chosen
    left join handovers on {{ equal_keys('chosen', 'handovers', ['date', 'meter_scope', 'meter']) }}
    where chosen.is_shared

),

final as (

    select
        chosen.date,
        chosen.site,
        chosen.meter,
        chosen.meter_scope,
        chosen.source,
        chosen.metric,
        totals.metered_joules,
        cross_checks.source as cross_check_source,
        {{ exact('cross_checks.cross_check_joules') }} as cross_check_joules
    from chosen
    left join totals on {{ equal_keys('chosen', 'totals', ['date', 'meter_scope', 'meter']) }}
    left join cross_checks on {{ equal_keys('chosen', 'cross_checks', ['date', 'meter_scope', 'meter']) }}
    -- A node's meter is booked only for the seconds in which its boards are silent, if there are any.
    where not (chosen.meter_scope = 'node' and chosen.is_node_shared and totals.metered_joules is null)

)

select * from final
