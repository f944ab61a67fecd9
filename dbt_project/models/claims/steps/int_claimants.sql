-- Which engine claims each booked meter, in slices of a date: one row per date, meter, slice and engine. What labels
-- and the fleet file state (int_stated_claims) is matched to the engines that report; of a meter of which nothing is
-- stated, the claimant is the model that is alone on the node, else `__unknown__`. `held_by`: the pod or engine that is
-- known to hold the board where the claimant is not.
{# An engine of another pod than the one that the board's labels name. #}
{% set is_beside %}
    engine_days.shared_meter = claims.meter and (engine_days.pod <> claims.pod or engine_days.namespace <> claims.namespace)
{%- endset %}

with claims as (

    select * from {{ ref('int_stated_claims') }}

),

engine_days as (

    select * from {{ ref('int_engine_days') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

-- First and last sample, neighbours included: a sample after the date shows that the meter, or the engine, still
-- exists.
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

cut_off_meters as (

    select * from {{ ref('int_cut_off_meters') }}

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
            claims.engine in (engine_days.engine, engine_days.label_engine)
            or (
                claims.engine is null
                and claims.namespace is not distinct from engine_days.namespace
                and claims.pod = engine_days.pod
            )
        )
    where claims.claim_basis = 'pod_labels'
        and claims.pod is not null
        and engine_days.engine is null

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

-- A pod whose engine has no sample on the date keeps the engine that it reported last, if that engine reports again
-- later.
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

-- Pods may share a board by turns while its exporter names one of them: the only board of its node, held by a pod that
-- reports, beside a pod that reports from the node for as long as the board is held, and that no board's labels name.
lone_boards as (

    select
        claims.date,
        claims.node,
        min(claims.meter) as meter
    from claims
    left join engine_days
        on claims.date = engine_days.date
        and claims.namespace is not distinct from engine_days.namespace
        and claims.pod = engine_days.pod
    where claims.meter_scope = 'board' and claims.node is not null
    group by claims.date, claims.node
    having min(claims.meter) = max(claims.meter)
        and min(claims.claim_basis) = 'pod_labels'
        and max(claims.claim_basis) = 'pod_labels'
        and count(*) = count(engine_days.pod)
        and min(engine_days.pod) = max(engine_days.pod)
        and count(claims.engine) + count(claims.mig_instance) + count(claims.work) = 0

),

engine_spans as (

    select
        series_days.date,
        series.engine,
        min(series_days.first_us) as first_us,
        max(series_days.last_us) as last_us
    from series_days
    inner join series on series_days.series_id = series.series_id
    where series.stream = 'tokens' and series.level = 'engine'
    group by series_days.date, series.engine

),

unnamed_engines as (

    select
        engine_days.date,
        engine_days.engine,
        lone_boards.meter
    from engine_days
    inner join lone_boards on engine_days.date = lone_boards.date and engine_days.node = lone_boards.node
    left join claims
        on engine_days.date = claims.date
        and (
            claims.engine in (engine_days.engine, engine_days.label_engine)
            or (claims.namespace is not distinct from engine_days.namespace and claims.pod = engine_days.pod)
        )
    where engine_days.pod is not null and claims.date is null

),

-- Or it names them in turn, each again after another one: pods that this board alone names. A pod that takes over from
-- another one is named after it.
pod_spans as (

    select
        date,
        namespace,
        pod,
        min(meter) as meter,
        min(held_start_us) as from_us,
        max(held_end_us) as to_us
    from claims
    where meter_scope = 'board' and claim_basis = 'pod_labels' and pod is not null
    group by date, namespace, pod
    having min(meter) = max(meter)
        and count(engine) + count(mig_instance) + count(work) = 0

),

pods_in_turn as (

    select distinct
        pods.date,
        pods.namespace,
        pods.pod,
        pods.meter
    from pod_spans as pods
    inner join pod_spans as others
        on {{ equal_keys('pods', 'others', ['date', 'meter']) }}
        and (pods.pod <> others.pod or pods.namespace <> others.namespace)
        and pods.from_us < others.to_us
        and others.from_us < pods.to_us

),

sharing_engines as (

    select * from unnamed_engines
    union all
    select
        engine_days.date,
        engine_days.engine,
        pods_in_turn.meter
    from engine_days
    inner join pods_in_turn
        on engine_days.date = pods_in_turn.date
        and engine_days.namespace is not distinct from pods_in_turn.namespace
        and engine_days.pod = pods_in_turn.pod

),

-- A gateway holds no board, but what serves its model where no engine reports.
known_engines_of_dates as (

    select
        engine_days.date,
        engine_days.engine,
        engine_days.label_engine,
        engine_days.model,
        engine_days.namespace,
        engine_days.pod,
        engine_days.container,
        engine_days.node,
        engine_days.deployment,
        engine_days.team,
        engine_days.role,
        rank() over (
            partition by engine_days.date, engine_days.model order by case when engine_days.level = 'engine' then 0 else 1 end
        ) = 1 as serves_its_model,
        sharing_engines.meter as shared_meter,
        engine_spans.first_us,
        engine_spans.last_us
    from engine_days
    left join sharing_engines on engine_days.date = sharing_engines.date and engine_days.engine = sharing_engines.engine
    left join engine_spans on engine_days.date = engine_spans.date and engine_days.label_engine = engine_spans.engine
    union all
    select
        date,
        engine,
        engine as label_engine,
        model,
        claimed_namespace as namespace,
        claimed_pod as pod,
        cast(null as {{ dbt.type_string() }}) as container,
        cast(null as {{ dbt.type_string() }}) as node,
        deployment,
        team,
        role,
        true as serves_its_model,
        cast(null as {{ dbt.type_string() }}) as shared_meter,
        cast(null as bigint) as first_us,
        cast(null as bigint) as last_us
    from silent_engines

),

engine_pods_of_dates as (

    select distinct date, namespace, pod from known_engines_of_dates where pod is not null

),

-- An engine whose labels lack the pod is found by its container, but never where another engine reports from the
-- board's own pod: containers of many pods have the same name.
matched as (

    select
        claims.*,
        engine_days.engine as matched_engine,
        engine_days.label_engine as matched_label_engine,
        engine_days.model as matched_model,
        engine_days.namespace as matched_namespace,
        engine_days.deployment as matched_deployment,
        engine_days.team as matched_team,
        engine_days.role as matched_role,
        case when engine_days.shared_meter = claims.meter then engine_days.pod else claims.pod end as matched_pod,
        coalesce(
            engine_days.engine is not null and (claims.claim_basis in ('none', 'lone_job') or {{ is_beside }}), false
        ) as is_by_node
    from claims
    left join lone_models
        on claims.date = lone_models.date
        and claims.node = lone_models.node
        and claims.claim_basis in ('none', 'lone_job')
    left join engine_pods_of_dates
        on claims.date = engine_pods_of_dates.date
        and claims.namespace is not distinct from engine_pods_of_dates.namespace
        and claims.pod = engine_pods_of_dates.pod
    left join known_engines_of_dates as engine_days
        on claims.date = engine_days.date
        and (
            -- The name alone is that of all engines that have it.
            (claims.claim_basis = 'pod_labels' and claims.engine in (engine_days.engine, engine_days.label_engine))
            or (
                claims.claim_basis = 'pod_labels'
                and claims.engine is null
                and claims.namespace is not distinct from engine_days.namespace
                and (
                    claims.pod = engine_days.pod
                    or (
                        engine_days.pod is null
                        and engine_pods_of_dates.pod is null
                        and claims.container = engine_days.container
                    )
                )
            )
            or (
                claims.claim_basis = 'fleet_file'
                and (
                    claims.engine in (engine_days.engine, engine_days.label_engine)
                    or (claims.engine is null and claims.model = engine_days.model and engine_days.serves_its_model)
                )
            )
            or (claims.claim_basis in ('none', 'lone_job') and lone_models.node = engine_days.node)
            or (
                claims.meter = engine_days.shared_meter
                and claims.claim_basis = 'pod_labels'
                and claims.pod is not null
                and engine_days.first_us - claims.held_start_us <= claims.cap_us
                and claims.held_end_us - engine_days.last_us <= claims.cap_us
            )
        )
    -- Where a slice names several of the pods that share its board, each of their engines has it once.
    qualify not coalesce({{ is_beside }}, false)
        or row_number() over (
            partition by claims.date, claims.meter_scope, claims.meter, claims.slice_start_us, engine_days.engine
            order by case when {{ is_beside }} then 1 else 0 end, claims.namespace, claims.pod
        ) = 1

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
        -- Without labels or an assignment that last longer, a meter is held while it, or the engine of its node, has
        -- samples; where its source fell silent with it, up to the end of the date.
        case
            when claim_basis in ('none', 'watched_unallocated')
                and least(meter_ends.first_us, coalesce(engine_ends.first_us, meter_ends.first_us))
                    - matched.held_start_us > matched.cap_us
                then least(
                    meter_ends.first_us,
                    coalesce(engine_ends.first_us, meter_ends.first_us),
                    matched.held_end_us
                )
            else matched.held_start_us
        end as held_start_us,
        case
            when claim_basis in ('none', 'watched_unallocated')
                and cut_off_meters.meter is null
                and matched.held_end_us
                    - greatest(meter_ends.last_us, coalesce(engine_ends.last_us, meter_ends.last_us)) > matched.cap_us
                then greatest(
                    meter_ends.last_us,
                    coalesce(engine_ends.last_us, meter_ends.last_us),
                    matched.held_start_us
                )
            else matched.held_end_us
        end as held_end_us,
        case
            when claim_basis in ('fleet_file_unallocated', 'watched_unallocated') then {{ unallocated() }}
            when claim_basis = 'pod_labels' and pod is null and container is null then {{ unallocated() }}
            else coalesce(
                matched_engine,
                matched.engine,
                case when work is not null then coalesce(namespace || '/', '') || pod end,
                {{ unknown() }}
            )
        end as engine,
        coalesce(matched_model, model) as model,
        coalesce(matched_namespace, namespace) as namespace,
        coalesce(matched.deployment, matched_deployment) as deployment,
        coalesce(team, matched_team) as named_team,
        coalesce(role, matched_role, 'unified') as role,
        coalesce(case when is_by_node then matched_namespace end || '/', namespace || '/', '') || coalesce(matched_pod, container) as pod,
        held_by as held_by_labels,
        mig_instance,
        mig_slices,
        mig_instance_slices,
        mig_memory_gb,
        case
            when is_by_node then 'node'
            when group_basis = 'names' then 'group_name'
            else claim_basis
        end as claim_basis,
        coalesce(known_engines.is_tokens_complete, false) as is_tokens_complete,
        work,
        matched.is_unmetered
    from matched
    left join known_engines on coalesce(matched.matched_label_engine, matched.engine) = known_engines.engine
    left join meter_ends on matched.meter_scope = meter_ends.meter_scope and matched.meter = meter_ends.meter
    left join cut_off_meters
        on matched.date = cut_off_meters.date
        and matched.meter_scope = cut_off_meters.meter_scope
        and matched.meter = cut_off_meters.meter
    left join engine_ends on matched.matched_label_engine = engine_ends.engine

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
