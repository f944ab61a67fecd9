-- Scope 2 of each site and hour, by location and by market: what contracts match has their factor, the rest the
-- residual mix, else the grid's average, for a site without a contract as well.
{% set amounts = ['matched_kwh', 'renewable_matched_kwh', 'matched_gco2e'] %}

with energy_hours as (

    select * from {{ ref('int_site_energy_hours') }}

),

contract_hours as (

    select * from {{ ref('int_contract_hours') }}

),

contract_days as (

    select * from {{ ref('energy_contracts_daily') }} where {{ in_run('date') }}

),

residual_mixes as (

    select * from {{ source('fleet', 'residual_mixes') }}

),

grid as (

    select * from {{ ref('site_carbon_hourly') }} where {{ in_run('date') }}

),

hourly_matches as (

    select
        site,
        hour_start_at,
        local_date,
        {{ exact_sum('matched_kwh') }} as matched_kwh,
        {{ exact_sum('case when is_renewable then matched_kwh else 0 end') }} as renewable_matched_kwh,
        {{ exact_sum(exact('cast(matched_kwh as double) * gco2e_per_kwh')) }} as matched_gco2e
    from contract_hours
    where matching <> 'yearly'
    group by site, hour_start_at, local_date

),

yearly_matches as (

    select
        date,
        site,
        {%- for amount in amounts %}
        {{ exact_sum(amount) }} as {{ amount }}{{ ',' if not loop.last }}
        {%- endfor %}
    from contract_days
    where matching = 'yearly'
    group by date, site

),

hours as (

    select
        energy_hours.*,
        {%- for amount in amounts %}
        coalesce(hourly_matches.{{ amount }}, 0) as hourly_{{ amount }},
        coalesce(yearly_matches.{{ amount }}, 0) as date_{{ amount }},
        {%- endfor %}
        coalesce(energy_hours.facility_energy_kwh, 0) - coalesce(hourly_matches.matched_kwh, 0) as remaining_kwh,
        residual_mixes.gco2e_per_kwh as residual_gco2e_per_kwh,
        grid.location_gco2e_per_kwh
    from energy_hours
    left join hourly_matches
        on energy_hours.site = hourly_matches.site
        and energy_hours.hour_start_at = hourly_matches.hour_start_at
        and energy_hours.local_date = hourly_matches.local_date
    left join yearly_matches on energy_hours.date = yearly_matches.date and energy_hours.site = yearly_matches.site
    left join residual_mixes
        on energy_hours.site = residual_mixes.site
        and energy_hours.local_date >= residual_mixes.valid_from
        and (residual_mixes.valid_to is null or energy_hours.local_date < residual_mixes.valid_to)
    left join grid on energy_hours.site = grid.site and energy_hours.hour_start_at = grid.hour_start_at

),

running as (

    select
        *,
        sum(remaining_kwh) over (partition by date, site) as date_remaining_kwh,
        sum(remaining_kwh) over (partition by date, site order by hour_start_at, local_date rows unbounded preceding) as remaining_to_kwh
    from hours

),

-- What a contract by the year matched of the date, its hours have by what was left of each.
matched as (

    select
        *,
        {%- for amount in amounts %}
        hourly_{{ amount }} + case
            when remaining_kwh > 0
                then {{ shared_up_to('date_' ~ amount, 'remaining_to_kwh', 'date_remaining_kwh', amount) }}
                    - {{ shared_up_to('date_' ~ amount, '(remaining_to_kwh - remaining_kwh)', 'date_remaining_kwh', amount) }}
            else 0
        end as {{ amount }}{{ ',' if not loop.last }}
        {%- endfor %}
    from running

),

final as (

    select
        date,
        hour_start_at,
        local_date,
        site,
        facility_energy_kwh,
        cast(matched_kwh as {{ exact_type() }}) as matched_kwh,
        cast(renewable_matched_kwh as {{ exact_type() }}) as renewable_matched_kwh,
        cast(facility_energy_kwh - matched_kwh as {{ exact_type() }}) as unmatched_kwh,
        residual_gco2e_per_kwh,
        case
            when facility_energy_kwh is null then null
            when facility_energy_kwh <= matched_kwh then 'contracts'
            when residual_gco2e_per_kwh is not null then 'residual_mix'
            when location_gco2e_per_kwh is not null then 'grid_average'
            else 'unknown'
        end as market_basis,
        location_gco2e as scope2_location_gco2e,
        cast(
            case
                when facility_energy_kwh <= matched_kwh then matched_gco2e
                else matched_gco2e
                    + {{ exact(
                        'cast(facility_energy_kwh - matched_kwh as double)'
                        ~ ' * coalesce(residual_gco2e_per_kwh, location_gco2e_per_kwh)'
                    ) }}
            end as {{ exact_type() }}
        ) as scope2_market_gco2e,
        cast('{{ var("method_version") }}' as {{ dbt.type_string() }}) as method_version
    from matched

)

select * from final
