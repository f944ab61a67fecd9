-- Why the newest month that can be compared cost more or less than the one before, all sites together.
select
    month,
    any_value(compared_month) as compared_month,
    bool_and(is_of_whole_months) as is_of_whole_months,
    min(days) as fewest_days,
    max(days) as most_days,
    sum(before_usd) as before_usd,
    sum(calendar_usd) as calendar_usd,
    sum(coverage_usd) as coverage_usd,
    sum(price_usd) as price_usd,
    sum(volume_usd) as volume_usd,
    sum(efficiency_usd) as efficiency_usd,
    sum(idle_usd) as idle_usd,
    sum(new_usd) as new_usd,
    sum(gone_usd) as gone_usd,
    sum(adjustments_usd) as adjustments_usd,
    sum(after_usd) as after_usd,
    bool_and(is_cost_complete) as is_cost_complete
from finance.bridge
where month = (select max(month) from finance.bridge)
group by month
-- Without a price of any part nothing is known to have changed.
having sum(after_usd) is not null
