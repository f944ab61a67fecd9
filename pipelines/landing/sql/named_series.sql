-- The device of each series of the landed source and, where the landing changed anything, of all series of power and
-- energy. A board without a UUID is known by its index on its node, as in stg_series; what is no device has NULL.
create or replace temp table named_series as
with labelled as (
    select series.series_id, series.source, series.source_kind, series.metric, series.labels,
        min_by(json_extract_string(series.labels, '$."' || device_labels.label || '"'), device_labels.rank)
            filter (where json_extract_string(series.labels, '$."' || device_labels.label || '"') is not null) as uuid
    from raw.series as series
    left join device_labels on device_labels.source_kind = series.source_kind and attribute = 'device_uuid'
    where series.source in (select source from chunks_before union select source from chunks_after)
        or (series.metric in (select metric from meter_metrics) and exists (select 1 from touched_series))
    group by all
),
indexed as (
    select labelled.series_id,
        coalesce(min_by(value, rank) filter (where attribute = 'device_index'), any_value(labelled.uuid)) as index,
        min_by(value, rank) filter (where attribute = 'node') as node
    from labelled
    join lateral (
        select device_labels.*, json_extract_string(labelled.labels, '$."' || device_labels.label || '"') as value
        from device_labels
        where device_labels.source_kind = labelled.source_kind and device_labels.attribute <> 'device_uuid'
    ) as labels on true
    where value <> ''
        and (labelled.uuid is null or regexp_full_match(labelled.uuid, '(card|nvidia|gpu|accel)?[0-9]{1,3}'))
    group by labelled.series_id
)
select labelled.series_id, labelled.source, labelled.metric,
    coalesce(indexed.node || '/' || indexed.index, labelled.uuid) as device
from labelled left join indexed using (series_id)
