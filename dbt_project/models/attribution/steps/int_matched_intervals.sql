-- Engine intervals with energy and token telemetry, and whether ratios may use them. An interval is matched if it is
-- whole on both sides: every board that the engine holds, metered or not, has power over (nearly) all the time for
-- which tokens are known, and the reverse. Of pools that hand tokens over, one's energy and the other's tokens are
-- compared, so both pools are whole in it.
{% set engine_keys = ['date', 'engine', 'interval_number'] %}

with attributed as (

    select * from {{ ref('int_attributed_energy') }} where state in ('active', 'parked', 'asleep') and has_token_telemetry

),

engine_intervals as (

    select * from {{ ref('int_engine_intervals') }}

),

claims as (

    select * from {{ ref('int_claims') }} where engine not in ({{ unallocated() }}, {{ unknown() }})

),

meters as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked'

),

token_shares as (

    select * from {{ ref('int_token_shares') }}

),

roles as (

    select * from {{ ref('int_engine_roles') }} where role in ('prefill', 'decode')

),

slices as (

    select
        {{ engine_keys | join(', ') }},
        meter_scope,
        meter,
        node,
        slice_start_us,
        max(slice_covered_seconds) as covered_seconds
    from attributed
    group by {{ engine_keys | join(', ') }}, meter_scope, meter, node, slice_start_us

),

powered_meters as (

    select
        {{ engine_keys | join(', ') }},
        meter_scope,
        meter,
        max(node) as node,
        {{ exact_sum('covered_seconds') }} as covered_seconds
    from slices
    group by {{ engine_keys | join(', ') }}, meter_scope, meter

),

powered as (

    select
        {{ engine_keys | join(', ') }},
        min(covered_seconds) as least_covered_seconds,
        max(covered_seconds) as most_covered_seconds
    from powered_meters
    group by {{ engine_keys | join(', ') }}

),

-- An engine of one board has its energy or has none. A meter without accelerators of its own (a node's that books while
-- its boards are silent) is no board.
held_boards as (

    select
        claims.date,
        claims.engine,
        claims.meter_scope,
        claims.meter,
        coalesce(claims.place_node, meters.node) as node,
        claims.held_start_us,
        claims.held_end_us
    from claims
    left join meters on {{ equal_keys('claims', 'meters', ['date', 'meter_scope', 'meter']) }}
    where (claims.is_unmetered or meters.gpu_count > 0) and claims.held_end_us > claims.held_start_us
    qualify min(claims.meter_scope || ' ' || claims.meter) over (partition by claims.date, claims.engine)
        <> max(claims.meter_scope || ' ' || claims.meter) over (partition by claims.date, claims.engine)

),

held_intervals as (

    select
        *,
        {{ integers_between(int_div('held_start_us', grid_us()), int_div('held_end_us - 1', grid_us())) }} as interval_number
    from held_boards

),

-- A board that is held for less than a tenth of the interval may be seen in the next one. The meter of a node has the
-- energy of its boards while none of them reports.
unpowered as (

    select distinct {{ columns_of('held_intervals', engine_keys) }}
    from held_intervals
    left join powered_meters
        on {{ equal_keys('held_intervals', 'powered_meters', engine_keys + ['meter_scope', 'meter']) }}
    left join powered_meters as node_meters
        on {{ equal_keys('held_intervals', 'node_meters', engine_keys + ['node']) }} and node_meters.meter_scope = 'node'
    where powered_meters.meter is null
        and node_meters.meter is null
        and least(held_intervals.held_end_us, (held_intervals.interval_number + 1) * {{ grid_us() }})
        - greatest(held_intervals.held_start_us, held_intervals.interval_number * {{ grid_us() }}) > 0.1 * {{ grid_us() }}

),

complete_engines as (

    select distinct date, engine from claims where is_tokens_complete

),

uncounted as (

    select distinct {{ engine_keys | join(', ') }} from token_shares where is_uncounted

),

reasons as (

    select
        {{ columns_of('powered', engine_keys) }},
        case
            -- A complete source that reports nothing in an interval moved no tokens; one that reports requests alone
            -- may have moved some.
            when not coalesce(engine_intervals.is_countable, true) then 'tokens_not_counted'
            when unpowered.engine is not null or powered.least_covered_seconds * 1000000 < 0.9 * coalesce(engine_intervals.covered_us, 0)
                then 'board_without_energy'
            when complete_engines.engine is null
                and coalesce(engine_intervals.covered_us, 0) < 0.9 * powered.most_covered_seconds * 1000000
                then 'tokens_end_before_energy'
            when uncounted.engine is not null then 'gpu_count_unknown'
        end as unmatched_reason
    from powered
    left join engine_intervals
        on powered.engine = engine_intervals.engine and powered.interval_number = engine_intervals.interval_number
    left join unpowered on {{ equal_keys('powered', 'unpowered', engine_keys) }}
    left join complete_engines on powered.date = complete_engines.date and powered.engine = complete_engines.engine
    left join uncounted on {{ equal_keys('powered', 'uncounted', engine_keys) }}

),

-- An engine of a pool is there in an interval with tokens, with power, or with both.
pool_members as (

    select
        present.interval_number,
        {{ columns_of('roles', ['date', 'site', 'model', 'role', 'engine']) }},
        case when reasons.engine is not null and reasons.unmatched_reason is null then 1 else 0 end as whole_engines
    from (
        select {{ engine_keys | join(', ') }} from engine_intervals
        union
        select {{ engine_keys | join(', ') }} from reasons
    ) as present
    inner join roles on {{ equal_keys('present', 'roles', ['date', 'engine']) }}
    left join reasons on {{ equal_keys('present', 'reasons', engine_keys) }}

),

pools as (

    select
        date,
        site,
        model,
        interval_number,
        sum(whole_engines) >= 0.9 * count(*) as is_whole
    from pool_members
    group by date, site, model, role, interval_number

),

engines_of_broken_pools as (

    select distinct {{ columns_of('pool_members', engine_keys) }}
    from pool_members
    inner join pools on {{ equal_keys('pool_members', 'pools', ['date', 'site', 'model', 'interval_number']) }}
    where not pools.is_whole

),

explained as (

    select
        {{ columns_of('reasons', engine_keys) }},
        coalesce(
            reasons.unmatched_reason, case when engines_of_broken_pools.engine is not null then 'other_pool_is_not_whole' end
        ) as unmatched_reason
    from reasons
    left join engines_of_broken_pools on {{ equal_keys('reasons', 'engines_of_broken_pools', engine_keys) }}

),

final as (

    select
        {{ engine_keys | join(', ') }},
        unmatched_reason is null as is_matched,
        unmatched_reason
    from explained

)

select * from final
