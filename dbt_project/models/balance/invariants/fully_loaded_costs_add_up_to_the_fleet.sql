-- Unallocated capacity is charged exactly once: per date and site the fully loaded cost is the allocation cost of all
-- GPU-hours and energy that have a price. Exact: not a millionth of a millionth of a dollar may be missing.
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
having sum(allocation_cost_usd) is distinct from sum(fully_loaded_cost_usd)
