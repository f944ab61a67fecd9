with devices as (
    select date, meter_scope, node, meter, sum(energy_joules) as joules,
        sum(case when model = '__unknown__' then energy_joules end) as orphan_joules
    from marts.energy_ledger join run_days using (date) group by date, meter_scope, node, meter
),
shares as (
    -- Joules of a board and of a whole node are not added.
    select *, sum(orphan_joules) over (partition by date, meter_scope)
        / sum(joules) over (partition by date, meter_scope) as orphan_ratio
    from devices
)
select meter, node, date, round(orphan_joules / 3.6e6, 3) as kwh
from shares where orphan_joules > 0 and orphan_ratio > 0.01
order by kwh desc, meter, date
