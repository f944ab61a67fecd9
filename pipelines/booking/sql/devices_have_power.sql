with devices as (
    select source, count(distinct device_uuid) as devices, min(date) as first_date, max(date) as last_date
    from marts.unmetered_devices join run_days using (date) group by source
)
select source, devices, first_date, last_date from devices order by devices desc, source
