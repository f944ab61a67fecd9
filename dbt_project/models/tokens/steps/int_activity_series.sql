-- Which series report activity and memory of a board, and of what: one row per date and series. `pod` is the pod that
-- the labels name; `is_of_pod`: the value is that pod's own and not the board's. From dcgm-exporter 4.8.2 on a board
-- that pods share by turns has a series of its own beside one per pod, in the same scrape; without it the series of
-- each pod repeat the board's value.
{% set reading = ['date', 'reading_id', 'scrape_job', 'mig_instance'] %}

with series as (

    select * from {{ ref('stg_series') }}
    where meter_scope = 'board' and meter is not null and quantity in ('activity', 'memory_used')

),

series_days as (

    select * from {{ ref('stg_series_days') }} where is_in_run

),

exporter_containers as (

    select * from {{ ref('exporter_containers') }}

),

power_samples as (

    select * from {{ source('raw', 'power_samples') }}

),

-- Where the scraper keeps a workload's pod apart, `pod` is the exporter's own.
named as (

    select
        series_days.date,
        series.series_id,
        series.reading_id,
        coalesce(series.scrape_job, '') as scrape_job,
        series.meter,
        series.source,
        series.metric,
        series.quantity,
        series.factor,
        series.rank,
        coalesce(series.mig_instance, '') as mig_instance,
        series_days.first_us,
        series_days.last_us,
        case
            when series.workload_pod is not null then coalesce(series.workload_namespace || '/', '') || series.workload_pod
            when exporter_containers.container is not null then null
            when max(series.workload_pod) over (
                partition by series_days.date, series.reading_id, coalesce(series.scrape_job, '')
            ) is not null
                then null
            else coalesce(series.namespace || '/', '') || series.pod
        end as pod
    from series
    inner join series_days on series.series_id = series_days.series_id
    left join exporter_containers
        on series.source_kind = exporter_containers.source_kind and series.container = exporter_containers.container

),

-- A board that is free in the morning and held in the afternoon has a series with a pod and one without, too, but never
-- in one scrape.
candidates as (

    select {{ reading | join(', ') }}
    from named
    group by {{ reading | join(', ') }}
    having max(case when pod is not null then last_us end) >= min(case when pod is null then first_us end)
        and min(case when pod is not null then first_us end) <= max(case when pod is null then last_us end)

),

shared_readings as (

    select distinct {{ reading | join(', ') }}
    from (
        select {{ columns_of('named', reading) }}
        from power_samples
        inner join named on power_samples.series_id = named.series_id
        inner join candidates on {{ equal_keys('named', 'candidates', reading) }}
        where power_samples.observed_at >= {{ run_start_at() }}
            and power_samples.observed_at < {{ run_end_at() }}
            and {{ epoch_us('power_samples.observed_at') }} between named.first_us and named.last_us
        group by {{ columns_of('named', reading) }}, power_samples.observed_at
        having count(named.pod) > 0 and count(named.pod) < count(*)
    ) as scrapes

),

final as (

    select
        named.date,
        named.series_id,
        named.meter,
        named.source,
        named.metric,
        named.quantity,
        named.factor,
        named.rank,
        nullif(named.mig_instance, '') as mig_instance,
        named.pod,
        named.pod is not null and shared_readings.reading_id is not null as is_of_pod
    from named
    left join shared_readings on {{ equal_keys('named', 'shared_readings', reading) }}

)

select * from final
