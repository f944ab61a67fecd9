insert into raw.unknown_devices by name
select $source as source, seen.*, cast($seen_at as timestamptz) as last_seen_at
from devices_seen as seen
anti join raw.unknown_devices as newer
    on newer.source = $source and newer.metric = seen.metric and newer.last_seen_at > $seen_at
anti join raw.unknown_devices as same
    on same.source = $source and same.metric = seen.metric
    and same.device_uuid is not distinct from seen.device_uuid
    and same.device_index is not distinct from seen.device_index
    and same.pci_bus_id is not distinct from seen.pci_bus_id
    and same.node is not distinct from seen.node
