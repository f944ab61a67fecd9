-- Which pods a board's own labels name, in slices of a date: one row per date, board, slice and pod. A claim holds until the next one is
-- seen; the first of a date reaches back to midnight and the last one forward to it, so that a date's claims need that date alone.
with series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

power_samples as (

    select * from {{ source('raw', 'power_samples') }}

),

unmetered_boards as (

    select * from {{ ref('int_unmetered_boards') }}

),

board_series_days as (

    select
        series_days.date,
        series.meter,
        series.series_id,
        series.reading_id,
        series.rank,
        series.source,
        series_days.first_us,
        series_days.last_us,
        series_days.typical_interval_seconds,
        series.namespace,
        series.pod,
        series.container,
        series.mig_instance,
        series.mig_profile,
        coalesce(series.namespace, '') || '/' || coalesce(series.pod, '') || '/' || coalesce(series.container, '')
        || '/' || coalesce(series.mig_instance, '') as claim_key,
        -- An exporter that maps any board of a node to pods maps them all: there, a board without a pod is unallocated.
        max(case when series.pod is null then 0 else 1 end)
            over (
                partition by series_days.date, series.source, series.source_kind, series.node, series.quantity in ('energy', 'power')
            ) = 1 as is_mapped
    from series_days
    inner join series on series_days.series_id = series.series_id
    left join unmetered_boards on series_days.date = unmetered_boards.date and series.meter = unmetered_boards.meter
    where series_days.is_in_run
        and series.meter_scope = 'board'
        -- Of a board without a power meter, what it reports of itself carries the labels.
        and (
            series.quantity in ('energy', 'power')
            or (unmetered_boards.meter is not null and series.quantity in ('activity', 'memory_used'))
        )

),

preferred_readings as (

    select distinct
        date,
        meter,
        reading_id
    from board_series_days
    where is_mapped
    qualify dense_rank() over (partition by date, meter order by rank, source, reading_id) = 1

),

labelled as (

    select
        board_series_days.*,
        case when min(claim_key) over day_window <> max(claim_key) over day_window then 1 else 0 end = 1 as is_contested
    from board_series_days
    inner join preferred_readings
        on board_series_days.date = preferred_readings.date
        and board_series_days.meter = preferred_readings.meter
        and board_series_days.reading_id = preferred_readings.reading_id
    window day_window as (partition by board_series_days.date, board_series_days.meter)

),

pods as (

    select
        date,
        meter,
        claim_key,
        max(namespace) as namespace,
        max(pod) as pod,
        max(container) as container,
        max(mig_instance) as mig_instance,
        max(mig_profile) as mig_profile
    from labelled
    group by date, meter, claim_key

),

-- Only boards that changed hands on the date are looked at sample by sample.
sightings as (

    select
        labelled.date,
        labelled.meter,
        labelled.claim_key,
        {{ epoch_us('power_samples.observed_at') }} as observed_us,
        max({{ gauge_gap_factor() }} * labelled.typical_interval_seconds * 1e6) as cap_us
    from power_samples
    inner join labelled on power_samples.series_id = labelled.series_id
    where labelled.is_contested
        and power_samples.observed_at >= {{ run_start_at() }}
        and power_samples.observed_at < {{ run_end_at() }}
        and {{ epoch_us('power_samples.observed_at') }} between labelled.first_us and labelled.last_us
        and {{ is_valid_sample('power_samples.value') }}
    group by labelled.date, labelled.meter, labelled.claim_key, {{ epoch_us('power_samples.observed_at') }}

),

stepped as (

    select
        *,
        case when observed_us - lag(observed_us) over claim_window <= cap_us then 0 else 1 end as is_new_run
    from sightings
    window claim_window as (partition by date, meter, claim_key order by observed_us)

),

numbered as (

    select
        *,
        sum(is_new_run) over (partition by date, meter, claim_key order by observed_us rows unbounded preceding) as run_number
    from stepped

),

runs as (

    select
        date,
        meter,
        claim_key,
        run_number,
        min(observed_us) as start_us,
        max(observed_us) as end_us
    from numbered
    group by date, meter, claim_key, run_number

),

edges as (

    select date, meter, start_us as edge_us from runs
    union
    select date, meter, end_us as edge_us from runs

),

elements as (

    select
        date,
        meter,
        edge_us as start_us,
        lead(edge_us) over (partition by date, meter order by edge_us) as end_us
    from edges

),

covered_elements as (

    select
        elements.date,
        elements.meter,
        elements.start_us,
        coalesce(
            {{ joined_in_order("case when pods.pod is not null then runs.claim_key end") }}, max(runs.claim_key)
        ) as claim_keys
    from elements
    left join runs
        on elements.date = runs.date
        and elements.meter = runs.meter
        and elements.start_us >= runs.start_us
        -- A claimant seen once only has a run without a length: it holds until the next sight.
        and (elements.end_us <= runs.end_us or (runs.start_us = runs.end_us and elements.start_us = runs.start_us))
    left join pods
        on runs.date = pods.date and runs.meter = pods.meter and runs.claim_key = pods.claim_key
    where elements.end_us is not null
    group by elements.date, elements.meter, elements.start_us

),

-- Between the last sight of one claimant and the first of the next, the earlier one still holds.
held_elements as (

    select
        date,
        meter,
        start_us,
        max(claim_keys) over (partition by date, meter, sighting_number) as claim_keys
    from (
        select
            *,
            count(claim_keys) over (partition by date, meter order by start_us rows unbounded preceding) as sighting_number
        from covered_elements
    ) as counted

),

changes as (

    select
        *,
        lag(claim_keys) over (partition by date, meter order by start_us) as previous_claim_keys
    from held_elements

),

slices as (

    select
        date,
        meter,
        claim_keys,
        case
            when previous_claim_keys is null then {{ epoch_us('cast(date as ' ~ timestamp_type() ~ ')') }}
            else start_us
        end as slice_start_us,
        coalesce(
            lead(start_us) over (partition by date, meter order by start_us),
            {{ epoch_us('cast(date as ' ~ timestamp_type() ~ ')') }} + {{ day_us() }}
        ) as slice_end_us
    from changes
    where previous_claim_keys is null or previous_claim_keys <> claim_keys

),

slice_members as (

    select distinct
        slices.date,
        slices.meter,
        slices.slice_start_us,
        slices.slice_end_us,
        runs.claim_key
    from slices
    inner join runs
        on slices.date = runs.date
        and slices.meter = runs.meter
        and ',' || slices.claim_keys || ',' like '%,' || runs.claim_key || ',%'

),

uncontested as (

    select distinct
        date,
        meter,
        {{ epoch_us('cast(date as ' ~ timestamp_type() ~ ')') }} as slice_start_us,
        {{ epoch_us('cast(date as ' ~ timestamp_type() ~ ')') }} + {{ day_us() }} as slice_end_us,
        claim_key
    from labelled
    where not is_contested

),

members as (

    select * from slice_members
    union all
    select * from uncontested

),

final as (

    select
        members.date,
        members.meter,
        members.slice_start_us,
        members.slice_end_us,
        pods.namespace,
        pods.pod,
        pods.container,
        pods.mig_instance,
        pods.mig_profile
    from members
    inner join pods
        on members.date = pods.date and members.meter = pods.meter and members.claim_key = pods.claim_key

)

select * from final
