-- How far into a silence of its board a claim lasts: while the engine that holds the board still reports, and until
-- that engine is seen on a board that it did not hold before. One row per date, board and silence that an engine
-- bridges; only such engines are read sample by sample.
with elements as (

    select * from {{ ref('int_claim_elements') }} where kind in ('silence', 'tail')

),

runs as (

    select * from {{ ref('int_claim_runs') }}

),

series as (

    select * from {{ ref('stg_series') }} where stream = 'tokens'

),

series_days as (

    select * from {{ ref('stg_series_days') }} where is_in_run

),

engine_pods as (

    select * from {{ source('fleet', 'engine_pods') }}

),

pod_groups as (

    select * from {{ ref('int_pod_groups') }}

),

token_samples as (

    select * from {{ ref('stg_token_samples') }}

),

-- The date's part of the silence alone, so that a date's claims do not depend on which dates are booked beside it.
silences as (

    select distinct
        elements.date,
        elements.meter,
        elements.start_us,
        greatest(elements.start_us, elements.day_start_us) as from_us,
        least(elements.end_us, elements.day_end_us) as to_us,
        elements.cap_us,
        runs.namespace,
        runs.pod
    from elements
    inner join runs
        on elements.date = runs.date
        and elements.meter = runs.meter
        and elements.start_us = runs.end_us
    where runs.pod is not null

),

pod_engines as (

    select
        pods.namespace,
        pods.pod,
        engine_pods.engine
    from (select distinct namespace, pod from silences) as pods
    inner join engine_pods
        on {{ fits("coalesce(pods.namespace || '/', '') || pods.pod", 'engine_pods.pod', 'engine_pods.is_prefix') }}
    qualify row_number() over (partition by pods.namespace, pods.pod order by engine_pods.entry) = 1

),

-- A worker without metrics is there while its group's engine reports.
engines_of_pods as (

    select
        silences.*,
        coalesce(pod_engines.engine, pod_groups.engine) as engine
    from silences
    left join pod_engines
        on (silences.namespace is not distinct from pod_engines.namespace) and silences.pod = pod_engines.pod
    left join pod_groups
        on silences.date = pod_groups.date
        and silences.meter = pod_groups.meter
        and (silences.namespace is not distinct from pod_groups.namespace)
        and silences.pod = pod_groups.pod

),

engines_of_silences as (

    select distinct
        silences.date,
        silences.meter,
        silences.start_us,
        silences.from_us,
        silences.to_us,
        series.series_id,
        series_days.sampling_interval_seconds
    from engines_of_pods as silences
    inner join series
        on (silences.engine is not null and series.engine = silences.engine)
        or (silences.engine is null and series.namespace is not distinct from silences.namespace and series.pod = silences.pod)
    inner join series_days on series.series_id = series_days.series_id and silences.date = series_days.date

),

engine_caps as (

    select
        date,
        meter,
        start_us,
        max(from_us) as from_us,
        max(to_us) as to_us,
        {{ gap_cap_us('max(sampling_interval_seconds)', var('grid_seconds')) }} as cap_us
    from engines_of_silences
    group by date, meter, start_us

),

reports as (

    select
        date,
        meter,
        start_us,
        from_us as report_us
    from engine_caps
    union
    select
        engines_of_silences.date,
        engines_of_silences.meter,
        engines_of_silences.start_us,
        {{ epoch_us('token_samples.observed_at') }} as report_us
    from token_samples
    inner join engines_of_silences on token_samples.series_id = engines_of_silences.series_id
    where token_samples.observed_at >= {{ run_start_at() }}
        and token_samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('token_samples.value') }}
        and {{ epoch_us('token_samples.observed_at') }} > engines_of_silences.from_us
        and {{ epoch_us('token_samples.observed_at') }} < engines_of_silences.to_us

),

stepped as (

    select
        date,
        meter,
        start_us,
        report_us,
        lead(report_us) over (partition by date, meter, start_us order by report_us) as next_us
    from reports

),

last_reports as (

    select
        stepped.date,
        stepped.meter,
        stepped.start_us,
        min(stepped.report_us) as last_report_us
    from stepped
    inner join engine_caps on {{ equal_keys('stepped', 'engine_caps', ['date', 'meter', 'start_us']) }}
    where stepped.next_us is null or stepped.next_us - stepped.report_us > engine_caps.cap_us
    group by stepped.date, stepped.meter, stepped.start_us

),

first_sights as (

    select
        date,
        meter,
        namespace,
        pod,
        min(start_us) as first_us
    from runs
    where pod is not null
    group by date, meter, namespace, pod

),

moves as (

    select
        silences.date,
        silences.meter,
        silences.start_us,
        min(first_sights.first_us) as moved_us
    from silences
    inner join first_sights
        on silences.date = first_sights.date
        and silences.namespace is not distinct from first_sights.namespace
        and silences.pod = first_sights.pod
        and silences.meter <> first_sights.meter
        and silences.start_us < first_sights.first_us
    group by silences.date, silences.meter, silences.start_us

),

-- An engine that reports until the silence ends, or the date, is not cut a scrape before.
final as (

    select
        engine_caps.date,
        engine_caps.meter,
        engine_caps.start_us,
        least(
            case when engine_caps.to_us - last_reports.last_report_us <= engine_caps.cap_us then engine_caps.to_us
                else last_reports.last_report_us
            end,
            coalesce(moves.moved_us, engine_caps.to_us)
        ) as until_us
    from engine_caps
    inner join last_reports on {{ equal_keys('engine_caps', 'last_reports', ['date', 'meter', 'start_us']) }}
    left join moves on {{ equal_keys('engine_caps', 'moves', ['date', 'meter', 'start_us']) }}
    where last_reports.last_report_us > engine_caps.from_us + engine_caps.cap_us

)

select * from final
