-- What nobody used is charged to somebody, once: per date and site the fully loaded cost is the allocation cost of all GPU-hours and energy
-- (a ten-thousandth of a dollar is rounding). Only where every row has a price: a sum with a missing price is no sum.
select
    date,
    site,
    sum(allocation_cost_usd) as allocation_cost_usd,
    sum(fully_loaded_cost_usd) as fully_loaded_cost_usd
from {{ ref('model_hourly') }}
where {{ in_run('date') }}
group by date, site
having count(energy_joules) = count(allocation_cost_usd)
    and abs(sum(allocation_cost_usd) - coalesce(sum(fully_loaded_cost_usd), 0)) > 0.0001
