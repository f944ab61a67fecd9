-- Electricity, CO2 and water of each month.
with months as (

    select * from {{ ref('model_monthly') }}

),

intervals as (

    {{ intervals_by(['facility_energy_kwh', 'location_kgco2e']) }}

),

drivers as (

    select * from {{ ref('cost_drivers_hourly') }} where facility_energy_kwh > 0

),

scope2 as (

    select * from {{ ref('site_scope2_hourly') }}

),

summed as (

    select
        month,
        {{ plain_name('site', 'site') }} as site,
        {{ payer('deployment', ['team']) }} as team,
        {{ plain_name('model', 'model') }} as model,
        {{ exact_sum('facility_energy_kwh') }} as facility_energy_kwh,
        {{ exact('cast(sum(location_gco2e) as double) / 1000') }} as location_kgco2e,
        {{ exact('cast(sum(idle_location_gco2e) as double) / 1000') }} as idle_location_kgco2e,
        {{ exact('cast(sum(embodied_gco2e) as double) / 1000') }} as embodied_kgco2e,
        {{ exact_sum('water_litres') }} as water_litres,
        {{ exact_sum('output_tokens') }} as output_tokens,
        bool_and(coalesce(is_carbon_complete, true)) as is_carbon_complete,
        site || ' | ' || model as marts_key
    from months
    group by all

),

-- The site's market-based CO2 of each hour, by kWh. Known where it is known of each hour.
market as (

    select
        drivers.billing_month as month,
        {{ plain_name('drivers.site', 'site') }} as site,
        {{ payer('drivers.deployment', ['drivers.team']) }} as team,
        {{ plain_name('drivers.model', 'model') }} as model,
        count(*) = count(scope2.scope2_market_gco2e) as is_known,
        {{ exact_sum(exact(
            'cast(drivers.facility_energy_kwh as double) * ' ~ ratio('scope2.scope2_market_gco2e', 'scope2.facility_energy_kwh')
        )) }} as market_gco2e,
        {{ ratio(
            exact_sum(exact(
                "case when scope2.market_basis = 'grid_average' then cast(drivers.facility_energy_kwh as double) * "
                ~ ratio('scope2.unmatched_kwh', 'scope2.facility_energy_kwh') ~ ' else 0 end'
            )),
            exact_sum('drivers.facility_energy_kwh')
        ) }} as grid_average_ratio
    from drivers
    left join scope2 on {{ equal_keys('drivers', 'scope2', ['site', 'hour_start_at', 'local_date']) }}
    group by 1, 2, 3, 4

),

-- Of several teams that share a model, each has the relative error of the model.
final as (

    select
        summed.month,
        summed.site,
        summed.team,
        summed.model,
        summed.facility_energy_kwh,
        summed.facility_energy_kwh * intervals.facility_energy_kwh_low_ratio as facility_energy_kwh_low,
        summed.facility_energy_kwh * intervals.facility_energy_kwh_high_ratio as facility_energy_kwh_high,
        summed.location_kgco2e,
        summed.location_kgco2e * intervals.location_kgco2e_low_ratio as location_kgco2e_low,
        summed.location_kgco2e * intervals.location_kgco2e_high_ratio as location_kgco2e_high,
        summed.idle_location_kgco2e,
        case when market.is_known then {{ exact('cast(market.market_gco2e as double) / 1000') }} end as market_kgco2e,
        case when market.is_known then market.grid_average_ratio end as market_grid_average_ratio,
        summed.embodied_kgco2e,
        summed.water_litres,
        summed.output_tokens,
        summed.is_carbon_complete,
        summed.marts_key
    from summed
    left join intervals on {{ equal_keys('summed', 'intervals', ['month', 'marts_key']) }}
    left join market on {{ equal_keys('summed', 'market', ['month', 'site', 'team', 'model']) }}

)

select * from final
