-- Meaning enters here, once: a series gets its quantity, unit and entity from the two catalogues, and what its labels
-- lack from the fleet file. A counter of several token classes (a prompt token is input, and computed or cached) has a
-- row for each.
with series as (

    select * from {{ ref('stg_raw_series') }}

),

sources as (

    select * from {{ source('fleet', 'sources') }}

),

nodes as (

    select * from {{ source('fleet', 'nodes') }}

),

node_aliases as (

    select * from {{ source('fleet', 'node_aliases') }}

),

devices as (

    select * from {{ source('fleet', 'devices') }}

),

engines as (

    select * from {{ source('fleet', 'engines') }}

),

engine_targets as (

    select * from {{ source('fleet', 'engine_targets') }}

),

model_aliases as (

    select * from {{ source('fleet', 'model_aliases') }}

),

only_site as (

    select min(site) as site from {{ source('fleet', 'sites') }} having count(*) = 1

),

metric_catalog as (

    select * from {{ ref('stg_metric_catalog') }}

),

listed_labels as (

    select * from {{ ref('label_catalog') }}

),

-- What a cluster adds to the pages of any exporter is listed once, under `any`.
label_catalog as (

    select source_kind, label, attribute, rank from listed_labels where source_kind <> 'any'
    union all
    select kinds.source_kind, listed_labels.label, listed_labels.attribute, listed_labels.rank
    from listed_labels
    cross join (select distinct source_kind from metric_catalog) as kinds
    where listed_labels.source_kind = 'any'

),

device_type_aliases as (

    select * from {{ ref('stg_device_type_aliases') }}

),

host_names as (

    select * from {{ ref('stg_host_names') }}

),

repeated_boards as (

    select * from {{ ref('stg_repeated_boards') }}

),

labels as (

    {{ label_rows(ref('stg_raw_series')) }}

),

-- An index under a label that should hold a UUID is an index: unique on its host alone. The UUID of an instance that
-- repeats its board's power is the instance's number.
named_labels as (

    select
        series.series_id,
        case
            when label_catalog.attribute = 'device_uuid' and {{ is_bare_index('labels.value') }} then 'device_index'
            else label_catalog.attribute
        end as attribute,
        label_catalog.rank,
        labels.label,
        case
            when repeated_boards.uuid is not null then repeated_boards.board_uuid
            when label_catalog.attribute = 'device_uuid' then {{ whole_uuid('series.source_kind', 'labels.value') }}
            else labels.value
        end as value
    from labels
    inner join series on labels.series_id = series.series_id
    inner join label_catalog
        on series.source_kind = label_catalog.source_kind and labels.label = label_catalog.label
    left join repeated_boards on label_catalog.attribute = 'device_uuid' and labels.value = repeated_boards.uuid
    where labels.value <> '' and not (label_catalog.attribute = 'device_uuid' and {{ is_no_identity('labels.value') }})
    union all
    select
        labels.series_id,
        'mig_instance' as attribute,
        90 as rank,
        labels.label,
        labels.value
    from labels
    inner join repeated_boards on labels.value = repeated_boards.uuid

),

preferred_labels as (

    select
        series_id,
        attribute,
        value
    from named_labels
    qualify row_number() over (partition by series_id, attribute order by rank, label) = 1

),

attributes as (

    select
        series_id,
        {% for attribute in [
            'device_uuid', 'device_index', 'device_type', 'node', 'namespace', 'pod', 'container', 'job', 'engine',
            'instance', 'model', 'deployment', 'role', 'role_hint',
            'tensor_rank', 'pipeline_rank', 'data_rank', 'mig_instance', 'mig_profile', 'module', 'rack', 'pdu', 'pdu_input', 'facility',
            'bucket_le', 'workload_namespace', 'workload_pod', 'workload_container', 'scrape_job',
            'cluster', 'pod_group', 'pod_group_index', 'work'
        ] -%}
        max(case when attribute = '{{ attribute }}' then value end) as {{ attribute }}{{ ',' if not loop.last }}
        {% endfor %}
    from preferred_labels
    group by series_id

),

-- Some names are an exporter's only beside a label of its own: another program may begin its names with `amd_`, too.
own_labels as (

    select distinct
        series.series_id,
        metric_catalog.needs_labels
    from series
    inner join metric_catalog
        on series.source_kind = metric_catalog.source_kind
        and series.metric = metric_catalog.metric
        and metric_catalog.needs_labels is not null
    inner join labels
        on series.series_id = labels.series_id
        and labels.value <> ''
        and position(' ' || labels.label || ' ' in ' ' || metric_catalog.needs_labels || ' ') > 0

),

catalogued as (

    select
        series.series_id,
        series.source,
        series.source_kind,
        series.metric,
        metric_catalog.stream,
        metric_catalog.quantity,
        metric_catalog.kind,
        metric_catalog.factor,
        metric_catalog.token_class,
        coalesce(metric_catalog.level, 'engine') as level,
        metric_catalog.meter_scope,
        metric_catalog.rank,
        metric_catalog.needs_labels is null or own_labels.series_id is not null as is_understood
    from series
    inner join metric_catalog
        on series.source_kind = metric_catalog.source_kind
        and series.metric = metric_catalog.metric
        and coalesce(metric_catalog.source, series.source) = series.source
    left join own_labels on series.series_id = own_labels.series_id and metric_catalog.needs_labels = own_labels.needs_labels
    left join labels as matched_labels
        on series.series_id = matched_labels.series_id and metric_catalog.match_label = matched_labels.label
    where (
        metric_catalog.match_label is null
        or matched_labels.value = metric_catalog.match_value
        or (metric_catalog.match_value = '*' and matched_labels.value <> '')
    )
        and (metric_catalog.needs_labels is null or own_labels.series_id is not null or metric_catalog.stream = 'power')

),

-- A bare engine or a node's meter is often known by its address alone. Model and device type are escaped below, after
-- their aliases.
located as (

    select
        series_id,
        {% for attribute in [
            'device_uuid', 'device_index', 'device_type', 'model', 'role', 'role_hint', 'tensor_rank', 'pipeline_rank',
            'data_rank', 'mig_instance', 'mig_profile',
            'module', 'pdu', 'pdu_input', 'bucket_le', 'scrape_job', 'cluster', 'work'
        ] -%}
        {{ attribute }},
        {% endfor -%}
        {% for attribute in [
            'namespace', 'pod', 'container', 'job', 'engine', 'instance', 'deployment', 'rack', 'facility',
            'workload_namespace', 'workload_pod',
            'workload_container'
        ] -%}
        {{ name_of_source(attribute) }} as {{ attribute }},
        {% endfor -%}
        pod_group || coalesce('/' || pod_group_index, '') as pod_group,
        split_part(coalesce(node, case when coalesce(workload_pod, pod) is null then instance end), ':', 1) as named_node
    from attributes

),

-- What is unique on its host alone is a device of its node, whatever its values are elsewhere.
identified as (

    select
        located.*,
        coalesce(node_aliases.node, host_names.node, located.named_node) as own_node,
        coalesce(
            located.device_uuid,
            coalesce(node_aliases.node, host_names.node, located.named_node, series.source) || '/' || located.device_index
        ) as device,
        device_infos.metric is not null as is_device_info
    from located
    inner join series on located.series_id = series.series_id
    left join (select distinct source_kind, metric from metric_catalog where quantity = 'device_info') as device_infos
        on series.source_kind = device_infos.source_kind and series.metric = device_infos.metric
    left join node_aliases on located.named_node = node_aliases.alias
    left join sources on series.source = sources.source
    left join host_names on coalesce(sources.site, '') = host_names.site and located.named_node = host_names.name

),

-- Some exporters name a board's type in a series of its own.
boards as (

    select
        *,
        case when device is not null
            then min(case when is_device_info then device_type end) over (partition by device)
        end as info_device_type
    from identified

),

placed as (

    select
        catalogued.*,
        located.device as device_uuid,
        coalesce(devices.node, located.own_node) as node_by_labels,
        coalesce(
            devices.device_type,
            device_type_aliases.device_type,
            {{ name_of_source('coalesce(located.device_type, located.info_device_type)') }}
        ) as device_type,
        located.namespace,
        -- A batch job holds its boards as a pod does.
        coalesce(located.pod, located.job) as pod,
        located.container,
        -- Whether the names above are the workload's or the exporter's own is decided per date: int_board_labels.
        located.workload_namespace,
        located.workload_pod,
        located.workload_container,
        located.job as batch_job,
        located.scrape_job,
        located.cluster,
        located.pod_group,
        located.work,
        -- Where the number of an instance is not there, its pod holds one of that profile.
        coalesce(
            located.mig_instance,
            case when {{ mig_slices('located.mig_profile') }} is not null
                then located.mig_profile || coalesce(' of ' || coalesce(located.workload_pod, located.pod), '')
            end
        ) as mig_instance,
        {{ name_of_source('located.mig_profile') }} as mig_profile,
        {{ mig_slices('located.mig_profile') }} as mig_slices,
        {{ mig_instance_slices('located.mig_profile') }} as mig_instance_slices,
        {{ mig_memory_gb('located.mig_profile') }} as mig_memory_gb,
        located.deployment as deployment_by_labels,
        located.rack,
        {{ bucket_bound('located.bucket_le') }} as bucket_bound_seconds,
        case when located.role in ('prefill', 'decode') then located.role end as role_by_labels,
        -- A name that is no role of ours, such as Dynamo's `backend`, shows one only beside other engines:
        -- int_engine_roles.
        coalesce(located.role_hint, located.role) as role_hint,
        coalesce(located.data_rank, '0') as data_rank,
        {% for rank in ['pipeline_rank', 'tensor_rank'] -%}
        case when located.{{ rank }} is null then 0 else coalesce({{ rank_of('located.' ~ rank) }}, {{ last_rank() }}) end as {{ rank }},
        case when {{ rank_of('located.' ~ rank) }} is null then coalesce(located.{{ rank }}, '') else '' end as {{ rank }}_word,
        {% endfor -%}
        coalesce(model_aliases.model, {{ name_of_source('located.model') }}) as model_by_labels,
        case
            when catalogued.stream <> 'tokens' then null
            -- A frontend or gateway serves many engines: it counts for all engines of a model.
            when catalogued.level in ('frontend', 'gateway')
                then catalogued.level || ':' || coalesce(located.namespace || '/', '')
                    || coalesce(model_aliases.model, {{ name_of_source('located.model') }}, {{ unknown() }})
            else coalesce(
                engine_targets.engine,
                located.engine,
                located.namespace || '/' || located.pod,
                located.pod,
                located.instance,
                catalogued.source
            )
        end as engine,
        case
            when not catalogued.is_understood then null
            when catalogued.meter_scope = 'board' then located.device
            when catalogued.meter_scope = 'module'
                then coalesce(devices.node, located.own_node) || '/' || coalesce(located.module, located.device_uuid, located.device_index)
            when catalogued.meter_scope = 'node' then coalesce(devices.node, located.own_node)
            -- A rack has several feeds, each with a meter of its own.
            when catalogued.meter_scope = 'rack'
                then coalesce(located.rack, {{ unknown() }}) || coalesce('/' || located.pdu, '') || coalesce('/' || located.pdu_input, '')
            when catalogued.meter_scope = 'facility' then coalesce(located.facility, sources.site, {{ unknown() }})
        end as meter
    from catalogued
    left join boards as located on catalogued.series_id = located.series_id
    left join devices on located.device = devices.device_uuid
    left join device_type_aliases on coalesce(located.device_type, located.info_device_type) = device_type_aliases.alias
    left join model_aliases on located.model = model_aliases.alias
    left join engine_targets on located.instance = engine_targets.target
    left join sources on catalogued.source = sources.source

),

-- A rank without digits has no number.
ranked as (

    select
        *,
        pipeline_rank_word || tensor_rank_word as rank_words,
        max(case when stream = 'tokens' and pipeline_rank_word || tensor_rank_word <> '' then 1 else 0 end)
            over (partition by engine) = 1 and engine is not null as has_rank_words
    from placed

),

-- Of the engines with such a rank, the labels of each series besides its ranks.
other_labels as (

    select
        worded.series_id,
        {{ joined_in_order("labels.label || '=' || labels.value") }} as other_labels
    from (select distinct series_id, source_kind from ranked where has_rank_words) as worded
    inner join labels on worded.series_id = labels.series_id
    left join label_catalog
        on worded.source_kind = label_catalog.source_kind
        and labels.label = label_catalog.label
        and label_catalog.attribute in ('tensor_rank', 'pipeline_rank')
    where label_catalog.label is null
    group by worded.series_id

),

-- Ranks of one engine that all report the same tokens: only the first of each data-parallel group counts. Series that
-- differ only in ranks without digits repeat the same tokens, too: the first by text counts, and a numbered one comes
-- before it.
counted_series as (

    select ranked.*
    from ranked
    left join other_labels on ranked.series_id = other_labels.series_id
    qualify ranked.stream <> 'tokens'
        or case
            when other_labels.series_id is null or ranked.rank_words = ''
                then rank() over (
                    partition by ranked.source, ranked.metric, ranked.engine, ranked.data_rank,
                    other_labels.series_id is null, ranked.rank_words = ''
                    order by ranked.pipeline_rank, ranked.tensor_rank
                ) = 1
            else rank() over (
                partition by ranked.source, ranked.metric, ranked.engine, ranked.data_rank, other_labels.other_labels
                order by ranked.pipeline_rank, ranked.tensor_rank, ranked.pipeline_rank_word, ranked.tensor_rank_word
            ) = 1
        end

),

-- The fleet file's entry of an engine overrules the engine's labels.
described_engines as (

    select
        named.engine,
        engines.model,
        engines.deployment,
        engines.team,
        engines.role,
        engines.node
    from (select distinct engine from placed where engine is not null) as named
    inner join engines on {{ fits('named.engine', 'engines.engine', 'engines.is_prefix') }}
    qualify row_number() over (partition by named.engine order by engines.entry) = 1

),

described as (

    select
        counted_series.*,
        coalesce(described_engines.node, counted_series.node_by_labels) as node,
        coalesce(described_engines.deployment, counted_series.deployment_by_labels) as deployment,
        coalesce(described_engines.model, counted_series.model_by_labels) as model,
        coalesce(described_engines.role, counted_series.role_by_labels) as role,
        case
            when described_engines.role is not null then 'fleet_file'
            when counted_series.role_by_labels is not null then 'labels'
        end as role_basis,
        described_engines.team
    from counted_series
    left join described_engines on counted_series.engine = described_engines.engine

),

final as (

    select
        described.series_id,
        described.source,
        described.source_kind,
        described.metric,
        described.stream,
        described.quantity,
        described.kind,
        described.factor,
        described.token_class,
        described.level,
        described.meter_scope,
        described.rank,
        described.device_uuid,
        described.node,
        described.device_type,
        described.namespace,
        described.pod,
        described.container,
        described.workload_namespace,
        described.workload_pod,
        described.workload_container,
        described.batch_job,
        described.scrape_job,
        described.cluster,
        described.pod_group,
        described.work,
        described.mig_instance,
        described.mig_profile,
        described.mig_slices,
        described.mig_instance_slices,
        described.mig_memory_gb,
        described.deployment,
        described.model,
        described.role,
        described.role_basis,
        described.role_hint,
        described.team,
        described.engine,
        described.bucket_bound_seconds,
        described.meter,
        coalesce(nodes.site, sources.site, only_site.site, {{ unknown() }}) as site,
        coalesce(nodes.rack, described.rack) as rack,
        coalesce(described.device_type, nodes.device_type) as meter_device_type,
        coalesce(sources.tokens_complete, false) as is_tokens_complete,
        -- A counter belongs to its board, whatever labels it carries at the moment; an engine's counters live and die
        -- with their series.
        case when described.stream = 'power'
            then min(described.series_id) over (partition by described.stream, described.source, described.metric, described.meter)
            else described.series_id
        end as reading_id
    from described
    left join nodes on described.node = nodes.node
    left join sources on described.source = sources.source
    left join only_site on true

)

select * from final
