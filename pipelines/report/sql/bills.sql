-- What was billed against what is computed, per billing month, site and kind of bill; for the months of the last 28 dates.
select
    billing_month, site, kind, billed_usd, computed_cost_usd, difference_usd, difference_ratio, billed_hours, booked_hours,
    month_hours, is_booked_whole
from marts.cost_reconciliation_monthly
where billing_month > (select max(date) - 62 from marts.fleet_daily) and billed_usd is not null
order by billing_month desc, abs(difference_usd) desc nulls last, site, kind
