-- The months that a site has booked to their last day, in the attached `target`.
select billing_month, site
from target.marts.site_power_hourly
group by billing_month, site
having max(local_date) = last_day(billing_month) and sum(hour_seconds) filter (local_date = last_day(billing_month)) >= 82800
