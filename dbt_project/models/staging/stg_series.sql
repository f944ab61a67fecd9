-- Meaning enters here, once: a series gets its quantity, unit and entity from the two catalogues.
with series as (

    select * from {{ source('raw', 'series') }}

),

sources as (

    select * from {{ source('fleet', 'sources') }}

),

nodes as (

    select * from {{ source('fleet', 'nodes') }}

),

devices as (

    select * from {{ source('fleet', 'devices') }}

),

model_aliases as (

    select * from {{ source('fleet', 'model_aliases') }}

),

only_site as (

    select min(site) as site from {{ source('fleet', 'sites') }} having count(*) = 1

),

metric_catalog as (

    select * from {{ ref('metric_catalog') }}

),

label_catalog as (

    select * from {{ ref('label_catalog') }}

),

device_type_aliases as (

    select * from {{ ref('device_type_aliases') }}

),

labels as (

    {{ label_rows(source('raw', 'series')) }}

),

preferred_labels as (

    select
        series.series_id,
        label_catalog.attribute,
        labels.value
    from labels
    inner join series on labels.series_id = series.series_id
    inner join label_catalog
        on series.source_kind = label_catalog.source_kind and labels.label = label_catalog.label
    where labels.value <> ''
    qualify row_number() over (
        partition by series.series_id, label_catalog.attribute order by label_catalog.rank, labels.label
    ) = 1

),

attributes as (

    select
        series_id,
        {% for attribute in ['device_uuid', 'device_type', 'node', 'namespace', 'pod', 'container', 'engine', 'instance', 'model',
                             'deployment', 'mig_instance', 'mig_profile'] -%}
        max(case when attribute = '{{ attribute }}' then value end) as {{ attribute }}{{ ',' if not loop.last }}
        {% endfor %}
    from preferred_labels
    group by series_id

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
        metric_catalog.meter_scope,
        metric_catalog.rank
    from series
    inner join metric_catalog
        on series.source_kind = metric_catalog.source_kind and series.metric = metric_catalog.metric
    left join labels as matched_labels
        on series.series_id = matched_labels.series_id and metric_catalog.match_label = matched_labels.label
    where metric_catalog.match_label is null or matched_labels.value = metric_catalog.match_value

),

placed as (

    select
        catalogued.*,
        attributes.device_uuid,
        coalesce(devices.node, attributes.node) as node,
        coalesce(devices.device_type, device_type_aliases.device_type, attributes.device_type) as device_type,
        attributes.namespace,
        attributes.pod,
        attributes.container,
        attributes.mig_instance,
        attributes.mig_profile,
        attributes.deployment,
        coalesce(model_aliases.model, attributes.model) as model,
        case when catalogued.stream = 'tokens'
            then coalesce(
                attributes.engine, attributes.namespace || '/' || attributes.pod, attributes.pod, attributes.instance, catalogued.source
            )
        end as engine,
        case catalogued.meter_scope
            when 'board' then attributes.device_uuid
            when 'node' then coalesce(devices.node, attributes.node)
        end as meter
    from catalogued
    left join attributes on catalogued.series_id = attributes.series_id
    left join devices on attributes.device_uuid = devices.device_uuid
    left join device_type_aliases on attributes.device_type = device_type_aliases.alias
    left join model_aliases on attributes.model = model_aliases.alias

),

final as (

    select
        placed.*,
        coalesce(nodes.site, sources.site, only_site.site, {{ unknown() }}) as site,
        nodes.rack,
        coalesce(placed.device_type, nodes.device_type) as meter_device_type,
        coalesce(sources.tokens_complete, false) as is_tokens_complete,
        -- A counter belongs to its board, whatever labels it carries at the moment; an engine's counters live and die with their series.
        case when placed.stream = 'power'
            then min(placed.series_id) over (partition by placed.stream, placed.source, placed.metric, placed.meter)
            else placed.series_id
        end as reading_id
    from placed
    left join nodes on placed.node = nodes.node
    left join sources on placed.source = sources.source
    left join only_site on true

)

select * from final
