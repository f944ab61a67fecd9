-- What the labels of each landed series name, as they are: one row per series of power, energy or tokens. The second,
-- independent parsing of labels begins here; which device, node and engine the names are is found in
-- int_label_identities.
{# int_label_identities alone reads it. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}

with series as (

    select * from {{ ref('stg_raw_series') }}

),

metric_catalog as (

    select * from {{ ref('stg_metric_catalog') }}
    where quantity in ('energy', 'power', 'power_limit', 'device_info', 'tokens', 'process_start')

),

label_catalog as (

    select * from {{ ref('label_catalog') }}

),

sources as (

    select * from {{ source('fleet', 'sources') }}

),

host_names as (

    select * from {{ ref('stg_host_names') }}

),

repeated_boards as (

    select * from {{ ref('stg_repeated_boards') }}

),

node_aliases as (

    select * from {{ source('fleet', 'node_aliases') }}

),

known_series as (

    select distinct
        series.series_id,
        series.source,
        series.source_kind,
        series.labels
    from metric_catalog
    inner join series
        on metric_catalog.source_kind = series.source_kind
        and metric_catalog.metric = series.metric
        and (metric_catalog.source is null or metric_catalog.source = series.source)

),

-- Alias by alias. An identifier that should be globally unique and is a bare number is unique on its host alone.
label_values as (

    select
        known_series.series_id,
        label_catalog.rank,
        label_catalog.label,
        {{ label_value('known_series.labels', 'label_catalog.label') }} as name,
        case
            when label_catalog.attribute = 'device_uuid'
                and {{ is_bare_index(label_value('known_series.labels', 'label_catalog.label')) }}
                then 'device_index'
            else label_catalog.attribute
        end as attribute
    from known_series
    inner join label_catalog on known_series.source_kind = label_catalog.source_kind

),

-- Of the aliases with a value, the one of the lowest rank is used; of equal ranks, the first by the label's name.
attribute_values as (

    select
        label_values.series_id,
        label_values.attribute,
        min_by(
            case when repeated_boards.uuid is null then label_values.name else repeated_boards.board_uuid end,
            lpad(cast(label_values.rank as {{ dbt.type_string() }}), 6, '0') || label_values.label
        ) as name
    from label_values
    left join repeated_boards on label_values.attribute = 'device_uuid' and label_values.name = repeated_boards.uuid
    where label_values.name <> '' and not (label_values.attribute = 'device_uuid' and {{ is_no_identity('label_values.name') }})
    group by label_values.series_id, label_values.attribute

),

names as (

    select
        series_id,
        max(
            case
                when attribute = 'device_uuid'
                    and source_kind = 'nvidia_gpu_exporter'
                    and substr(name, 1, 4) <> 'GPU-'
                    and name like '%-%-%-%-%'
                    then 'GPU-' || name
                when attribute = 'device_uuid' then name
            end
        ) as device_uuid,
        {% for attribute in [
            'node', 'device_index', 'device_type', 'module', 'pdu', 'pdu_input', 'model', 'data_rank'
        ] -%}
        max(case when attribute = '{{ attribute }}' then name end) as {{ attribute }},
        {% endfor -%}
        {% for attribute in ['instance', 'namespace', 'pod', 'workload_pod', 'engine', 'rack', 'facility'] -%}
        max(case when attribute = '{{ attribute }}' then {{ name_of_source('name') }} end) as {{ attribute }},
        {% endfor -%}
        -- Of ranks that report the same tokens only the first counts, pipeline before tensor. One without digits has
        -- no place.
        {% for rank in ['pipeline', 'tensor'] -%}
        max(case when attribute = '{{ rank }}_rank' then {{ metered_rank('name') }} end) as {{ rank }}_number,
        max(
            case when attribute = '{{ rank }}_rank' and {{ metered_rank('name') }} is null then name end
        ) as {{ rank }}_name{{ ',' if not loop.last }}
        {% endfor %}
    from attribute_values
    inner join known_series using (series_id)
    group by series_id

),

-- A bare engine, a node's meter or a board without a host's name is often known by its address alone.
final as (

    select
        names.*,
        coalesce(node_aliases.node, host_names.node, hosts.host) as own_node
    from names
    inner join (
        select
            names.series_id,
            known_series.source,
            split_part(coalesce(node, case when workload_pod is null and pod is null then instance end), ':', 1) as host
        from names
        inner join (select distinct series_id, source from known_series) as known_series on names.series_id = known_series.series_id
    ) as hosts
        on names.series_id = hosts.series_id
    left join node_aliases on hosts.host = node_aliases.alias
    left join sources on hosts.source = sources.source
    left join host_names on coalesce(sources.site, '') = host_names.site and hosts.host = host_names.name

)

select * from final
