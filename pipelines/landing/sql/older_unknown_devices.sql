-- Of each family the newest window's devices are kept; a window that is landed again has those of its new answer. A source that adds to its
-- days, and one that could not list them, keeps those of the same window.
delete from raw.unknown_devices
where source = $source
    and (
        (last_seen_at < $seen_at and metric in (select metric from devices_seen))
        or (last_seen_at = $seen_at and not $is_additive)
    )
