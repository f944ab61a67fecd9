-- Names that exporters of a site have for a node beside its own: the address that is scraped, where kube-state-metrics
-- or another series of power with that address names the node; and the pod or container in which an exporter runs and
-- whose name it takes for its host's, where the label `node` or the address has the node; and the name with its domain,
-- where the site has one such name and the same without. One row per site and such name. A name that two nodes would have is left out.
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}
{% set address %}'^[0-9]{1,3}([.][0-9]{1,3}){3}$'{% endset %}
{# A pod of a DaemonSet, and a container's number. #}
{% set exporter %}'^(.+-[a-z0-9]{5}|[0-9a-f]{12})$'{% endset %}

with raw_series as (

    select * from {{ source('raw', 'series') }}

),

sources as (

    select source, coalesce(site, '') as site from {{ source('fleet', 'sources') }}

),

metric_catalog as (

    select distinct source_kind, metric, quantity from {{ ref('stg_metric_catalog') }}
    where stream = 'power' and quantity in ('energy', 'power', 'node_info')

),

label_catalog as (

    select * from {{ ref('label_catalog') }} where attribute = 'node' and label <> 'instance'

),

node_aliases as (

    select * from {{ source('fleet', 'node_aliases') }}

),

nodes as (

    select node from {{ source('fleet', 'nodes') }}

),

node_labels as (

    select
        raw_series.series_id,
        sources.site,
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
    inner join sources on raw_series.source = sources.source

),

sights as (

    select
        site,
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
        site,
        host as name,
        coalesce(min(case when is_exporters then node else name end), min(name)) as node
    from (
        select site, host, node, name, is_exporters from sights
        union all
        {% for label in ['internal_ip', 'host_ip', 'pod_ip'] -%}
        select
            sources.site,
            {{ label_value('raw_series.labels', "'" ~ label ~ "'") }} as host,
            cast(null as {{ dbt.type_string() }}) as node,
            coalesce(
                {{ label_value('raw_series.labels', "'exported_node'") }}, {{ label_value('raw_series.labels', "'node'") }}
            ) as name,
            false as is_exporters
        from raw_series
        inner join metric_catalog on raw_series.source_kind = metric_catalog.source_kind and raw_series.metric = metric_catalog.metric
        inner join sources on raw_series.source = sources.source
        where metric_catalog.quantity = 'node_info'
        {% if not loop.last %}union all{% endif %}
        {% endfor %}
    ) as named
    where regexp_extract(host, {{ address }}, 0) <> ''
    group by site, host
    having coalesce(
        min(case when is_exporters then node else name end) = max(case when is_exporters then node else name end),
        min(name) = max(name)
    )

),

spans as (

    select
        site,
        metric,
        node,
        name,
        min(first_seen_at) as first_at,
        max(last_seen_at) as last_at
    from sights
    where is_exporters and node <> name
    group by site, metric, node, name

),

-- A node has one such pod at a time; a label that several names have at once is no node's.
crowded as (

    select distinct site, node
    from (
        select
            *,
            max(last_at) over (
                partition by site, metric, node order by first_at, name rows between unbounded preceding and 1 preceding
            ) as earlier_last_at
        from spans
    ) as ordered
    where first_at < earlier_last_at

),

-- The node's own name is the one that the fleet file lists, else the one without a domain.
domains as (

    select
        site,
        max(case when name <> short_name then name end) as long_name,
        short_name,
        max(case when name <> short_name and nodes.node is not null then 1 else 0 end) = 1 as is_long_listed,
        max(case when name = short_name and nodes.node is not null then 1 else 0 end) = 1 as is_short_listed
    from (
        select distinct
            site,
            name,
            split_part(name, '.', 1) as short_name
        from (
            select site, name from sights
            union all
            select site, split_part(instance, ':', 1) as name from node_labels
            group by series_id, site, instance
            having coalesce(max(name), '') = ''
        ) as hosts
        where name <> '' and regexp_extract(name, {{ address }}, 0) = ''
    ) as named
    left join nodes on named.name = nodes.node
    group by site, short_name
    having count(*) = 2 and min(name) = short_name

),

names as (

    select site, name, node from addresses
    union all
    select
        site,
        case when is_long_listed then short_name else long_name end as name,
        case when is_long_listed then long_name else short_name end as node
    from domains
    where not (is_long_listed and is_short_listed)
    union all
    select distinct
        sights.site,
        sights.name,
        coalesce(case when sights.node <> sights.name then sights.node end, addresses.node) as node
    from sights
    left join crowded on sights.site = crowded.site and sights.node = crowded.node
    left join addresses on sights.site = addresses.site and sights.host = addresses.name
    where sights.is_exporters and crowded.node is null

),

final as (

    select
        names.site,
        names.name,
        min(coalesce(node_aliases.node, names.node)) as node
    from names
    left join node_aliases on names.node = node_aliases.alias
    where names.name <> names.node
    group by names.site, names.name
    having min(coalesce(node_aliases.node, names.node)) = max(coalesce(node_aliases.node, names.node))

)

select * from final
