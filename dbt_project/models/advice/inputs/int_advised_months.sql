-- What each site, team and model has cost in a billing month, and what the rest of it costs whatever runs: one row per
-- scope, name, basis and billing month. Contracts run on as on the newest booked date: what is claimed then stays
-- claimed, and the demand charge is that of the peak so far.

with days as (

    select * from {{ ref('int_advised_cost_days') }}

),

rests as (

    select * from {{ ref('int_advised_month_rests') }}

),

site_power as (

    select * from {{ ref('site_power_hourly') }}

),

lookback as (

    select as_of_date from {{ ref('int_lookback') }}

),

intervals as (

    select * from {{ ref('figure_intervals') }}

),

-- The newest month of the newest date alone: the hours of two months are not charged alike.
newest_hours as (

    select
        site_power.site,
        site_power.billing_month,
        sum(site_power.hour_seconds) / 3600 as hours
    from site_power
    inner join lookback on site_power.date = lookback.as_of_date
    group by site_power.site, site_power.billing_month
    qualify row_number() over (partition by site_power.site order by site_power.billing_month desc) = 1

),

contract_rates as (

    select
        days.scope,
        days.scope_name,
        days.basis,
        days.site,
        cast(days.contract_usd as double) / newest_hours.hours as contract_usd_per_hour
    from days
    inner join lookback on days.date = lookback.as_of_date
    inner join newest_hours on days.site = newest_hours.site and days.billing_month = newest_hours.billing_month

),

rest_hours as (

    select
        site,
        billing_month,
        sum({{ exact('24 * rest_ratio') }}) as hours
    from rests
    group by site, billing_month

),

contract_rests as (

    select
        contract_rates.scope,
        contract_rates.scope_name,
        contract_rates.basis,
        rest_hours.billing_month,
        {{ money_sum(money('contract_rates.contract_usd_per_hour * cast(rest_hours.hours as double)')) }} as contract_rest_usd,
        count(contract_rates.contract_usd_per_hour) as rests
    from contract_rates
    inner join rest_hours on contract_rates.site = rest_hours.site
    group by all

),

site_months as (

    select
        site,
        billing_month,
        sum(hour_seconds) / 3600 as booked_hours,
        max(month_hours) as month_hours
    from site_power
    group by site, billing_month

),

spent as (

    select
        scope,
        scope_name,
        basis,
        billing_month,
        {{ money_sum('energy_usd + contract_usd') }} as spent_usd,
        cast({{ money_sum('energy_usd') }} as double) as spent_energy_usd,
        bool_and(is_cost_complete) as is_cost_complete
    from days
    group by scope, scope_name, basis, billing_month

),

-- Of all sites at which it has a cost in that month.
coverage as (

    select
        found.scope,
        found.scope_name,
        found.basis,
        found.billing_month,
        sum(site_months.booked_hours) / sum(site_months.month_hours) as booked_ratio
    from (select distinct scope, scope_name, basis, billing_month, site from days) as found
    inner join site_months on found.site = site_months.site and found.billing_month = site_months.billing_month
    group by found.scope, found.scope_name, found.basis, found.billing_month

),

-- A meter that reads too much does so in what is spent and in what is to come.
energy_errors as (

    select
        month,
        site,
        model,
        {{ ratio('standard_uncertainty', 'value') }} as error_ratio
    from intervals
    where figure = 'facility_energy_kwh'

),

final as (

    select
        lookback.as_of_date,
        spent.scope,
        spent.scope_name,
        spent.basis,
        spent.billing_month,
        cast(spent.spent_usd as double) as spent_usd,
        coverage.booked_ratio,
        spent.billing_month in (select billing_month from rest_hours) as is_in_progress,
        -- What has ended before the newest date costs nothing any more; what runs on without a price, an unknown amount.
        cast(case when contract_rests.rests = 0 then null else coalesce(contract_rests.contract_rest_usd, 0) end as double)
            as contract_rest_usd,
        spent.is_cost_complete,
        spent.spent_energy_usd,
        coalesce(energy_errors.error_ratio, 0) as energy_error_ratio
    from spent
    cross join lookback
    inner join coverage using (scope, scope_name, basis, billing_month)
    left join contract_rests using (scope, scope_name, basis, billing_month)
    left join energy_errors
        on spent.billing_month = energy_errors.month
        and energy_errors.site = case when spent.scope = 'site' then spent.scope_name else '__all__' end
        and energy_errors.model = case when spent.scope = 'model' then spent.scope_name else '__all__' end

)

select * from final
