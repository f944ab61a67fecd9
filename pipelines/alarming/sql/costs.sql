-- Unusual costs of the dates that the newest publication booked; the fleet's own row where no model and part explains it.
with
booked as (
    select start_date, end_date from published.publication order by published_at desc limit 1
),
unusual as (
    select * from marts.cost_anomalies_daily, booked
    where is_anomaly and date >= start_date and date < end_date
)

select
    concat_ws(' ', site, model, part) as name,
    'warning' as severity,
    format(
        'the cost of {} is unusual',
        case when scope = 'fleet' then 'the fleet' else concat_ws(', ', site, model, part) end
    ) as what,
    string_agg(format('{}: {:,.2f} USD instead of {:,.2f} USD', date, cost_usd::double, usual_usd), chr(10) order by date)
        filter (where date >= end_date - interval 5 day) as which,
    null as remedy,
    min(date) as since,
    'against what is usual' as amount_of,
    sum(difference_usd) as usd,
    null::double as joules
from unusual
where scope <> 'fleet' or not exists (select 1 from unusual as parts where parts.scope <> 'fleet' and parts.date = unusual.date)
group by scope, site, model, part
order by name
