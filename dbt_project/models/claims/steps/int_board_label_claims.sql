-- Which pods a board's own labels name, in slices of a date: one row per date, board, slice and pod. A claim holds
-- until the next one is seen, or bridges a silence (int_claim_elements, int_claim_bridges); in any other silence the
-- claimant is unknown, and `held_by` names who was seen last and next. `held_start_us` and `held_end_us`: the part of
-- the slice in which the board is known to have been there.
with elements as (

    select * from {{ ref('int_claim_elements') }}

),

runs as (

    select * from {{ ref('int_claim_runs') }}

),

bridges as (

    select * from {{ ref('int_claim_bridges') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

-- A board has several readings. Only one gives the labels, but another may have samples for longer.
board_ends as (

    select
        series.meter,
        min(series_days.first_us) as first_us,
        max(series_days.last_us) as last_us
    from series_days
    inner join series on series_days.series_id = series.series_id
    where series.meter_scope = 'board' and series.quantity in ('energy', 'power')
    group by series.meter

),

cut_off_boards as (

    select * from {{ ref('int_cut_off_meters') }} where meter_scope = 'board'

),

assessed as (

    select
        elements.*,
        cut_off_boards.meter is not null as is_cut_off,
        greatest(elements.start_us, elements.day_start_us) as from_us,
        least(elements.end_us, elements.day_end_us) as to_us,
        greatest(
            least(coalesce(bridges.until_us, elements.start_us), elements.end_us, elements.day_end_us),
            elements.start_us,
            elements.day_start_us
        ) as until_us,
        coalesce(board_ends.first_us, elements.end_us) as board_first_us,
        coalesce(board_ends.last_us, elements.start_us) as board_last_us
    from elements
    left join board_ends on elements.meter = board_ends.meter
    left join bridges
        on {{ equal_keys('elements', 'bridges', ['date', 'meter', 'start_us']) }}
        and elements.kind <> 'held'
    left join cut_off_boards on elements.date = cut_off_boards.date and elements.meter = cut_off_boards.meter

),

pieces as (

    select
        date,
        meter,
        from_us,
        to_us,
        case when kind = 'head' then least(greatest(board_first_us, from_us), to_us) else from_us end as held_start_us,
        to_us as held_end_us,
        claim_keys,
        cast(null as {{ dbt.type_string() }}) as held_by
    from assessed
    where kind in ('held', 'head')
    union all
    select
        date,
        meter,
        from_us,
        until_us as to_us,
        from_us as held_start_us,
        until_us as held_end_us,
        claim_keys,
        cast(null as {{ dbt.type_string() }}) as held_by
    from assessed
    where kind = 'silence' and until_us > from_us
    union all
    select
        date,
        meter,
        until_us as from_us,
        to_us,
        until_us as held_start_us,
        to_us as held_end_us,
        cast(null as {{ dbt.type_string() }}) as claim_keys,
        case when held_by_before = held_by_after then held_by_before else held_by_before || ', ' || held_by_after end as held_by
    from assessed
    where kind = 'silence' and until_us < to_us
    union all
    -- Never seen again: the claim ends with the board's last sample or its engine's last report; where the board's source
    -- fell silent with it, with the date.
    select
        date,
        meter,
        from_us,
        case when board_last_us > until_us + cap_us then until_us else to_us end as to_us,
        from_us as held_start_us,
        case
            when board_last_us > until_us + cap_us then until_us
            when is_cut_off then to_us
            else least(greatest(until_us, board_last_us), to_us)
        end as held_end_us,
        claim_keys,
        cast(null as {{ dbt.type_string() }}) as held_by
    from assessed
    where kind = 'tail' and (until_us > from_us or board_last_us <= until_us + cap_us)
    union all
    -- Another reading of the board has samples for longer, but its labels name no pod.
    select
        date,
        meter,
        until_us as from_us,
        to_us,
        until_us as held_start_us,
        least(board_last_us, to_us) as held_end_us,
        cast(null as {{ dbt.type_string() }}) as claim_keys,
        held_by_before as held_by
    from assessed
    where kind = 'tail' and board_last_us > until_us + cap_us and until_us < to_us

),

compared as (

    select
        *,
        case
            when lag(from_us) over board_window is null then 1
            when (lag(claim_keys) over board_window is distinct from claim_keys) then 1
            when (lag(held_by) over board_window is distinct from held_by) then 1
            else 0
        end as is_change
    from pieces
    window board_window as (partition by date, meter order by from_us)

),

numbered as (

    select
        *,
        sum(is_change) over (partition by date, meter order by from_us rows unbounded preceding) as slice_number
    from compared

),

slices as (

    select
        date,
        meter,
        claim_keys,
        held_by,
        min(from_us) as slice_start_us,
        max(to_us) as slice_end_us,
        min(held_start_us) as held_start_us,
        max(held_end_us) as held_end_us
    from numbered
    group by date, meter, slice_number, claim_keys, held_by

),

members as (

    select distinct
        date,
        meter,
        claim_key,
        namespace,
        pod,
        container,
        mig_instance,
        mig_slices,
        mig_instance_slices,
        mig_memory_gb
    from runs

),

final as (

    select
        slices.date,
        slices.meter,
        slices.slice_start_us,
        slices.slice_end_us,
        slices.held_start_us,
        slices.held_end_us,
        slices.claim_keys is null as is_silence,
        slices.held_by,
        slices.claim_keys is not null
        and max(coalesce(members.pod, members.container)) over (
            partition by slices.date, slices.meter, slices.slice_start_us
        ) is null as is_free,
        members.namespace,
        members.pod,
        members.container,
        members.mig_instance,
        members.mig_slices,
        members.mig_instance_slices,
        members.mig_memory_gb
    from slices
    left join members
        on slices.date = members.date
        and slices.meter = members.meter
        and position(',' || members.claim_key || ',' in ',' || slices.claim_keys || ',') > 0

)

select * from final
