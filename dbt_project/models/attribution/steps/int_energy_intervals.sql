-- Segments cut at the grid, and where a meter's claimant changes: one row per date, purpose, meter, interval and slice.
-- Joules are exact from here on: pieces are differences of one rounded curve, so the pieces of a segment add up to it.
with segments as (

    select * from {{ ref('int_energy_segments') }}

),

meters as (

    select * from {{ ref('int_meter_choices') }} where purpose in ('booked', 'host')

),

claims as (

    select * from {{ ref('int_claims') }}

),

slices as (

    select distinct
        date,
        meter_scope,
        meter,
        slice_start_us,
        slice_end_us,
        claims_of_day > members as is_cut
    from claims

),

cut_readings as (

    select distinct meters.reading_id
    from meters
    inner join slices
        on meters.date = slices.date and meters.meter_scope = slices.meter_scope and meters.meter = slices.meter and slices.is_cut

),

gridded_segments as (

    select
        segments.*,
        {{ int_div('start_us', grid_us()) }} as first_interval,
        {{ int_div('end_us - 1', grid_us()) }} as last_interval,
        cut_readings.reading_id is not null as is_cut
    from segments
    left join cut_readings on segments.reading_id = cut_readings.reading_id
    where segments.end_us > {{ run_start_us() }}
        and segments.start_us < {{ run_end_us() }}

),

whole_pieces as (

    select
        reading_id,
        handed_over_as,
        first_interval as interval_number,
        cast(null as bigint) as slice_start_us,
        {{ exact('coalesce(energy_joules, 0)') }} as energy_joules,
        {{ sampling_variance('end_us - start_us') }} as sampling_joules2,
        case when energy_joules is null then 0 else end_us - start_us end as covered_us,
        energy_source,
        is_reset,
        is_impossible,
        coalesce(gap_us, end_us - start_us) as segment_us
    from gridded_segments
    where first_interval = last_interval and not is_cut

),

spread_segments as (

    select
        *,
        {{ integers_between(
            'greatest(first_interval, ' ~ int_div(run_start_us(), grid_us()) ~ ')',
            'least(last_interval, ' ~ int_div(run_end_us() ~ ' - 1', grid_us()) ~ ')'
        ) }} as interval_number
    from gridded_segments
    where first_interval < last_interval or is_cut

),

spread_pieces as (

    select
        *,
        greatest(start_us, interval_number * {{ grid_us() }}) as piece_start_us,
        least(end_us, (interval_number + 1) * {{ grid_us() }}) as piece_end_us
    from spread_segments

),

sliced_pieces as (

    select
        spread_pieces.*,
        cut_slices.slice_start_us,
        greatest(spread_pieces.piece_start_us, coalesce(cut_slices.slice_start_us, spread_pieces.piece_start_us)) as from_us,
        least(spread_pieces.piece_end_us, coalesce(cut_slices.slice_end_us, spread_pieces.piece_end_us)) as to_us
    from spread_pieces
    left join (
        select distinct
            meters.reading_id,
            slices.slice_start_us,
            slices.slice_end_us
        from slices
        inner join meters on {{ equal_keys('slices', 'meters', ['date', 'meter_scope', 'meter']) }}
        where slices.is_cut
    ) as cut_slices
        on spread_pieces.reading_id = cut_slices.reading_id
        and spread_pieces.piece_start_us < cut_slices.slice_end_us
        and spread_pieces.piece_end_us > cut_slices.slice_start_us

),

pieces as (

    select * from whole_pieces
    union all
    select
        reading_id,
        handed_over_as,
        interval_number,
        slice_start_us,
        {{ accumulated('coalesce(energy_joules, 0)', 'slope_watts', 'to_us - start_us', '(end_us - start_us)') }}
        - {{ accumulated('coalesce(energy_joules, 0)', 'slope_watts', 'from_us - start_us', '(end_us - start_us)') }} as energy_joules,
        {{ sampling_variance('to_us - from_us') }} as sampling_joules2,
        case when energy_joules is null then 0 else to_us - from_us end as covered_us,
        energy_source,
        is_reset,
        is_impossible,
        coalesce(gap_us, end_us - start_us) as segment_us
    from sliced_pieces

),

intervals as (

    select
        reading_id,
        handed_over_as,
        interval_number,
        slice_start_us,
        {{ exact_sum('energy_joules') }} as energy_joules,
        {{ exact_sum(
            "case when segment_us > " ~ (var('max_spread_seconds') | int * 1000000) ~ " then energy_joules else 0 end"
        ) }} as overspread_joules,
        {{ exact_sum('sampling_joules2') }} as sampling_joules2,
        sum(covered_us) as covered_us,
        min(energy_source) as first_energy_source,
        max(energy_source) as last_energy_source,
        max(case when is_reset then 1 else 0 end) = 1 as has_reset,
        max(case when is_impossible then 1 else 0 end) = 1 as has_glitch,
        max(segment_us) as longest_segment_us
    from pieces
    group by reading_id, handed_over_as, interval_number, slice_start_us

),

final as (

    select
        meters.date,
        meters.purpose,
        meters.meter_scope,
        meters.meter,
        intervals.interval_number,
        intervals.interval_number * {{ grid_us() }} as interval_start_us,
        intervals.slice_start_us,
        intervals.energy_joules,
        intervals.overspread_joules,
        intervals.sampling_joules2,
        intervals.covered_us,
        case
            when first_energy_source = last_energy_source then first_energy_source
            when last_energy_source = 'unknown' then 'partly_unknown'
            else 'counter_and_gauge'
        end as energy_source,
        intervals.has_reset,
        intervals.has_glitch,
        intervals.longest_segment_us > {{ gap_cap_us('meters.sampling_interval_seconds', var('grid_seconds')) }}
        and intervals.longest_segment_us > {{ grid_us() }} as has_gap
    from intervals
    inner join meters
        on intervals.reading_id = meters.reading_id
        and case when meters.is_handover then meters.purpose else 'not' end = coalesce(intervals.handed_over_as, 'not')
        and {{ int_div('intervals.interval_number * ' ~ grid_us(), day_us()) }}
            = {{ int_div(epoch_us('cast(meters.date as ' ~ timestamp_type() ~ ')'), day_us()) }}

)

select * from final
