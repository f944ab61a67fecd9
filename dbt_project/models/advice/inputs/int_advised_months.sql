-- What each site, team and model has cost in a billing month, and what the rest of it costs whatever runs: one row per
-- scope, name, basis and billing month. Contracts run on as on the newest booked date: what is claimed then stays
-- claimed, at the rates of the dates to come, and the demand charge is that of the peak so far.

with days as (

    select * from {{ ref('int_advised_cost_days') }}

),

date_hours as (

    select * from {{ ref('int_advised_date_hours') }}

),

rates as (

    select * from {{ ref('int_cost_rates') }}

),

commitments as (

    select * from {{ source('fleet', 'commitments') }}

),

spot_rates as (

    select * from {{ source('fleet', 'spot_rates') }}

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
        days.device_type,
        cast(days.contract_usd as double) / newest_hours.hours as contract_usd_per_hour,
        coalesce(cast(days.capacity_usd as double) / newest_hours.hours, 0) as capacity_usd_per_hour
    from days
    inner join lookback on days.date = lookback.as_of_date
    inner join newest_hours on days.site = newest_hours.site and days.billing_month = newest_hours.billing_month

),

rest_dates as (

    select
        site,
        billing_month,
        local_date,
        sum(quarters) / 4.0 as hours
    from date_hours
    where rest_ratio is not null
    group by site, billing_month, local_date

),

-- What commitments or spot prices pay for in part has a price that no rate gives.
rated_types as (

    select distinct
        contract_rates.site,
        contract_rates.device_type,
        rates.usd_per_gpu_hour as newest_usd_per_gpu_hour
    from contract_rates
    cross join lookback
    inner join rates
        on contract_rates.device_type = rates.device_type
        and lookback.as_of_date >= rates.valid_from
        and lookback.as_of_date < rates.until
    where (contract_rates.site, contract_rates.device_type) not in (select (site, device_type) from commitments)
        and (contract_rates.site, contract_rates.device_type) not in (select (site, device_type) from spot_rates)

),

-- How many hours at the newest date's rate cost as much as those to come.
rest_hours as (

    select
        types.site,
        types.device_type,
        rest_dates.billing_month,
        sum({{ exact('rest_dates.hours') }}) as hours,
        sum({{ exact('rest_dates.hours * coalesce(' ~ ratio('rates.usd_per_gpu_hour', 'rated_types.newest_usd_per_gpu_hour') ~ ', 1)') }})
            as hours_at_newest_rate
    from (select distinct site, device_type from contract_rates) as types
    inner join rest_dates on types.site = rest_dates.site
    left join rated_types on {{ equal_keys('types', 'rated_types', ['site', 'device_type']) }}
    left join rates
        on rated_types.device_type = rates.device_type
        and rest_dates.local_date >= rates.valid_from
        and rest_dates.local_date < rates.until
    group by types.site, types.device_type, rest_dates.billing_month

),

contract_rests as (

    select
        contract_rates.scope,
        contract_rates.scope_name,
        contract_rates.basis,
        rest_hours.billing_month,
        {{ money_sum(money(
            'contract_rates.contract_usd_per_hour * cast(rest_hours.hours as double)'
            ~ ' + contract_rates.capacity_usd_per_hour * cast(rest_hours.hours_at_newest_rate - rest_hours.hours as double)'
        )) }} as contract_rest_usd,
        count(contract_rates.contract_usd_per_hour) as rests
    from contract_rates
    inner join rest_hours on {{ equal_keys('contract_rates', 'rest_hours', ['site', 'device_type']) }}
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
        spent.billing_month in (select billing_month from rest_dates) as is_in_progress,
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
