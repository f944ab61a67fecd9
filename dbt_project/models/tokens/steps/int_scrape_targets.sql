-- What each token series reports of itself and what its scraper added: one row per series that a date of the run has, or
-- the date before.
-- Series of one page differ in the exporter's labels; a target is a source and the labels that are not the exporter's.
with series as (

    select distinct
        series_id,
        source,
        source_kind,
        metric,
        quantity,
        level,
        engine,
        namespace,
        pod,
        node,
        cluster
    from {{ ref('stg_series') }}
    where stream = 'tokens'

),

series_days as (

    select distinct series_id from {{ ref('stg_series_days') }}
    where is_in_run or date = date '{{ start_date() }}' - 1

),

labels as (

    {{ label_rows(ref('stg_raw_series')) }}

),

exporter_labels as (

    select * from {{ ref('exporter_labels') }}

),

-- Who asked is on a gateway's page, under a name that its installation chooses; not where the scraper's labels name it.
tenant_labels as (

    select distinct
        tenant_labels.source,
        tenant_labels.label
    from {{ source('fleet', 'tenant_labels') }} as tenant_labels
    left join {{ ref('label_catalog') }} as label_catalog on tenant_labels.label = label_catalog.label
    where label_catalog.label is null

),

reported_series as (

    select series.*
    from series
    inner join series_days on series.series_id = series_days.series_id

),

-- `replica` is Ray's beside another label of its agent; by itself it is how servers of one page differ.
ray_series as (

    select distinct series_id from labels where label in ('ReplicaId', 'WorkerId', 'SessionName') and value <> ''

),

-- A server keeps a label of the page that it has a label of its own for under another name.
page_labels as (

    select
        reported_series.series_id,
        labels.label,
        labels.value,
        coalesce(exporter_labels.label, tenant_labels.label) as exporter_label
    from reported_series
    inner join labels on reported_series.series_id = labels.series_id
    left join ray_series on reported_series.series_id = ray_series.series_id
    left join exporter_labels
        on reported_series.source_kind = exporter_labels.source_kind
        and case when substr(labels.label, 1, 9) = 'exported_' then substr(labels.label, 10) else labels.label end = exporter_labels.label
        and (exporter_labels.label <> 'replica' or ray_series.series_id is not null)
    left join tenant_labels
        on reported_series.source = tenant_labels.source
        and reported_series.level in ('frontend', 'gateway')
        and labels.label = tenant_labels.label
    where labels.value <> ''

),

page_identities as (

    select
        series_id,
        {{ joined_in_order("case when exporter_label is not null then exporter_label || '=' || value end") }} as exporter_labels,
        {{ joined_in_order("case when exporter_label is null then label || '=' || value end") }} as scrape_labels,
        max(case when label = 'instance' then value end) as instance
    from page_labels
    group by series_id

),

final as (

    select
        reported_series.series_id,
        reported_series.source,
        reported_series.metric,
        reported_series.quantity,
        reported_series.level,
        reported_series.engine,
        reported_series.source || '|' || coalesce(page_identities.scrape_labels, '') as target,
        coalesce(page_identities.scrape_labels, '') as scrape_labels,
        coalesce(page_identities.exporter_labels, '') as exporter_labels,
        reported_series.cluster,
        reported_series.namespace,
        reported_series.pod,
        reported_series.node,
        page_identities.instance,
        nullif(regexp_extract(page_identities.instance, '^(.*?)(:[^:]*)?$', 1), '') as host,
        nullif(regexp_extract(page_identities.instance, ':([0-9]+)$', 1), '') as port
    from reported_series
    left join page_identities on reported_series.series_id = page_identities.series_id

)

select * from final
