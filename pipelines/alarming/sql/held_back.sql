-- Dates that an invariant holds back: what breaks it, and what of the date is published.
select
    cast(date as varchar) as name,
    'error' as severity,
    format('{} is held back: {}', date, string_agg(distinct invariant, ', ' order by invariant)) as what,
    string_agg(
        format('marts.{}, {}: {} {}, expected {}', table_name, row_key, coalesce(format('{:,.10g}', found), 'nothing'), unit, expected),
        chr(10) order by invariant, table_name, row_number
    ) filter (where row_number <= 3) as which,
    min(remedy) as remedy,
    date as since,
    'published of the date before' as amount_of,
    (select sum(cost_usd)::double from marts.cost_daily as costs where costs.basis = 'allocation' and costs.date = held.date) as usd,
    (select sum(facility_energy_kwh)::double * 3.6e6 from marts.site_footprint_daily as sites where sites.date = held.date) as joules
from marts.held_back_dates as held
group by date
order by date
