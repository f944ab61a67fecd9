-- What nobody used is charged to somebody, once: per date and site the fully loaded cost is the allocation cost of all GPU-hours and energy
-- (a ten-thousandth of a dollar is rounding). Only where every row has a price: a sum with a missing price is no sum.
select
    date,
    'model_hourly' as table_name,
    {{ row_key(['site']) }} as row_key,
    cast(coalesce(sum(fully_loaded_cost_usd), 0) as double) as found,
    'USD fully loaded' as unit,
    cast(sum(allocation_cost_usd) as {{ dbt.type_string() }}) || ' of the fleet' as expected
from {{ ref('model_hourly') }}
where {{ in_run('date') }}
group by date, site
having count(energy_joules) = count(allocation_cost_usd)
    and abs(sum(allocation_cost_usd) - coalesce(sum(fully_loaded_cost_usd), 0)) > 0.0001
