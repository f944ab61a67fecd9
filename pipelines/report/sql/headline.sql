-- The newest published date, the date before and the same weekday of the week before: one row each, the newest first.
with
newest as (
    select max(date) as date from marts.fleet_daily
),

compared as (
    select unnest([date, date - interval 1 day, date - interval 7 days])::date as date from newest
),

-- A board's joules and a whole node's are two quantities: joules per token are of the scope with the most energy.
main_scope as (
    select meter_scope from marts.fleet_daily group by meter_scope order by sum(energy_joules) desc nulls last limit 1
),

fleet as (
    select
        date,
        sum(facility_energy_kwh) as facility_kwh,
        sum(location_gco2e) / 1000 as location_kgco2e,
        bool_and(is_carbon_complete) as is_carbon_complete,
        sum(output_tokens) / 1e6 as output_mtok,
        sum(matched_joules) filter (meter_scope = (from main_scope))
        / nullif(sum(matched_output_tokens) filter (meter_scope = (from main_scope)), 0) as joules_per_output_token,
        sum(idle_joules) filter (meter_scope = (from main_scope))
        / nullif(sum(productive_joules + idle_joules) filter (meter_scope = (from main_scope)), 0) as idle_energy_ratio,
        list_sort(list_distinct(flatten(list(string_split(nullif(doubt_reasons, ''), ','))))) as doubt_reasons
    from marts.fleet_daily
    group by date
),

-- Every basis with its remainder is the whole cost of the fleet, so any one of them gives it.
costs as (
    select
        date,
        sum(cost_usd) as cost_usd,
        -- What model_daily and `wattledger run` show.
        sum(cost_usd) filter (part in ('capacity', 'energy', 'cooling', 'overhead')) as accelerator_cost_usd,
        bool_and(is_cost_complete) as is_cost_complete
    from marts.cost_daily
    where basis = 'fully_loaded'
    group by date
),

daily as (
    select
        fleet.date,
        costs.cost_usd::double as cost_usd,
        1.0 * costs.cost_usd / nullif(fleet.output_mtok, 0) as cost_usd_per_output_mtok,
        fleet.output_mtok::double as output_mtok,
        fleet.facility_kwh::double as facility_kwh,
        fleet.joules_per_output_token,
        fleet.idle_energy_ratio,
        fleet.location_kgco2e::double as location_kgco2e
    from fleet
    left join costs using (date)
),

figures as (
    unpivot daily on * exclude (date) into name figure value value
),

-- How far a figure changed before from date to date, and from week to week: 95 % of such changes are within the band. A
-- share is compared in points, anything else as a part of itself. Of fewer than 7 changes no band is known.
changes as (
    select
        later.figure,
        later.date - earlier.date as days,
        case
            when later.figure like '%_ratio' then later.value - earlier.value
            else later.value / nullif(earlier.value, 0) - 1
        end as change
    from figures as later
    inner join figures as earlier
        on later.figure = earlier.figure and later.date - earlier.date in (1, 7) and later.date < (from newest)
    where later.date > (from newest) - 29
),

bands as (
    select figure, days, 1.96 * stddev_samp(change) as band
    from changes
    group by figure, days
    having count(change) >= 7
),

-- The error of meters and stated inputs is the same on each date: that of the newest month.
errors as (
    select
        case figure
            when 'known_cost_usd' then 'cost_usd'
            when 'known_cost_usd_per_output_mtok' then 'cost_usd_per_output_mtok'
            when 'facility_energy_kwh' then 'facility_kwh'
            else figure
        end as figure,
        max((value_high - value_low) / 2 / value) as error_ratio
    from marts.figure_intervals
    where month = (select max(month) from marts.figure_intervals)
        and site = '__all__'
        and model = '__all__'
        and meter_scope in ('__all__', (from main_scope))
        and value > 0
        and value_low is not null
    group by 1
)

select
    compared.date,
    costs.cost_usd,
    costs.accelerator_cost_usd,
    1.0 * costs.cost_usd / nullif(fleet.output_mtok, 0) as cost_usd_per_output_mtok,
    coalesce(costs.is_cost_complete, false) as is_cost_complete,
    fleet.output_mtok,
    fleet.facility_kwh,
    fleet.joules_per_output_token,
    fleet.idle_energy_ratio,
    fleet.location_kgco2e,
    coalesce(fleet.is_carbon_complete, false) as is_carbon_complete,
    array_to_string(fleet.doubt_reasons, ', ') as doubt_reasons,
    (select meter_scope from main_scope) as meter_scope,
    (select map_from_entries(list((figure, band) order by figure)) from bands where days = 1) as day_bands,
    (select map_from_entries(list((figure, band) order by figure)) from bands where days = 7) as week_bands,
    (select map_from_entries(list((figure, error_ratio) order by figure)) from errors) as error_ratios
from compared
left join fleet using (date)
left join costs using (date)
where compared.date is not null
order by compared.date desc
