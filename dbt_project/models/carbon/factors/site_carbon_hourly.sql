-- Which grid factor weighted each hour of each site, and where it came from: the source of location_gco2e.
with carbon_factors as (

    select * from {{ ref('int_carbon_factors') }}

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

final as (

    select
        carbon_factors.date,
        carbon_factors.hour_start_at,
        sites.site,
        sites.zone,
        carbon_factors.carbon_basis,
        carbon_factors.carbon_source,
        carbon_factors.location_gco2e_per_kwh,
        carbon_factors.lifecycle_gco2e_per_kwh,
        carbon_factors.lifecycle_basis,
        carbon_factors.marginal_gco2e_per_kwh
    from sites
    inner join carbon_factors on sites.zone = carbon_factors.zone

)

select * from final
