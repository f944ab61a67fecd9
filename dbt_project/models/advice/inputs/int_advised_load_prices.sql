-- What a kWh costs on a date, by the tariff and the carbon price that the fleet file states for its hours, over what it
-- costs on the newest one: one row per site, billing month and UTC date, booked in the last 26 weeks or to come.
with site_power as (

    select * from {{ ref('site_power_hourly') }}

),

models as (

    select * from {{ ref('model_daily') }}

),

hours as (

    select * from {{ ref('int_advised_date_hours') }}

),

sites as (

    select site, time_zone from {{ source('fleet', 'sites') }}

),

tariffs as (

    select * from {{ source('fleet', 'tariffs') }}

),

carbon_prices as (

    select * from {{ source('fleet', 'site_charges') }} where part = 'carbon_price'

),

lookback as (

    select as_of_date from {{ ref('int_lookback') }}

),

-- When the site draws its energy: a tariff by hours of the day costs what these hours weigh.
profiles as (

    select
        site_power.site,
        {{ local_hour('site_power.hour_start_at', 'sites.time_zone') }} as local_hour,
        cast(sum(site_power.facility_energy_kwh) as double) as facility_energy_kwh
    from site_power
    inner join sites on site_power.site = sites.site
    inner join lookback on site_power.date > lookback.as_of_date - interval {{ var('curve_lookback_days') }} day
    group by 1, 2

),

carbon as (

    select
        models.site,
        {{ ratio('sum(models.location_gco2e)', 'sum(models.facility_energy_kwh)') }} as gco2e_per_kwh
    from models
    inner join lookback on models.date > lookback.as_of_date - interval {{ var('curve_lookback_days') }} day
    where models.location_gco2e is not null
    group by models.site

),

priced_hours as (

    select
        hours.site,
        hours.billing_month,
        hours.date,
        hours.rest_ratio,
        {{ exact('profiles.facility_energy_kwh * hours.quarters') }} as weight,
        tariffs.usd_per_kwh + coalesce(carbon_prices.usd * carbon.gco2e_per_kwh, 0) / 1e6 as usd_per_kwh
    from hours
    inner join profiles on hours.site = profiles.site and hours.local_hour = profiles.local_hour
    left join carbon on hours.site = carbon.site
    left join tariffs
        on hours.site = tariffs.site
        and hours.local_hour >= tariffs.local_hour_from
        and hours.local_hour < tariffs.local_hour_to
        and hours.local_date >= tariffs.valid_from
        and (tariffs.valid_to is null or hours.local_date < tariffs.valid_to)
    left join carbon_prices
        on hours.site = carbon_prices.site
        and hours.local_date >= carbon_prices.valid_from
        and (carbon_prices.valid_to is null or hours.local_date < carbon_prices.valid_to)

),

dates as (

    select distinct
        site,
        billing_month,
        date,
        rest_ratio
    from hours

),

prices as (

    select
        site,
        billing_month,
        date,
        rest_ratio,
        case
            when count(usd_per_kwh) < count(*) then null
            -- What does not change is the same number on each date, whatever the hours weigh.
            when min(usd_per_kwh) = max(usd_per_kwh) then min(usd_per_kwh)
            else {{ ratio(money_sum(money('weight * usd_per_kwh')), exact_sum('weight')) }}
        end as usd_per_kwh
    from priced_hours
    group by site, billing_month, date, rest_ratio

),

newest as (

    select
        prices.site,
        max(prices.usd_per_kwh) as usd_per_kwh
    from prices
    inner join lookback on prices.date = lookback.as_of_date
    group by prices.site

),

-- Where a price is not known, or is not above 0, no energy follows from what was paid: what it cost goes on.
repriced as (

    select site
    from prices
    group by site
    having bool_and(coalesce(usd_per_kwh, 0) > 0)

),

final as (

    select
        dates.site,
        dates.billing_month,
        dates.date,
        dates.rest_ratio,
        coalesce(prices.usd_per_kwh / newest.usd_per_kwh, 1) as price_ratio
    from dates
    left join repriced on dates.site = repriced.site
    left join prices
        on repriced.site = prices.site
        and dates.billing_month = prices.billing_month
        and dates.date = prices.date
    left join newest on repriced.site = newest.site

)

select * from final
