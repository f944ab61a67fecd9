-- Which engine claims each booked meter, in slices of a date: one row per date, meter, slice and engine. By pod labels, else by the fleet file,
-- else by the node where one model is alone there; else the claimant is `__unknown__`. A pod works for the engine that
-- the fleet file gives it, else for its own, else for its group's. `held_by`: the pod or engine that is known to hold the board where the claimant is not.
with booked_meters as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked'

),

unmetered_boards as (

    select * from {{ ref('int_unmetered_boards') }}

),

label_claims as (

    select * from {{ ref('int_label_claims') }}

),

engine_days as (

    select * from {{ ref('int_engine_days') }}

),

series as (

    select * from {{ ref('stg_series') }}

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

file_claims as (

    select * from {{ ref('int_file_claims') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

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

-- First and last sample, neighbours included: a sample after the date shows that the meter, or the engine, still exists.
meter_ends as (

    select
        series.meter_scope,
        series.meter,
        min(series_days.first_us) as first_us,
        max(series_days.last_us) as last_us
    from series_days
    inner join series on series_days.series_id = series.series_id
    where series.quantity in ('energy', 'power')
    group by series.meter_scope, series.meter

),

engine_ends as (

    select
        series.engine,
        min(series_days.first_us) as first_us,
        max(series_days.last_us) as last_us
    from series_days
    inner join series on series_days.series_id = series.series_id
    where series.stream = 'tokens'
    group by series.engine

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
        select entry, engine as pod, is_prefix, cast(null as {{ dbt.type_string() }}) as engine, model, deployment, team, role, work
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

lone_jobs as (

    select
        label_claims.date,
        booked_days.node,
        min(label_claims.pod) as pod
    from label_claims
    inner join booked_days on label_claims.date = booked_days.date and label_claims.meter = booked_days.meter
    group by label_claims.date, booked_days.node
    having min(label_claims.pod) = max(label_claims.pod) and max(label_claims.namespace) is null and max(label_claims.container) is null

),

-- A batch job has no namespace, and its engine seldom reports the job's name: a job alone on its node claims for the engine that serves there.
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
            when lone_jobs.pod = label_claims.pod and pod_owners.engine is null and engine_jobs.pod is null then 'lone_job'
            else 'pod_labels'
        end as claim_basis,
        label_claims.namespace,
        label_claims.pod,
        label_claims.container,
        label_claims.mig_instance,
        label_claims.mig_slices,
        label_claims.mig_instance_slices,
        label_claims.mig_memory_gb,
        coalesce(pod_owners.engine, pod_groups.engine) as engine,
        coalesce(pod_owners.model, case when coalesce(pod_owners.engine, pod_groups.engine) is null then labelled_work.model end) as model,
        pod_owners.deployment,
        pod_owners.team,
        pod_owners.role,
        label_claims.held_by,
        case when pod_owners.engine is null then pod_groups.group_basis end as group_basis,
        coalesce(pod_owners.work, case when coalesce(pod_owners.engine, pod_groups.engine) is null then labelled_work.work end) as work
    from booked_days
    inner join label_claims on booked_days.date = label_claims.date and booked_days.meter = label_claims.meter
    left join pod_owners
        on label_claims.namespace is not distinct from pod_owners.namespace and label_claims.pod = pod_owners.pod
    left join pod_groups
        on label_claims.date = pod_groups.date
        and label_claims.labelled_board = pod_groups.meter
        and (label_claims.namespace is not distinct from pod_groups.namespace)
        and label_claims.pod = pod_groups.pod
    left join labelled_work
        on (label_claims.namespace is not distinct from labelled_work.namespace) and label_claims.pod = labelled_work.pod
    left join engine_jobs
        on label_claims.date = engine_jobs.date and label_claims.namespace is null and label_claims.pod = engine_jobs.pod
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

-- One engine, or several of one model, alone on the node.
lone_models as (

    select
        date,
        node,
        min(model) as model
    from engine_days
    where node is not null
    group by date, node
    having min(model) = max(model)

),

pods_without_engines as (

    select distinct
        claims.date,
        claims.namespace,
        claims.pod,
        claims.engine
    from claims
    left join engine_days
        on claims.date = engine_days.date
        and (
            claims.engine = engine_days.engine
            or (claims.engine is null and claims.namespace is not distinct from engine_days.namespace and claims.pod = engine_days.pod)
        )
    where claims.claim_basis = 'pod_labels' and claims.pod is not null and engine_days.engine is null

),

engine_series as (

    {% for match in [
        'pods.engine = series.engine',
        "pods.pod = series.pod and coalesce(pods.namespace, '') = coalesce(series.namespace, '') and pods.engine is null"
    ] -%}
    select
        pods.date,
        pods.namespace as claimed_namespace,
        pods.pod as claimed_pod,
        series.*
    from pods_without_engines as pods
    inner join series on {{ match }}
    where series.stream = 'tokens' and series.model is not null
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

),

-- Both neighbours of a silence know of it, whichever landed first. Only the end of a series has no neighbour.
neighboured_series_days as (

    select
        *,
        lead(first_us) over (partition by series_id order by date) as next_first_us,
        lead(date) over (partition by series_id order by date) as next_date
    from series_days

),

-- A pod whose engine has no sample on the date keeps the engine that it reported last, if that engine reports again later.
silent_engines as (

    select engine_series.*
    from engine_series
    inner join neighboured_series_days as silences
        on engine_series.series_id = silences.series_id
        and silences.date < engine_series.date
        and engine_series.date < silences.next_date
    where silences.next_first_us - silences.last_us <= {{ var('max_spread_seconds') | int * 1000000 }}
    qualify row_number() over (
        partition by engine_series.date, engine_series.claimed_namespace, engine_series.claimed_pod
        order by silences.last_us desc, engine_series.engine, engine_series.model, engine_series.series_id
    ) = 1

),

known_engines_of_dates as (

    select
        date,
        engine,
        model,
        namespace,
        pod,
        container,
        node,
        deployment,
        team,
        role
    from engine_days
    union all
    select
        date,
        engine,
        model,
        claimed_namespace as namespace,
        claimed_pod as pod,
        cast(null as {{ dbt.type_string() }}) as container,
        cast(null as {{ dbt.type_string() }}) as node,
        deployment,
        team,
        role
    from silent_engines

),

engine_pods_of_dates as (

    select distinct date, namespace, pod from known_engines_of_dates where pod is not null

),

-- An engine whose labels lack the pod is found by its container, but never where another engine reports from the board's own pod: containers of
-- many pods have the same name.
matched as (

    select
        claims.*,
        engine_days.engine as matched_engine,
        engine_days.model as matched_model,
        engine_days.namespace as matched_namespace,
        engine_days.deployment as matched_deployment,
        engine_days.team as matched_team,
        engine_days.role as matched_role,
        coalesce(claims.claim_basis in ('none', 'lone_job') and engine_days.engine is not null, false) as is_by_node
    from claims
    left join lone_models
        on claims.date = lone_models.date and claims.node = lone_models.node and claims.claim_basis in ('none', 'lone_job')
    left join engine_pods_of_dates
        on claims.date = engine_pods_of_dates.date
        and claims.namespace is not distinct from engine_pods_of_dates.namespace
        and claims.pod = engine_pods_of_dates.pod
    left join known_engines_of_dates as engine_days
        on claims.date = engine_days.date
        and (
            (claims.claim_basis = 'pod_labels' and claims.engine = engine_days.engine)
            or (claims.claim_basis = 'pod_labels'
                and claims.engine is null
                and claims.namespace is not distinct from engine_days.namespace
                and (
                    claims.pod = engine_days.pod
                    or (engine_days.pod is null and engine_pods_of_dates.pod is null and claims.container = engine_days.container)
                ))
            or (claims.claim_basis = 'fleet_file'
                and (claims.engine = engine_days.engine or (claims.engine is null and claims.model = engine_days.model)))
            or (claims.claim_basis in ('none', 'lone_job') and lone_models.node = engine_days.node)
        )

),

known_engines as (

    select
        engine,
        max(case when is_tokens_complete then 1 else 0 end) = 1 as is_tokens_complete
    from series
    where stream = 'tokens'
    group by engine

),

named as (

    select
        matched.date,
        matched.meter_scope,
        matched.meter,
        matched.slice_start_us,
        matched.slice_end_us,
        -- Without labels or an assignment that last longer, a meter is held while it, or the engine of its node, has samples.
        case
            when claim_basis in ('none', 'watched_unallocated')
                and least(meter_ends.first_us, coalesce(engine_ends.first_us, meter_ends.first_us)) - matched.held_start_us > booked_days.cap_us
                then least(meter_ends.first_us, coalesce(engine_ends.first_us, meter_ends.first_us), matched.held_end_us)
            else matched.held_start_us
        end as held_start_us,
        case
            when claim_basis in ('none', 'watched_unallocated')
                and matched.held_end_us - greatest(meter_ends.last_us, coalesce(engine_ends.last_us, meter_ends.last_us)) > booked_days.cap_us
                then greatest(meter_ends.last_us, coalesce(engine_ends.last_us, meter_ends.last_us), matched.held_start_us)
            else matched.held_end_us
        end as held_end_us,
        case
            when claim_basis in ('fleet_file_unallocated', 'watched_unallocated') then {{ unallocated() }}
            when claim_basis = 'pod_labels' and pod is null and container is null then {{ unallocated() }}
            else coalesce(matched_engine, matched.engine, case when work is not null then coalesce(namespace || '/', '') || pod end, {{ unknown() }})
        end as engine,
        coalesce(matched_model, model) as model,
        coalesce(matched_namespace, namespace) as namespace,
        coalesce(matched.deployment, matched_deployment) as deployment,
        coalesce(team, matched_team) as named_team,
        coalesce(role, matched_role, 'unified') as role,
        coalesce(namespace || '/', '') || coalesce(pod, container) as pod,
        held_by as held_by_labels,
        mig_instance,
        mig_slices,
        mig_instance_slices,
        mig_memory_gb,
        case when is_by_node then 'node' when group_basis = 'names' then 'group_name' else claim_basis end as claim_basis,
        coalesce(known_engines.is_tokens_complete, false) as is_tokens_complete,
        work,
        booked_days.is_unmetered
    from matched
    left join known_engines on coalesce(matched.matched_engine, matched.engine) = known_engines.engine
    inner join booked_days on {{ equal_keys('matched', 'booked_days', ['date', 'meter_scope', 'meter']) }}
    left join meter_ends on matched.meter_scope = meter_ends.meter_scope and matched.meter = meter_ends.meter
    left join engine_ends on matched.matched_engine = engine_ends.engine

),

teams as (

    select * from {{ source('fleet', 'teams') }}

),

final as (

    select
        named.*,
        coalesce(named.named_team, teams.team) as team,
        case
            when named.engine = {{ unallocated() }} then null
            when named.claim_basis = 'silence' then named.held_by_labels
            when named.engine <> {{ unknown() }} then named.engine
            else named.pod
        end as held_by
    from named
    left join teams on named.namespace = teams.namespace

)

select * from final
