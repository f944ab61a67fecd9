-- One row per deployment and hour of its site's week: in how many weeks the hour was seen, and in how many of these
-- the deployment moved no tokens.
with intervals as (

    select * from {{ ref('int_advised_intervals') }}

),

hours as (

    select
        usage,
        slot,
        local_date,
        bool_or(is_held) as is_held,
        bool_and(is_parked) as is_quiet,
        bool_and(is_parked) and sum(seconds) >= 3600 as is_idle,
        count(*) filter (where is_held) as held_intervals,
        count(*) filter (where is_held and not is_parked) as held_busy_intervals
    from intervals
    group by usage, slot, local_date

),

-- An hour with missing intervals counts as busy if another of its intervals was busy; otherwise it is unknown, and
-- counts as not seen.
final as (

    select
        usage,
        slot,
        count(*) filter (where is_idle or not is_quiet) as weeks,
        count(*) filter (where is_idle) as idle_weeks,
        count(*) filter (where not is_held and (is_idle or not is_quiet)) as train_weeks,
        count(*) filter (where is_idle and not is_held) as train_idle_weeks,
        cast(sum(held_intervals) as bigint) as held_intervals,
        cast(sum(held_busy_intervals) as bigint) as held_busy_intervals
    from hours
    group by usage, slot

)

select * from final
