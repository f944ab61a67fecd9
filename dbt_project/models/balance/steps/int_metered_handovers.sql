-- What a meter measured, according to raw, on a date on which several of its readings, or the node's meter and its
-- boards, take turns. Each moment has the joules of the best reading that steps over it; then the counter's difference
-- fixes the sum of its gap. Reads int_metered_moments, none of the book's steps. One row per date and meter.
with shared_days as (

    select * from {{ ref('int_shared_meter_days') }}

),

ranked as (

    select * from {{ ref('int_metered_moments') }}

),

-- One row per moment: the reading that measures it, and the reading whose gap contains it.
resolved as (

    select
        meter_scope,
        meter,
        at_us,
        min(to_us) as to_us,
        min(best_place) as best_place,
        case when min(open_place) < coalesce(min(best_place), 1000000) then min(open_place) end as open_place,
        max(case when place = best_place then from_watts end) as from_watts,
        max(case when place = best_place then to_watts end) as to_watts
    from ranked
    group by meter_scope, meter, at_us

),

valued as (

    select
        *,
        {{ exact('(from_watts + to_watts) / 2 * (to_us - at_us) / 1e6') }} as joules
    from resolved

),

gaps as (

    select
        ranked.meter_scope,
        ranked.meter,
        ranked.place,
        ranked.held_us,
        max(ranked.until_us) - ranked.held_us as gap_us,
        max(ranked.risen) as risen,
        max(ranked.possible_watts) as possible_watts,
        max(case when ranked.has_fallen then 1 else 0 end) = 1 as has_fallen,
        max(case when ranked.is_leap then 1 else 0 end) = 1 as is_leap,
        cast(sum(case when valued.open_place is null then valued.joules end) as double) as better_joules,
        sum(case when valued.open_place < ranked.place then valued.to_us - valued.at_us end) as elsewhere_us,
        cast(sum(case when valued.open_place = ranked.place then valued.joules end) as double) as measured_joules,
        sum(
            case
                when valued.open_place = ranked.place and valued.best_place is not null then valued.to_us - valued.at_us
            end
        ) as measured_us,
        sum(case when valued.open_place = ranked.place and valued.best_place is null then valued.to_us - valued.at_us end) as unmeasured_us
    from ranked
    inner join valued on {{ equal_keys('ranked', 'valued', ['meter_scope', 'meter', 'at_us']) }}
    where ranked.is_open and ranked.is_counter
    group by ranked.meter_scope, ranked.meter, ranked.place, ranked.held_us

),

due as (

    select
        *,
        greatest(
            risen - coalesce(better_joules, 0) - risen * (coalesce(elsewhere_us, 0) / cast(gap_us as double)), 0
        ) as due_joules,
        gap_us > {{ var('max_spread_seconds') | int * 1000000 }} as is_too_long
    from gaps

),

-- Sums over the moments of a gap: those that a gauge measures (`measured_total`) and the others (`unmeasured_joules`).
completed as (

    select
        *,
        case
            when is_leap or (has_fallen and measured_us is not null) then null
            when measured_us is null then due_joules
            when unmeasured_us is null then 0
            when is_too_long then greatest(due_joules - measured_joules, 0)
            when measured_joules = 0 then due_joules
            when possible_watts is null then greatest(due_joules - measured_joules, 0)
            else least(greatest(due_joules - measured_joules, 0), possible_watts * unmeasured_us / 1e6)
        end as unmeasured_joules
    from due

),

settled as (

    select
        *,
        case
            when is_leap or has_fallen or is_too_long then measured_joules
            else due_joules - coalesce(unmeasured_joules, 0)
        end as measured_total
    from completed

),

totalled as (

    select
        valued.meter_scope,
        valued.meter,
        valued.at_us,
        valued.to_us,
        case
            when settled.place is null then 1
            when settled.measured_joules > 0 then settled.measured_total / settled.measured_joules
            else 1
        end as scale,
        -- Watts that come from a gap's total alone.
        case
            when valued.open_place is null then 0
            when valued.best_place is null then settled.unmeasured_joules / settled.unmeasured_us * 1e6
            when settled.measured_joules = 0 and settled.measured_total > 0 then settled.measured_total / settled.measured_us * 1e6
            else 0
        end as flat_watts,
        valued.best_place,
        valued.from_watts,
        valued.to_watts,
        valued.best_place is not null
        or (
            settled.unmeasured_joules is not null
            and not (settled.is_too_long and settled.measured_us is not null and settled.unmeasured_joules = 0)
        ) as is_known
    from valued
    left join settled
        on valued.meter_scope = settled.meter_scope
        and valued.meter = settled.meter
        and valued.open_place = settled.place
        and valued.at_us >= settled.held_us
        and valued.at_us < settled.held_us + settled.gap_us

),

dated as (

    select
        shared_days.date,
        shared_days.node,
        shared_days.is_node_shared,
        shared_days.node_cap_us,
        totalled.*,
        coalesce(totalled.from_watts * totalled.scale, 0) + coalesce(totalled.flat_watts, 0) as start_watts,
        coalesce(totalled.to_watts * totalled.scale, 0) + coalesce(totalled.flat_watts, 0) as end_watts
    from totalled
    inner join shared_days
        on totalled.meter_scope = shared_days.meter_scope
        and totalled.meter = shared_days.meter
        and totalled.at_us >= shared_days.start_us
        and totalled.at_us < shared_days.end_us
    where totalled.is_known

),

-- Where a node has a meter of its own: the time between the moments that its boards know, if it is longer than a gap.
board_moments as (

    select date, node, node_cap_us, at_us, to_us from dated where is_node_shared and meter_scope <> 'node'
    union all
    select date, node, node_cap_us, start_us as at_us, start_us as to_us from shared_days where is_node_shared and meter_scope = 'node'
    union all
    select date, node, node_cap_us, end_us as at_us, end_us as to_us from shared_days where is_node_shared and meter_scope = 'node'

),

silences as (

    select
        date,
        node,
        node_cap_us,
        max(to_us) over (partition by date, node order by at_us, to_us rows between unbounded preceding and 1 preceding) as from_us,
        at_us as to_us
    from board_moments

),

metered as (

    select
        date,
        meter_scope,
        meter,
        (start_watts + end_watts) / 2 * (to_us - at_us) / 1e6 as joules
    from dated
    where not (is_node_shared and meter_scope = 'node')
    union all
    select
        dated.date,
        dated.meter_scope,
        dated.meter,
        (
            dated.start_watts + (dated.end_watts - dated.start_watts)
            * ((greatest(dated.at_us, silences.from_us) + least(dated.to_us, silences.to_us)) / 2.0 - dated.at_us)
                / (dated.to_us - dated.at_us)
        ) * (least(dated.to_us, silences.to_us) - greatest(dated.at_us, silences.from_us)) / 1e6 as joules
    from dated
    inner join silences
        on dated.date = silences.date
        and dated.node = silences.node
        and dated.at_us < silences.to_us
        and dated.to_us > silences.from_us
        and silences.to_us - silences.from_us > silences.node_cap_us
    where dated.is_node_shared and dated.meter_scope = 'node'

),

final as (

    select
        date,
        meter_scope,
        meter,
        {{ exact_sum(exact('joules')) }} as metered_joules
    from metered
    group by date, meter_scope, meter

)

select * from final
