-- Which engine a pod without metrics works for, by its group: one row per date, board and pod. A group is a
-- LeaderWorkerSet's (its labels), else by name a leader and `<leader>-<n>`, or `<job>-launcher` and `<job>-worker-<n>`.
-- One with several engines has no row.
{% set is_one_place = "workers.site = engines.site and (workers.source = engines.source or not engines.is_holder)"
    " and workers.cluster = coalesce(engines.cluster, workers.cluster)" %}
{% set mpi_job %}'^(.+)-(launcher(-[a-z0-9]{5})?|worker-[0-9]{1,4})$'{% endset %}

with board_labels as (

    select * from {{ ref('int_board_labels') }} where pod is not null

),

series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

-- Pods that hold boards, and where: two clusters may have a pod of one name.
holders as (

    select distinct
        board_labels.date,
        board_labels.meter,
        board_labels.namespace,
        board_labels.pod,
        series.source,
        coalesce(series.cluster, '') as cluster,
        series.site
    from board_labels
    inner join series on board_labels.series_id = series.series_id

),

-- An engine is there on the dates from its first sample to its last one.
engines as (

    select
        series.engine,
        series.namespace,
        series.pod,
        min(series.source) as source,
        max(coalesce(series.cluster, '')) as cluster,
        max(series.site) as site,
        min(series_days.date) as first_date,
        max(series_days.date) as last_date
    from series
    inner join series_days on series.series_id = series_days.series_id
    where series.stream = 'tokens' and series.level = 'engine' and series.quantity <> 'process_start' and series.model is not null
        and series.pod is not null
    group by series.engine, series.namespace, series.pod

),

engines_of_dates as (

    select
        run_dates.date,
        engines.*
    from engines
    inner join run_dates on engines.first_date <= run_dates.date and run_dates.date <= engines.last_date

),

-- A pod with metrics of its own works for itself.
pods_with_metrics as (

    select distinct
        run_dates.date,
        engines.namespace,
        engines.pod
    from engines
    inner join run_dates on engines.first_date <= run_dates.date

),

workers as (

    select holders.*
    from holders
    left join pods_with_metrics
        on holders.date = pods_with_metrics.date
        and (holders.namespace is not distinct from pods_with_metrics.namespace)
        and holders.pod = pods_with_metrics.pod
    where pods_with_metrics.pod is null

),

-- Where the engines are: their own boards, else the source of their tokens.
placed_engines as (

    select distinct
        engines.date,
        engines.engine,
        engines.namespace,
        engines.pod,
        coalesce(holders.source, engines.source) as source,
        coalesce(holders.cluster, nullif(engines.cluster, '')) as cluster,
        coalesce(holders.site, engines.site) as site,
        holders.pod is not null as is_holder
    from engines_of_dates as engines
    left join holders
        on engines.date = holders.date
        and (engines.namespace is not distinct from holders.namespace)
        and engines.pod = holders.pod

),

labelled_pods as (

    select distinct
        coalesce(workload_namespace, namespace) as namespace,
        coalesce(workload_pod, pod) as pod,
        pod_group
    from series
    where pod_group is not null
        and coalesce(workload_pod, pod) is not null
        and (quantity = 'pod_labels' or stream = 'tokens' or meter_scope = 'board')

),

by_labels as (

    select
        workers.date,
        workers.meter,
        workers.namespace,
        workers.pod,
        engines.engine,
        'labels' as group_basis
    from workers
    inner join labelled_pods as own
        on (workers.namespace is not distinct from own.namespace) and workers.pod = own.pod
    inner join labelled_pods as others
        on (own.namespace is not distinct from others.namespace) and own.pod_group = others.pod_group
    inner join placed_engines as engines
        on workers.date = engines.date
        and (others.namespace is not distinct from engines.namespace)
        and others.pod = engines.pod
        and {{ is_one_place }}

),

-- The name of the leader, or of the MPI job, that a pod's own name has in it.
named_workers as (

    select
        *,
        nullif(regexp_extract(pod, '^(.+)-[1-9][0-9]{0,3}$', 1), '') as leader,
        nullif(regexp_extract(pod, {{ mpi_job }}, 1), '') as job
    from workers

),

by_names as (

    select
        workers.date,
        workers.meter,
        workers.namespace,
        workers.pod,
        engines.engine,
        'names' as group_basis
    from named_workers as workers
    inner join placed_engines as engines
        on workers.date = engines.date
        and (workers.namespace is not distinct from engines.namespace)
        and (workers.leader = engines.pod or workers.job = regexp_extract(engines.pod, {{ mpi_job }}, 1))
        and {{ is_one_place }}
    left join labelled_pods
        on (workers.namespace is not distinct from labelled_pods.namespace) and workers.pod = labelled_pods.pod
    -- Labels decide where there are any.
    where labelled_pods.pod is null

),

candidates as (

    select * from by_labels
    union all
    select * from by_names

),

final as (

    select
        date,
        meter,
        namespace,
        pod,
        min(engine) as engine,
        min(group_basis) as group_basis
    from candidates
    group by date, meter, namespace, pod
    having min(engine) = max(engine)

)

select * from final
