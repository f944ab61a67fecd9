-- Advice that saves at least $usd_per_month at once.
select
    concat_ws(' ', advice, site, deployment, device_type) as name,
    'info' as severity,
    format('{}: {} saves {:,.2f} USD a month at once', deployment, advice, saving_now_usd_per_month) as what,
    concat_ws(
        '; ',
        format('{:,.0f} accelerators ({}) of {} are freed', freed_accelerators, device_type, site),
        format('{:,.1f} kWh a month', saving_kwh_per_month),
        format('confidence {}', confidence)
    ) as which,
    'see what it takes in the fleet report (`wattledger report`) and in published.right_sizing or published.consolidation'
        as remedy,
    null::date as since,
    'a month' as amount_of,
    saving_now_usd_per_month as usd,
    saving_kwh_per_month * 3.6e6 as joules
from finance.savings
where saving_now_usd_per_month >= $usd_per_month
    and month = (select max(month) from finance.savings)
order by usd desc, name
