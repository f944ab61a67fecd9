-- Electricity, CO2 and water of each month.
with months as (

    select * from {{ ref('model_monthly') }}

),

intervals as (

    {{ intervals_by(['facility_energy_kwh', 'location_kgco2e']) }}

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
        summed.embodied_kgco2e,
        summed.water_litres,
        summed.output_tokens,
        summed.is_carbon_complete,
        summed.marts_key
    from summed
    left join intervals on {{ equal_keys('summed', 'intervals', ['month', 'marts_key']) }}

)

select * from final
