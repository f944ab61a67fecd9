-- Names that exporters of a source have for a node beside its own: the address that is scraped, where another series of
-- power with that address names the node; and the pod or container in which an exporter runs and whose name it takes for
-- its host's, where the label `node` or the address has the node. One row per source and such name. A name that two
-- nodes would have is left out.
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}
{% set address %}'^[0-9]{1,3}([.][0-9]{1,3}){3}$'{% endset %}
{# A pod of a DaemonSet, and a container's number. #}
{% set exporter %}'^(.+-[a-z0-9]{5}|[0-9a-f]{12})$'{% endset %}

with raw_series as (

    select * from {{ source('raw', 'series') }}

),

metric_catalog as (

    select distinct source_kind, metric from {{ ref('stg_metric_catalog') }}
    where stream = 'power' and quantity in ('energy', 'power')

),

label_catalog as (

    select * from {{ ref('label_catalog') }} where attribute = 'node' and label <> 'instance'

),

node_aliases as (

    select * from {{ source('fleet', 'node_aliases') }}

),

node_labels as (

    select
        raw_series.series_id,
        raw_series.source,
        raw_series.metric,
        raw_series.first_seen_at,
        raw_series.last_seen_at,
        label_catalog.rank,
        label_catalog.label,
        {{ label_value('raw_series.labels', "'instance'") }} as instance,
        {{ label_value('raw_series.labels', "'node'") }} as node,
        {{ label_value('raw_series.labels', 'label_catalog.label') }} as name
    from raw_series
    inner join metric_catalog on raw_series.source_kind = metric_catalog.source_kind and raw_series.metric = metric_catalog.metric
    inner join label_catalog on raw_series.source_kind = label_catalog.source_kind

),

sights as (

    select
        source,
        metric,
        first_seen_at,
        last_seen_at,
        split_part(instance, ':', 1) as host,
        split_part(nullif(node, ''), ':', 1) as node,
        split_part(name, ':', 1) as name,
        regexp_extract(name, {{ exporter }}, 0) <> '' as is_exporters
    from node_labels
    where name <> ''
    qualify row_number() over (partition by series_id order by rank, label) = 1

),

-- A name that ends as a pod's may be the host's own, if nothing at its address has another one.
addresses as (

    select
        source,
        host as name,
        coalesce(min(case when is_exporters then node else name end), min(name)) as node
    from sights
    where regexp_extract(host, {{ address }}, 0) <> ''
    group by source, host
    having coalesce(
        min(case when is_exporters then node else name end) = max(case when is_exporters then node else name end),
        min(name) = max(name)
    )

),

spans as (

    select
        source,
        metric,
        node,
        name,
        min(first_seen_at) as first_at,
        max(last_seen_at) as last_at
    from sights
    where is_exporters and node <> name
    group by source, metric, node, name

),

-- A node has one such pod at a time; a label that several names have at once is no node's.
crowded as (

    select distinct source, node
    from (
        select
            *,
            max(last_at) over (
                partition by source, metric, node order by first_at, name rows between unbounded preceding and 1 preceding
            ) as earlier_last_at
        from spans
    ) as ordered
    where first_at < earlier_last_at

),

names as (

    select source, name, node from addresses
    union all
    select distinct
        sights.source,
        sights.name,
        coalesce(case when sights.node <> sights.name then sights.node end, addresses.node) as node
    from sights
    left join crowded on sights.source = crowded.source and sights.node = crowded.node
    left join addresses on sights.source = addresses.source and sights.host = addresses.name
    where sights.is_exporters and crowded.node is null

),

final as (

    select
        names.source,
        names.name,
        min(coalesce(node_aliases.node, names.node)) as node
    from names
    left join node_aliases on names.node = node_aliases.alias
    where names.name <> names.node
    group by names.source, names.name
    having min(coalesce(node_aliases.node, names.node)) = max(coalesce(node_aliases.node, names.node))

)

select * from final
