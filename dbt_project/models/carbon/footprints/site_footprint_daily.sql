-- The footprint of each site and date by standard: Scope 2 twice, Scope 3 embodied, and the facility's PUE, WUE, CUE
-- and REF as numerator and denominator.
with fleet_days as (

    select * from {{ ref('fleet_daily') }} where {{ in_run('date') }}

),

sci_days as (

    select * from {{ ref('sci_daily') }} where {{ in_run('date') }}

),

scope2_hours as (

    select * from {{ ref('site_scope2_hourly') }} where {{ in_run('date') }}

),

-- A hall's meter has IT equipment and cooling in one figure: what of it is IT is not known.
site_days as (

    select
        date,
        site,
        {{ exact_sum('facility_energy_kwh') }} as facility_energy_kwh,
        {{ exact(
            ratio(
                exact_sum('case when facility_energy_kwh is not null then energy_joules + host_overhead_joules end'),
                '3.6e6'
            )
        ) }} as device_and_host_kwh,
        max(case when meter_scope = 'facility' and energy_joules > 0 then 1 else 0 end) = 1 as has_hall_meter,
        {{ exact_sum('carbon_unknown_joules') }} as carbon_unknown_joules,
        {{ exact_sum('location_gco2e') }} as location_gco2e,
        {{ exact_sum('water_litres') }} as water_litres
    from fleet_days
    group by date, site

),

embodied as (

    select
        date,
        site,
        {{ exact_sum('scope3_embodied_gco2e') }} as scope3_embodied_gco2e,
        {{ exact_sum('case when scope3_embodied_gco2e is null then claimed_gpu_seconds else 0 end') }} as embodied_unknown_gpu_seconds
    from sci_days
    group by date, site

),

-- A date's market basis is the weakest of its hours.
market as (

    select
        date,
        site,
        {{ exact_sum('matched_kwh') }} as matched_kwh,
        {{ exact_sum('renewable_matched_kwh') }} as renewable_matched_kwh,
        {{ exact_sum('scope2_market_gco2e') }} as scope2_market_gco2e,
        case
            when count(market_basis) > 0 then {{ exact_sum("case when market_basis = 'unknown' then facility_energy_kwh else 0 end") }}
        end as market_unknown_kwh,
        max(
            case market_basis
                when 'unknown' then 4
                when 'grid_average' then 3
                when 'residual_mix' then 2
                when 'contracts' then 1
            end
        ) as weakest
    from scope2_hours
    group by date, site

),

joined as (

    select
        site_days.*,
        case when not site_days.has_hall_meter then site_days.device_and_host_kwh end as it_energy_kwh,
        embodied.scope3_embodied_gco2e,
        embodied.embodied_unknown_gpu_seconds,
        market.matched_kwh,
        market.renewable_matched_kwh,
        market.scope2_market_gco2e,
        market.market_unknown_kwh,
        case market.weakest
            when 4 then 'unknown'
            when 3 then 'grid_average'
            when 2 then 'residual_mix'
            when 1 then 'contracts'
        end as market_basis
    from site_days
    left join embodied on site_days.date = embodied.date and site_days.site = embodied.site
    left join market on site_days.date = market.date and site_days.site = market.site

),

final as (

    select
        date,
        site,
        it_energy_kwh,
        facility_energy_kwh,
        {{ ratio('facility_energy_kwh', 'it_energy_kwh') }} as pue,
        case when has_hall_meter then 'hall_meter_not_split' when it_energy_kwh is not null then 'stated' end as pue_basis,
        location_gco2e as scope2_location_gco2e,
        carbon_unknown_joules = 0 as is_carbon_complete,
        {{ ratio('location_gco2e', 'it_energy_kwh') }} / 1000 as cue_location_kgco2e_per_kwh,
        scope2_market_gco2e,
        market_basis,
        market_unknown_kwh,
        matched_kwh,
        renewable_matched_kwh,
        {{ ratio('renewable_matched_kwh', 'facility_energy_kwh') }} as ref_contract_ratio,
        scope3_embodied_gco2e,
        embodied_unknown_gpu_seconds,
        water_litres as site_water_litres,
        {{ ratio('water_litres', 'it_energy_kwh') }} as wue_site_litres_per_kwh,
        case when water_litres is not null then 'stated' end as wue_basis,
        cast('{{ var("method_version") }}' as {{ dbt.type_string() }}) as method_version
    from joined

)

select * from final
