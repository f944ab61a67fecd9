-- The pods that each board's labels name: on a date, at its last sample before it and at its first one after. Where its
-- readings differ, the labels count that name an engine for longer, by ten minutes or more. One row per date, board and
-- series of the reading whose labels count, and of the one with which another server takes over.
-- `place` is `own`, `before` or `after`. Labels that the scraper set instead of a workload's own (honor_labels: false)
-- name the exporter's pod: who the exporter is, is seen per date and scrape job beside `exported_pod`.
{% set scrape_job = ['date', 'source', 'source_kind', 'scrape_job'] %}
{% set shortest_label_us = 600000000 %}

with all_series as (

    select * from {{ ref('stg_series') }}

),

series as (

    select * from all_series where stream = 'power' and meter_scope = 'board' and meter is not null

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

silent_boards as (

    select * from {{ ref('int_silent_boards') }}

),

exporter_containers as (

    select * from {{ ref('exporter_containers') }}

),

board_series_days as (

    select
        series_days.date,
        series_days.is_in_run,
        series_days.first_us,
        series_days.last_us,
        series_days.sampling_interval_seconds,
        series.*,
        -- Clusters behind one server have jobs of the same names.
        coalesce(series.scrape_job, '') || coalesce('@' || series.cluster, '') as scrape_job_of_cluster
    from series_days
    inner join series on series_days.series_id = series.series_id

),

reading_days as (

    select
        reading_id,
        date,
        max(case when is_in_run then 1 else 0 end) = 1 as is_in_run,
        min(first_us) as first_us,
        max(last_us) as last_us
    from board_series_days
    where quantity in ('energy', 'power', 'activity', 'memory_used')
    group by reading_id, date

),

neighboured_days as (

    select
        *,
        lag(date) over reading_window as date_before,
        lead(date) over reading_window as date_after,
        lead(first_us) over reading_window as next_first_us
    from reading_days
    window reading_window as (partition by reading_id order by date)

),

-- A date within a silence has no samples of its own.
days_of_readings as (

    select
        date,
        reading_id,
        date as own_date,
        date_before,
        date_after
    from neighboured_days
    where is_in_run
    union all
    select
        run_dates.date,
        neighboured_days.reading_id,
        cast(null as date) as own_date,
        neighboured_days.date as date_before,
        neighboured_days.date_after
    from neighboured_days
    inner join run_dates
        on neighboured_days.date < run_dates.date and run_dates.date < neighboured_days.date_after
    where neighboured_days.next_first_us - neighboured_days.last_us <= {{ var('max_spread_seconds') | int * 1000000 }}

),

placed_days as (

    select date, reading_id, own_date as sampled_date, 'own' as place from days_of_readings where own_date is not null
    union all
    select date, reading_id, date_before as sampled_date, 'before' as place from days_of_readings where date_before is not null
    union all
    select date, reading_id, date_after as sampled_date, 'after' as place from days_of_readings where date_after is not null

),

exported_series as (

    select
        date,
        source,
        source_kind,
        scrape_job_of_cluster as scrape_job,
        namespace,
        case when (pod is distinct from batch_job) then pod end as pod,
        container,
        workload_namespace,
        workload_pod,
        workload_container
    from board_series_days
    where is_in_run and workload_pod is not null

),

scrape_jobs as (

    select distinct {{ scrape_job | join(', ') }} from exported_series

),

-- What is in `pod` and `container` beside `exported_pod` is the exporter, unless a relabelling copied the workload's
-- names there.
exporter_pods as (

    select distinct
        {{ columns_of('exported', scrape_job) }},
        {{ daemon_set('exported.namespace', 'exported.pod') }} as name
    from exported_series as exported
    left join exported_series as workloads
        on {{ equal_keys('exported', 'workloads', scrape_job) }}
        and (exported.namespace is not distinct from workloads.workload_namespace)
        and exported.pod = workloads.workload_pod
    where exported.pod is not null and workloads.date is null

),

exporter_containers_of_jobs as (

    select distinct
        {{ columns_of('exported', scrape_job) }},
        exported.container as name
    from exported_series as exported
    left join exported_series as workloads
        on {{ equal_keys('exported', 'workloads', scrape_job) }}
        and exported.container = workloads.workload_container
    where exported.container is not null and workloads.date is null

),

-- A pod of an engine is never an exporter's.
engine_pods as (

    select distinct
        series_days.date,
        all_series.namespace,
        all_series.pod
    from series_days
    inner join all_series on series_days.series_id = all_series.series_id
    where all_series.stream = 'tokens'
        and all_series.level = 'engine'
        and all_series.quantity <> 'process_start'
        and all_series.pod is not null

),

candidates as (

    select
        placed_days.date,
        placed_days.place,
        board_series_days.meter,
        board_series_days.reading_id,
        board_series_days.series_id,
        board_series_days.source,
        board_series_days.source_kind,
        board_series_days.node,
        board_series_days.rank,
        board_series_days.quantity in ('energy', 'power') as is_power,
        board_series_days.first_us,
        board_series_days.last_us,
        board_series_days.sampling_interval_seconds,
        board_series_days.namespace,
        board_series_days.pod,
        board_series_days.container,
        board_series_days.workload_namespace,
        board_series_days.workload_pod,
        board_series_days.workload_container,
        board_series_days.batch_job,
        board_series_days.mig_instance,
        board_series_days.mig_slices,
        board_series_days.mig_instance_slices,
        board_series_days.mig_memory_gb,
        scrape_jobs.date is not null as job_carries_workloads,
        engine_pods.pod is not null as names_an_engine,
        engine_pods.pod is null
        and (
            exporter_containers.container is not null or exporter_containers_of_jobs.name is not null or exporter_pods.name is not null
        ) as is_bare_exporters,
        max(board_series_days.last_us) over place_window as place_last_us,
        min(board_series_days.first_us) over place_window as place_first_us
    from placed_days
    inner join board_series_days
        on placed_days.reading_id = board_series_days.reading_id and placed_days.sampled_date = board_series_days.date
    left join silent_boards
        on placed_days.date = silent_boards.date and board_series_days.meter = silent_boards.meter
    left join scrape_jobs
        on placed_days.date = scrape_jobs.date
        and board_series_days.source = scrape_jobs.source
        and board_series_days.source_kind = scrape_jobs.source_kind
        and board_series_days.scrape_job_of_cluster = scrape_jobs.scrape_job
    left join exporter_pods
        on placed_days.date = exporter_pods.date
        and board_series_days.source = exporter_pods.source
        and board_series_days.source_kind = exporter_pods.source_kind
        and board_series_days.scrape_job_of_cluster = exporter_pods.scrape_job
        and {{ daemon_set('board_series_days.namespace', 'board_series_days.pod') }} = exporter_pods.name
    left join exporter_containers_of_jobs
        on placed_days.date = exporter_containers_of_jobs.date
        and board_series_days.source = exporter_containers_of_jobs.source
        and board_series_days.source_kind = exporter_containers_of_jobs.source_kind
        and board_series_days.scrape_job_of_cluster = exporter_containers_of_jobs.scrape_job
        and board_series_days.container = exporter_containers_of_jobs.name
    left join exporter_containers
        on board_series_days.source_kind = exporter_containers.source_kind and board_series_days.container = exporter_containers.container
    left join engine_pods
        on board_series_days.date = engine_pods.date
        and coalesce(board_series_days.workload_pod, board_series_days.pod) = engine_pods.pod
        and (
            (
                case
                    when board_series_days.workload_pod is null then board_series_days.namespace
                    else board_series_days.workload_namespace
                end
            )
            is not distinct from engine_pods.namespace
        )
    -- Of a board without a power meter, what it reports of itself carries the labels.
    where board_series_days.quantity in ('energy', 'power')
        or (silent_boards.meter is not null and board_series_days.quantity in ('activity', 'memory_used'))
    window place_window as (partition by placed_days.date, placed_days.reading_id, placed_days.place)

),

named as (

    select
        *,
        case
            when workload_pod is not null then workload_namespace
            when not is_bare_exporters and coalesce(pod, container) is not null then namespace
        end as named_namespace,
        case
            when workload_pod is not null then workload_pod
            when is_bare_exporters then batch_job
            else pod
        end as named_pod,
        case
            when workload_pod is not null then workload_container
            when not is_bare_exporters then container
        end as named_container
    from candidates
    where place = 'own'
        or (place = 'before' and last_us = place_last_us)
        or (place = 'after' and first_us = place_first_us)

),

mapped as (

    select
        *,
        coalesce(named_namespace, '') || '/' || coalesce(named_pod, '') || '/' || coalesce(named_container, '')
            || '/' || coalesce(mig_instance, '')
        -- A number that an instance had is another's after the board is cut anew.
        || coalesce(
            {% for number in ['mig_slices', 'mig_instance_slices', 'mig_memory_gb'] -%}
            ' ' || cast({{ number }} as {{ dbt.type_string() }}){{ ' || ' if not loop.last }}
            {%- endfor -%}
            , ''
        ) as claim_key,
        -- An exporter that maps any board of a node to pods maps them all: there, a board without a pod is unallocated.
        -- So does a scrape job.
        job_carries_workloads
        or max(case when named_pod is null then 0 else 1 end) over (
            partition by date, source, source_kind, node, is_power
        ) = 1 as is_mapped,
        max(case when names_an_engine then 1 else 0 end) over (partition by date, meter, reading_id) = 1 as reading_names_an_engine
    from named

),

readings as (

    select
        date,
        meter,
        reading_id,
        source,
        source_kind,
        rank,
        max(case when is_mapped then 1 else 0 end) as is_mapped,
        max(case when reading_names_an_engine then 1 else 0 end) as names_an_engine,
        sum(case when place = 'own' and names_an_engine then last_us - first_us else 0 end) as named_us,
        min(case when place = 'own' then first_us end) as own_first_us,
        max(case when place = 'own' then last_us end) as own_last_us,
        {{ gap_cap_us('max(sampling_interval_seconds)', var('grid_seconds')) }} as cap_us
    from mapped
    group by date, meter, reading_id, source, source_kind, rank

),

ordered_readings as (

    select
        *,
        row_number() over (
            partition by date, meter
            order by
                is_mapped desc,
                names_an_engine desc,
                case when named_us >= longest_named_us - {{ shortest_label_us }} then 0 else 1 end,
                rank,
                case when own_first_us is null then 1 else 0 end,
                source,
                reading_id
        ) as preference
    from (select *, max(named_us) over (partition by date, meter) as longest_named_us from readings) as compared

),

-- Where another server takes over within the date, its series of the same metric go on, or were there before.
other_servers as (

    select
        others.date,
        others.meter,
        others.reading_id,
        others.preference,
        others.own_last_us > preferred.own_last_us + preferred.cap_us as is_later,
        preferred.own_first_us as until_us,
        preferred.own_last_us as since_us
    from ordered_readings as others
    inner join ordered_readings as preferred
        on {{ equal_keys('others', 'preferred', ['date', 'meter', 'source_kind', 'rank', 'is_mapped']) }}
        and others.source <> preferred.source
    where preferred.preference = 1
        and (
            others.own_last_us > preferred.own_last_us + preferred.cap_us
            or others.own_first_us < preferred.own_first_us - preferred.cap_us
        )
    qualify row_number() over (
        partition by others.date, others.meter, others.own_last_us > preferred.own_last_us + preferred.cap_us
        order by others.preference
    ) = 1

),

counted_readings as (

    select
        date,
        meter,
        reading_id,
        cast(null as bigint) as since_us,
        cast(null as bigint) as until_us,
        '' as other_place
    from ordered_readings
    where preference = 1
    union all
    select
        date,
        meter,
        reading_id,
        case when is_later then since_us end as since_us,
        case when not is_later then until_us end as until_us,
        case when is_later then 'before' else 'after' end as other_place
    from other_servers

),

final as (

    select
        mapped.date,
        mapped.meter,
        mapped.place,
        mapped.series_id,
        greatest(mapped.first_us, coalesce(counted_readings.since_us, mapped.first_us)) as first_us,
        least(mapped.last_us, coalesce(counted_readings.until_us, mapped.last_us)) as last_us,
        mapped.sampling_interval_seconds,
        mapped.claim_key,
        mapped.named_namespace as namespace,
        mapped.named_pod as pod,
        mapped.named_container as container,
        mapped.mig_instance,
        mapped.mig_slices,
        mapped.mig_instance_slices,
        mapped.mig_memory_gb,
        mapped.is_mapped,
        mapped.is_bare_exporters
    from mapped
    inner join counted_readings on {{ equal_keys('mapped', 'counted_readings', ['date', 'meter', 'reading_id']) }}
    where mapped.place <> counted_readings.other_place
        and mapped.last_us > coalesce(counted_readings.since_us, mapped.last_us - 1)
        and mapped.first_us < coalesce(counted_readings.until_us, mapped.first_us + 1)

)

select * from final
