-- What a person should look at, of the last 28 published dates: budgets that this month will exceed, unusual costs,
-- meters that two sources read differently, and on the newest date wall meters that are in no total of the fleet.
with
newest as (
    select max(date) as date from marts.fleet_daily
)

select
    date,
    'unusual cost' as alarm,
    concat_ws(', ', nullif(model, '__all__'), nullif(part, '__all__')) as what,
    format('{:,.2f} USD instead of {:,.2f} USD', cost_usd::double, usual_usd) as found,
    abs(difference_usd) as size
from marts.cost_anomalies_daily
where is_anomaly and date > (select date - 28 from newest)
union all
select
    date,
    'two sources differ' as alarm,
    meter as what,
    format(
        '{} measured {:,.1f} % {} than {} of {}',
        cross_check_source, 100 * abs(cross_check_ratio), case when cross_check_ratio > 0 then 'more' else 'less' end, metric, source
    ) as found,
    abs(cross_check_joules - metered_joules) as size
from marts.reconciliation_daily
where abs(cross_check_ratio) > 0.05 and date > (select date - 28 from newest)
union all
select
    as_of_date as date,
    'budget will be exceeded' as alarm,
    case
        when budget = scope_name then concat(scope, ' ', scope_name)
        else concat(budget, ' (', scope, ' ', scope_name, ')')
    end as what,
    format(
        '{:,.2f} USD expected in {} instead of {:,.2f} USD',
        forecast_usd::double, strftime(billing_month, '%B %Y'), budget_usd::double
    ) as found,
    expected_overrun_usd as size
from marts.budget_monthly
where expected_overrun_usd > 0 and is_in_progress and as_of_date = (select date from newest)
union all
select
    date,
    'wall meter without a host' as alarm,
    meter as what,
    format('{:,.1f} kWh, in no total of the fleet; the fleet file places it: {}', energy_joules::double / 3.6e6, fleet_file_line)
        as found,
    energy_joules as size
from marts.unplaced_meters
where date = (select date from newest)
order by date desc, alarm, size desc, what
