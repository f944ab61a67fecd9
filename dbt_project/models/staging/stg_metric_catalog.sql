-- The metrics that Wattledger understands, by each name that a source may write: the catalogue's own, those of seed
-- metric_spellings, and those that begin with the `metric_prefix` of a source. One row per row of metric_catalog and
-- name.
{% set meaning = [
    'stream', 'quantity', 'kind', 'unit', 'factor', 'token_class', 'level', 'meter_scope', 'rank', 'match_label', 'match_value'
] %}

with metric_catalog as (

    select * from {{ ref('metric_catalog') }}

),

metric_spellings as (

    select * from {{ ref('metric_spellings') }}

),

sources as (

    select * from {{ source('fleet', 'sources') }}

),

spelled as (

    select
        cast(null as {{ dbt.type_string() }}) as source,
        source_kind,
        metric,
        {{ meaning | join(', ') }},
        cast(null as {{ dbt.type_string() }}) as needs_labels
    from metric_catalog
    union all
    select
        sources.source,
        metric_catalog.source_kind,
        coalesce(metric_spellings.prefix, '') || replace(metric_catalog.metric, ':', coalesce(metric_spellings.colon, '')) as metric,
        {{ columns_of('metric_catalog', meaning) }},
        metric_spellings.needs_labels
    from metric_catalog
    inner join metric_spellings
        on metric_catalog.source_kind = metric_spellings.source_kind
        -- A spelling of the colon is none of a name without one.
        and (metric_spellings.colon is null or position(':' in metric_catalog.metric) > 0)
    -- Where the fleet file states the prefix, the name needs no label.
    left join sources
        on metric_spellings.needs_labels is not null and coalesce(sources.metric_prefix, '') <> coalesce(metric_spellings.prefix, '')
    where metric_spellings.needs_labels is null or sources.source is not null

),

known_names as (

    select distinct metric from spelled where source is null

),

-- A name that is known already keeps its meaning.
prefixed as (

    select
        sources.source,
        spelled.source_kind,
        sources.metric_prefix || spelled.metric as metric,
        {{ columns_of('spelled', meaning) }},
        cast(null as {{ dbt.type_string() }}) as needs_labels
    from spelled
    inner join sources on sources.metric_prefix is not null
    left join known_names on sources.metric_prefix || spelled.metric = known_names.metric
    where spelled.source is null and known_names.metric is null

),

final as (

    select * from spelled
    union all
    select * from prefixed

)

select * from final
