-- Electricity, CO2 and water of each month.
with months as (

    select * from {{ ref('model_monthly') }}

),

final as (

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

)

select * from final
