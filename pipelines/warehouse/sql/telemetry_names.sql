-- The names that landed telemetry has, each with its first and last date: those of the book, and labels as reported.
-- Kinds are those of raw.booked_names. Engines of the energy ledger are left out: an assignment of the fleet file may
-- have made them up. `target` is the scraped address; `board_host` and `metered_host` are nodes as boards and wall meters
-- name them.
with entries as (
    select
        series_id, source_kind, cast(first_seen_at as date) as first_on, cast(last_seen_at as date) as last_on,
        unnest(map_entries(cast(cast(labels as json) as map(varchar, varchar)))) as entry
    from raw.series
),
reported as (
    select entries.series_id, meanings.attribute, entries.entry.value as name, entries.first_on, entries.last_on
    from entries
    inner join reference.label_catalog as meanings
        on entries.source_kind = meanings.source_kind and entries.entry.key = meanings.label
    where meanings.attribute in
        (
            'device_uuid', 'device_type', 'node', 'namespace', 'workload_namespace', 'pod', 'workload_pod', 'job',
            'engine', 'instance', 'model'
        )
),
metered as (
    select
        case when metrics.meter_scope = 'node' then 'metered_host' else 'board_host' end as kind,
        regexp_replace(entries.entry.value, ':[0-9]+$', '') as name, entries.first_on, entries.last_on
    from entries
    inner join raw.series using (series_id)
    inner join reference.label_catalog as meanings
        on entries.source_kind = meanings.source_kind and entries.entry.key = meanings.label
    inner join reference.metric_catalog as metrics
        on entries.source_kind = metrics.source_kind and series.metric = metrics.metric
    where meanings.attribute = 'node' and metrics.meter_scope in ('board', 'module', 'node')
    qualify row_number() over (partition by entries.series_id order by cast(meanings.rank as integer)) = 1
),
kinds as (
    select
        case
            when attribute = 'device_uuid' then 'device'
            when attribute in ('pod', 'workload_pod', 'job', 'instance') then 'engine'
            when attribute = 'workload_namespace' then 'namespace'
            else attribute
        end as kind,
        name, first_on, last_on
    from reported where attribute <> 'node'
    union all
    select 'target', name, first_on, last_on from reported where attribute = 'instance'
    union all
    -- Where no label names the node, the host of the address does.
    select 'node', regexp_replace(name, ':[0-9]+$', ''), first_on, last_on
    from reported where attribute in ('node', 'instance')
    union all
    select 'engine', places.name || '/' || pods.name, pods.first_on, pods.last_on
    from reported as pods inner join reported as places using (series_id)
    where pods.attribute in ('pod', 'workload_pod') and places.attribute in ('namespace', 'workload_namespace')
    union all
    select kind, name, first_on, last_on from metered
    union all
    select kind, name, date, date from raw.booked_names where kind <> 'engine'
    union all
    select distinct 'engine', engine, date, date from marts.token_ledger
    union all
    select 'engine', engine, cast(min(started_at) as date), cast(max(started_at) as date) from raw.requests group by engine
    union all
    select 'model', model, cast(min(started_at) as date), cast(max(started_at) as date) from raw.requests group by model
)
select kind, name, min(first_on) as first_on, max(last_on) as last_on
from kinds where name is not null and name <> '' group by kind, name order by kind, name
