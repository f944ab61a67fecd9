-- Devices that a family without a row in metric_catalog names, of power or energy, and that no meter of the booked days
-- is. A UUID is compared without its case and NVIDIA's `GPU-`, which some exporters leave out; an index and a PCI
-- address are those of their node.
with seen as (
    select unknown.source, unknown.metric, unknown.device_uuid, unknown.device_index, unknown.pci_bus_id,
        cast(unknown.last_seen_at - interval 1 microsecond as date) as date,
        coalesce(aliases.node, unknown.node, unknown.source) as node,
        unknown.rowid as device
    from raw.unknown_devices as unknown
    left join fleet.node_aliases as aliases on aliases.alias = unknown.node
    join run_days on run_days.date = cast(unknown.last_seen_at - interval 1 microsecond as date)
),
booked as (
    select distinct meter, node from marts.energy_ledger join run_days using (date) where meter_scope in ('board', 'module')
),
booked_series as (
    select booked.meter, booked.node, series.series_id, series.source_kind, series.labels
    from (select * from raw.series where last_seen_at >= (select min(date) from seen)) as series
    join reference.label_catalog as named on named.source_kind = series.source_kind and named.attribute = 'device_uuid'
    join booked on booked.meter = json_extract_string(series.labels, '$."' || named.label || '"')
),
booked_indices as (
    select distinct series.meter, series.node,
        regexp_extract(json_extract_string(series.labels, '$."' || named.label || '"'), '([0-9]+)$', 1) as device_index
    from booked_series as series
    join reference.label_catalog as named using (source_kind)
    where named.attribute = 'device_index'
),
booked_addresses as (
    select distinct meter, node, lower(json_extract_string(labels, '$.pci_bus_id')) as pci_bus_id from booked_series
),
identities as (
    select meter, 'uuid' as kind, regexp_replace(lower(meter), '^gpu-', '') as identity from booked
    union all
    -- A board without a UUID is booked as <node>/<index>.
    select meter, 'place', regexp_replace(lower(meter), '/(?:card|nvidia|gpu|accel)?([0-9]+)$', '/\1') from booked
    union all
    select meter, 'place', lower(node) || '/' || device_index from booked_indices where device_index <> ''
    union all
    select meter, 'pci', lower(node) || '/' || regexp_replace(pci_bus_id, '^0*', '') from booked_addresses
),
seen_identities as (
    select device, device_uuid, 'uuid' as kind, regexp_replace(lower(device_uuid), '^gpu-', '') as identity from seen
    union all
    select device, device_uuid, 'place', lower(node) || '/' || device_index from seen
    union all
    select device, device_uuid, 'pci', lower(node) || '/' || regexp_replace(lower(pci_bus_id), '^0*', '') from seen
),
known as (
    select distinct seen.device
    from seen_identities as seen
    join identities as booked on booked.kind = seen.kind and booked.identity = seen.identity
    -- Two of NVIDIA's UUIDs are two boards, whatever place they have.
    where seen.kind = 'uuid' or not (lower(seen.device_uuid) like 'gpu-%' and lower(booked.meter) like 'gpu-%')
        or seen.device_uuid is null
),
missing as (
    select source, metric as family, date, coalesce(device_uuid, node || '/' || coalesce(device_index, pci_bus_id)) as name
    from seen anti join known using (device)
)
select family, source, min(name) as device, count(distinct name) as devices, max(date) as last_date
from missing group by family, source order by devices desc, family, source
