-- Stretches in which a meter shows what cannot be, because its board works: the book and its balance pass over them, and
-- the next meter in rank books these seconds, else they are unknown. A board works if its own utilisation shows it, or if
-- its engine moves tokens and no other board of the engine shows power. A counter's standstill is refuted by its gauge
-- too; it has to be longer than three of its steps take at the board's bare idle. One row per date, reading and stretch.
{% set cell_us = suspect_cell_us() %}

with suspects as (

    select * from {{ ref('int_suspect_stretches') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

power_samples as (

    select
        series_id,
        value,
        cast(observed_at as date) as date,
        {{ int_div(epoch_us('observed_at'), cell_us) }} as cell
    from {{ source('raw', 'power_samples') }}
    where observed_at >= {{ run_start_at() }}
        and observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('value') }}
        -- Where nothing is suspect no sample is read.
        and exists (select 1 from suspects)

),

pods as (

    select distinct
        series.meter,
        series_days.date,
        coalesce(series.workload_namespace || '/' || series.workload_pod, series.namespace || '/' || series.pod) as pod
    from series
    inner join {{ ref('stg_series_days') }} as series_days on series.series_id = series_days.series_id
    where series.stream = 'power' and series.meter_scope = 'board' and coalesce(series.workload_pod, series.pod) is not null

),

suspect_pods as (

    select distinct
        pods.date,
        pods.pod
    from pods
    inner join suspects on pods.date = suspects.date and pods.meter = suspects.meter and suspects.meter_scope = 'board'

),

-- The meters that are asked: those that are suspect, and the other boards of their pods.
asked as (

    select date, meter_scope, meter from suspects
    union
    select
        pods.date,
        'board' as meter_scope,
        pods.meter
    from pods
    inner join suspect_pods on pods.date = suspect_pods.date and pods.pod = suspect_pods.pod

),

asked_series as (

    select
        asked.date,
        series.meter_scope,
        series.meter,
        series.series_id,
        series.reading_id,
        series.quantity,
        series.factor,
        coalesce(device_types.idle_watts_bare, {{ least_idle_watts() }}) / 2.0 as least_watts
    from asked
    inner join series on asked.meter_scope = series.meter_scope and asked.meter = series.meter
    left join {{ ref('stg_device_types') }} as device_types on series.meter_device_type = device_types.device_type
    where series.stream = 'power' and series.quantity in ('activity', 'power', 'energy')

),

-- What each series shows in five minutes: mean utilisation, greatest watts, a counter's rise.
shown as (

    select
        asked_series.date,
        asked_series.meter_scope,
        asked_series.meter,
        asked_series.reading_id,
        asked_series.quantity,
        power_samples.cell,
        max(asked_series.least_watts) as least_watts,
        {{ ratio(exact_sum('power_samples.value * asked_series.factor'), 'count(*)') }} as mean_value,
        max(power_samples.value * asked_series.factor) as greatest_value,
        max(power_samples.value) - min(power_samples.value) as risen
    from power_samples
    inner join asked_series on power_samples.series_id = asked_series.series_id and power_samples.date = asked_series.date
    where asked_series.quantity <> 'activity' or {{ is_believed_gauge("'activity'", 'power_samples.value * asked_series.factor') }}
    group by
        asked_series.date,
        asked_series.meter_scope,
        asked_series.meter,
        asked_series.reading_id,
        asked_series.quantity,
        power_samples.series_id,
        power_samples.cell

),

-- Five minutes in which a reading of the meter shows power.
powered as (

    select distinct
        date,
        meter_scope,
        meter,
        reading_id,
        cell
    from shown
    where (quantity = 'power' and greatest_value >= least_watts) or (quantity = 'energy' and risen > 0)

),

awake as (

    select distinct
        date,
        meter_scope,
        meter,
        cell
    from shown
    where quantity = 'activity' and mean_value >= {{ awake_activity_ratio() }}

),

-- Distinct, so that a pod's series are found before their samples are read: a join by date alone is as large as the
-- samples times the pods.
token_series as (

    select distinct
        suspect_pods.date,
        suspect_pods.pod,
        series.series_id
    from suspect_pods
    inner join series on suspect_pods.pod = series.namespace || '/' || series.pod
    where series.quantity = 'tokens'

),

moved_pods as (

    select
        token_series.date,
        token_series.pod,
        {{ int_div(epoch_us('samples.observed_at'), cell_us) }} as cell
    from {{ ref('stg_token_samples') }} as samples
    inner join token_series
        on samples.series_id = token_series.series_id
        and cast(samples.observed_at as date) = token_series.date
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
    group by token_series.date, token_series.pod, token_series.series_id, {{ int_div(epoch_us('samples.observed_at'), cell_us) }}
    having max(samples.value) > min(samples.value)

),

-- Of a pod that moves tokens, the boards that show power in these five minutes.
powered_pods as (

    select distinct
        pods.date,
        pods.pod,
        powered.cell,
        powered.meter
    from pods
    inner join powered on pods.date = powered.date and pods.meter = powered.meter and powered.meter_scope = 'board'

),

-- A pod may hold a board that it does not use: tokens are evidence where no other board shows where the power went.
worked as (

    select distinct
        pods.date,
        'board' as meter_scope,
        pods.meter,
        moved_pods.cell
    from pods
    inner join moved_pods on pods.date = moved_pods.date and pods.pod = moved_pods.pod
    left join powered_pods
        on pods.date = powered_pods.date
        and pods.pod = powered_pods.pod
        and moved_pods.cell = powered_pods.cell
        and pods.meter <> powered_pods.meter
    where powered_pods.meter is null

),

evidence as (

    select date, meter_scope, meter, cell, cast(null as bigint) as reading_id, 'activity' as basis from awake
    union all
    select date, meter_scope, meter, cell, cast(null as bigint) as reading_id, 'tokens' as basis from worked
    union all
    -- Another reading of the meter; of a gauge that shows too little it is no evidence.
    select date, meter_scope, meter, cell, reading_id, 'meter' as basis from powered

),

supported as (

    select
        suspects.date,
        suspects.reading_id,
        suspects.from_us,
        suspects.basis,
        count(distinct evidence.cell) * {{ cell_us }} as evident_us,
        {{ joined_in_order('evidence.basis') }} as evidence
    from suspects
    inner join evidence
        on {{ equal_keys('suspects', 'evidence', ['date', 'meter_scope', 'meter']) }}
        and evidence.cell between {{ int_div('suspects.from_us', cell_us) }} and {{ int_div('suspects.to_us', cell_us) }}
        and case when suspects.basis = 'standstill' then coalesce(evidence.reading_id <> suspects.reading_id, true)
            else evidence.basis <> 'meter'
        end
    group by suspects.date, suspects.reading_id, suspects.from_us, suspects.basis

),

assessed as (

    select
        suspects.*,
        supported.evidence,
        coalesce(suspects.idle_watts_bare, {{ least_idle_watts() }}) as idle_watts,
        supported.evident_us
    from suspects
    inner join supported on {{ equal_keys('suspects', 'supported', ['date', 'reading_id', 'from_us', 'basis']) }}

),

refuted as (

    select
        *,
        basis = 'standstill' and coalesce(late_joules >= idle_watts / 2 * (to_us - from_us) / 1e6, false) as is_caught_up
    from assessed
    where basis = 'below_idle' or evident_us >= greatest({{ least_standstill_us() }}, 3e6 * step_joules / idle_watts)

),

-- Samples of a gauge that go on are one stretch.
started as (

    select
        *,
        case when basis = 'below_idle' and from_us - lag(to_us) over stretch_window <= {{ cell_us }} then 0 else 1 end as starts
    from refuted
    window stretch_window as (partition by date, reading_id, basis order by from_us)

),

numbered as (

    select
        *,
        sum(starts) over (partition by date, reading_id, basis order by from_us rows unbounded preceding) as stretch
    from started

),

final as (

    select
        date,
        reading_id,
        meter_scope,
        meter,
        basis,
        min(from_us) as from_us,
        -- The sample that catches up has the joules of all of it.
        max(case when is_caught_up then next_us else to_us end) as to_us,
        max(case when is_caught_up then 1 else 0 end) = 1 as is_caught_up,
        max(most_watts) as most_watts,
        {{ ratio(exact_sum('mean_watts'), 'count(*)') }} * (max(to_us) - min(from_us)) / 1e6 as shown_joules,
        max(evidence) as evidence
    from numbered
    group by date, reading_id, meter_scope, meter, basis, stretch

)

select * from final
