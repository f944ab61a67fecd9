-- The joules of each meter.
select
    coalesce(meter, device_uuid, 'unknown meter') as meter,
    any_value(node) as node,
    string_agg(distinct energy_source, ' and ' order by energy_source) as sources,
    sum({column}) as joules
from marts.energy_ledger
where {condition} and {only}
group by all
having joules is not null
order by joules desc, meter
