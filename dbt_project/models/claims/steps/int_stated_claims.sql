-- What labels and the fleet file state of each booked meter: one row per date, meter, slice of the date and claim. A
-- pod works for the engine that the fleet file gives it, else for its own, else for its group's. Whether that engine
-- reports, and who claims a meter of which nothing is stated, is found in int_claimants.
{# int_claimants alone reads it. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}

with booked_meters as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked'

),

unmetered_boards as (

    select * from {{ ref('int_unmetered_boards') }}

),

label_claims as (

    select * from {{ ref('int_label_claims') }}

),

file_claims as (

    select * from {{ ref('int_file_claims') }}

),

engine_days as (

    select * from {{ ref('int_engine_days') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

namesake_boards as (

    select * from {{ ref('int_namesake_boards') }}

),

engine_pods as (

    select * from {{ source('fleet', 'engine_pods') }}

),

-- Entries of the fleet file about pods that hold boards and serve no LLM.
other_work as (

    select * from {{ source('fleet', 'engines') }} where work is not null

),

assigned_devices as (

    select distinct device_uuid from {{ source('fleet', 'assignments') }} where device_uuid is not null

),

pod_groups as (

    select * from {{ ref('int_pod_groups') }}

),

booked_days as (

    select
        date,
        meter_scope,
        meter,
        node,
        {{ gap_cap_us('sampling_interval_seconds', var('grid_seconds')) }} as cap_us,
        false as is_unmetered
    from booked_meters
    union all
    select
        date,
        meter_scope,
        meter,
        node,
        cast(null as double) as cap_us,
        true as is_unmetered
    from unmetered_boards

),

pods as (

    select distinct
        namespace,
        pod,
        coalesce(namespace || '/', '') || pod as name
    from label_claims
    where pod is not null

),

pod_owners as (

    select
        pods.namespace,
        pods.pod,
        coalesce(owners.engine, pods.name) as engine,
        case when owners.work is not null then coalesce(owners.model, owners.work) end as model,
        owners.deployment,
        owners.team,
        owners.role,
        owners.work
    from pods
    inner join (
        select entry, pod, is_prefix, engine, model, deployment, team, role, work from engine_pods
        union all
        select
            entry,
            engine as pod,
            is_prefix,
            cast(null as {{ dbt.type_string() }}) as engine,
            model,
            deployment,
            team,
            role,
            work
        from other_work
    ) as owners
        on {{ fits('pods.name', 'owners.pod', 'owners.is_prefix') }}
    qualify row_number() over (partition by pods.namespace, pods.pod order by owners.entry) = 1

),

-- A pod may have a label for what it does; one that embeds or ranks has requests and no tokens.
labelled_work as (

    select
        namespace,
        pod,
        min(work) as work,
        min(model) as model
    from (
        select
            case when workload_pod is null then namespace else workload_namespace end as namespace,
            coalesce(workload_pod, pod) as pod,
            case when work in ('training', 'embeddings', 'batch') then work else 'other' end as work,
            work as model
        from series
        where meter_scope = 'board' and work is not null
        union all
        select
            namespace,
            pod,
            'embeddings' as work,
            coalesce(model, deployment, 'embeddings') as model
        from series
        where quantity = 'other_requests' and pod is not null
    ) as labelled
    group by namespace, pod

),

assigned_work as (

    select
        assigned.engine,
        coalesce(other_work.model, other_work.work) as model,
        other_work.deployment,
        other_work.team,
        other_work.work
    from (select distinct engine from file_claims where engine is not null) as assigned
    inner join other_work on {{ fits('assigned.engine', 'other_work.engine', 'other_work.is_prefix') }}
    qualify row_number() over (partition by assigned.engine order by other_work.entry) = 1

),

engine_jobs as (

    select distinct date, pod from engine_days where namespace is null and pod is not null

),

-- Pods in which one of several engines of one name reports.
namesake_pods as (

    select
        date,
        namespace,
        pod,
        min(label_engine) as label_engine
    from engine_days
    where separated_by is not null and pod is not null
    group by date, namespace, pod

),

lone_jobs as (

    select
        label_claims.date,
        booked_days.node,
        min(label_claims.pod) as pod
    from label_claims
    inner join booked_days on label_claims.date = booked_days.date and label_claims.meter = booked_days.meter
    group by label_claims.date, booked_days.node
    having min(label_claims.pod) = max(label_claims.pod)
        and max(label_claims.namespace) is null
        and max(label_claims.container) is null

),

-- A batch job has no namespace, and its engine seldom reports the job's name: a job alone on its node claims for the
-- engine that serves there.
by_labels as (

    select
        booked_days.date,
        booked_days.meter_scope,
        booked_days.meter,
        booked_days.node,
        label_claims.slice_start_us,
        label_claims.slice_end_us,
        label_claims.held_start_us,
        label_claims.held_end_us,
        case
            when label_claims.is_silence then 'silence'
            when lone_jobs.pod = label_claims.pod and pod_owners.engine is null and engine_jobs.pod is null
                then 'lone_job'
            else 'pod_labels'
        end as claim_basis,
        label_claims.namespace,
        label_claims.pod,
        label_claims.container,
        label_claims.mig_instance,
        label_claims.mig_slices,
        label_claims.mig_instance_slices,
        label_claims.mig_memory_gb,
        coalesce(namesake_boards.engine, pod_owners.engine, pod_groups.engine) as engine,
        coalesce(
            pod_owners.model,
            case when coalesce(pod_owners.engine, pod_groups.engine) is null then labelled_work.model end
        ) as model,
        pod_owners.deployment,
        pod_owners.team,
        pod_owners.role,
        label_claims.held_by,
        case when pod_owners.engine is null then pod_groups.group_basis end as group_basis,
        coalesce(
            pod_owners.work,
            case when coalesce(pod_owners.engine, pod_groups.engine) is null then labelled_work.work end
        ) as work
    from booked_days
    inner join label_claims on booked_days.date = label_claims.date and booked_days.meter = label_claims.meter
    left join pod_owners
        on label_claims.namespace is not distinct from pod_owners.namespace
        and label_claims.pod = pod_owners.pod
    left join pod_groups
        on label_claims.date = pod_groups.date
        and label_claims.labelled_board = pod_groups.meter
        and (label_claims.namespace is not distinct from pod_groups.namespace)
        and label_claims.pod = pod_groups.pod
    left join namesake_pods
        on label_claims.date = namesake_pods.date
        and (label_claims.namespace is not distinct from namesake_pods.namespace)
        and label_claims.pod = namesake_pods.pod
    left join namesake_boards
        on label_claims.date = namesake_boards.date
        and label_claims.labelled_board = namesake_boards.meter
        and coalesce(label_claims.container, '') = namesake_boards.container
        and coalesce(pod_owners.engine, pod_groups.engine, namesake_pods.label_engine) = namesake_boards.label_engine
    left join labelled_work
        on (label_claims.namespace is not distinct from labelled_work.namespace)
        and label_claims.pod = labelled_work.pod
    left join engine_jobs
        on label_claims.date = engine_jobs.date
        and label_claims.namespace is null
        and label_claims.pod = engine_jobs.pod
    left join lone_jobs on label_claims.date = lone_jobs.date and booked_days.node = lone_jobs.node
    left join assigned_devices on label_claims.meter = assigned_devices.device_uuid
    -- Of a board without a pod the fleet file may know more (int_file_claims).
    where assigned_devices.device_uuid is null or not coalesce(label_claims.is_free, false)

),

claims as (

    select * from by_labels
    union all
    select
        file_claims.date,
        file_claims.meter_scope,
        file_claims.meter,
        file_claims.node,
        file_claims.slice_start_us,
        file_claims.slice_end_us,
        file_claims.held_start_us,
        file_claims.held_end_us,
        file_claims.claim_basis,
        file_claims.namespace,
        file_claims.pod,
        file_claims.container,
        file_claims.mig_instance,
        file_claims.mig_slices,
        file_claims.mig_instance_slices,
        file_claims.mig_memory_gb,
        file_claims.engine,
        coalesce(file_claims.model, assigned_work.model) as model,
        coalesce(file_claims.deployment, assigned_work.deployment) as deployment,
        coalesce(file_claims.team, assigned_work.team) as team,
        file_claims.role,
        file_claims.held_by,
        cast(null as {{ dbt.type_string() }}) as group_basis,
        assigned_work.work
    from file_claims
    left join assigned_work on file_claims.engine = assigned_work.engine

),

final as (

    select
        claims.*,
        booked_days.cap_us,
        booked_days.is_unmetered
    from claims
    inner join booked_days on {{ equal_keys('claims', 'booked_days', ['date', 'meter_scope', 'meter']) }}

)

select * from final
