-- UUIDs of MIG instances whose power is their whole board's: they are instances of one meter, not boards. One row per
-- such UUID. NVML measures boards alone; an exporter that names the instance repeats the board's watts for each.
-- Instances whose watts differ are measured for themselves, and stay boards of their own.
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}

with raw_series as (

    select * from {{ source('raw', 'series') }}

),

metric_catalog as (

    select distinct source_kind, metric from {{ ref('stg_metric_catalog') }}
    where stream = 'power' and meter_scope = 'board' and quantity in ('energy', 'power')

),

label_catalog as (

    select * from {{ ref('label_catalog') }} where attribute in ('device_uuid', 'device_index', 'node', 'instance')

),

chunks as (

    select * from {{ source('raw', 'series_chunks') }} where samples > 0

),

-- Few exporters write such UUIDs: only their families are parsed.
cut_metrics as (

    select distinct raw_series.source, raw_series.metric
    from raw_series
    inner join metric_catalog on raw_series.source_kind = metric_catalog.source_kind and raw_series.metric = metric_catalog.metric
    where raw_series.labels like '%"MIG-%'

),

label_values as (

    select
        raw_series.series_id,
        raw_series.source,
        raw_series.metric,
        label_catalog.attribute,
        label_catalog.label,
        {{ label_value('raw_series.labels', 'label_catalog.label') }} as value
    from raw_series
    inner join cut_metrics on raw_series.source = cut_metrics.source and raw_series.metric = cut_metrics.metric
    inner join label_catalog on raw_series.source_kind = label_catalog.source_kind

),

-- The number of its board in its host is in each instance's labels.
boards as (

    select
        series_id,
        max(case when attribute = 'device_uuid' then value end) as uuid,
        source || '|' || metric || '|' || {{ joined_in_order(
            "case when attribute <> 'device_uuid' and value <> '' then label || '=' || value end"
        ) }} as place
    from label_values
    group by series_id, source, metric
    having max(case when attribute = 'device_index' then value end) is not null

),

-- Of each landed chunk of two: what both show at the same times.
compared as (

    select
        own.uuid,
        other.uuid as other_uuid,
        case
            when own_chunks.first_at = other_chunks.first_at and own_chunks.first_value <> other_chunks.first_value then 0
            when own_chunks.last_at = other_chunks.last_at and own_chunks.last_value <> other_chunks.last_value then 0
            when own_chunks.first_at = other_chunks.first_at
                and own_chunks.last_at = other_chunks.last_at
                and own_chunks.samples = other_chunks.samples
                and (
                    own_chunks.falls <> other_chunks.falls
                    or own_chunks.steepest_rise_per_second <> other_chunks.steepest_rise_per_second
                )
                then 0
            else 1
        end as is_equal
    from boards as own
    inner join boards as other on own.place = other.place and own.uuid <> other.uuid
    inner join chunks as own_chunks on own.series_id = own_chunks.series_id
    inner join chunks as other_chunks
        on other.series_id = other_chunks.series_id
        and own_chunks.chunk_start_at = other_chunks.chunk_start_at
        and (own_chunks.first_at = other_chunks.first_at or own_chunks.last_at = other_chunks.last_at)
    where own.uuid like 'MIG-%'

),

repeated as (

    select
        uuid,
        other_uuid
    from compared
    group by uuid, other_uuid
    having 2 * sum(is_equal) > count(*)

),

-- The board under its own UUID, where it has a series, too; else it is known by its number.
final as (

    select
        uuid,
        max(case when other_uuid not like 'MIG-%' then other_uuid end) as board_uuid
    from repeated
    group by uuid

)

select * from final
