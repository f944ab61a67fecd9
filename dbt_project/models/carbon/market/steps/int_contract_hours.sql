-- What each contract supplies in each hour of the run, and what of it the hour used where it is matched by the hour.
-- Contracts are used in the fleet file's order, and never more than the site used. One row per date, site, hour, local
-- date and contract's entry.
with energy_hours as (

    select * from {{ ref('int_site_energy_hours') }}

),

contracts as (

    select * from {{ source('fleet', 'energy_contracts') }}

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

-- MWh of a year are spread evenly over its local hours that the contract names. An hour counts by the local hour in
-- which it begins.
supplied as (

    select
        energy_hours.date,
        energy_hours.site,
        energy_hours.hour_start_at,
        energy_hours.local_date,
        contracts.entry,
        contracts.contract,
        contracts.matching,
        contracts.gco2e_per_kwh,
        contracts.is_renewable,
        coalesce(energy_hours.facility_energy_kwh, 0) as site_kwh,
        {{ exact(
            'coalesce('
            ~ 'contracts.share_ratio * cast(coalesce(energy_hours.facility_energy_kwh, 0) as double), '
            ~ 'contracts.mwh_per_year * 1000 * energy_hours.piece_seconds / 3600'
            ~ ' / ((contracts.local_hour_to - contracts.local_hour_from) * '
            ~ days_of_year('energy_hours.local_date') ~ '))'
        ) }} as contracted_kwh
    from energy_hours
    inner join sites on energy_hours.site = sites.site
    inner join contracts
        on energy_hours.site = contracts.site
        and energy_hours.local_date >= contracts.valid_from
        and (contracts.valid_to is null or energy_hours.local_date < contracts.valid_to)
        and {{ local_hour('energy_hours.hour_start_at', 'sites.time_zone') }} >= contracts.local_hour_from
        and {{ local_hour('energy_hours.hour_start_at', 'sites.time_zone') }} < contracts.local_hour_to

),

running as (

    select
        *,
        sum(case when matching = 'yearly' then 0 else contracted_kwh end)
            over (partition by site, hour_start_at, local_date order by entry rows unbounded preceding) as contracted_to_kwh
    from supplied

),

final as (

    select
        date,
        site,
        hour_start_at,
        local_date,
        entry,
        contract,
        matching,
        gco2e_per_kwh,
        is_renewable,
        contracted_kwh,
        case
            when matching <> 'yearly'
                then cast(least(contracted_to_kwh, site_kwh) - least(contracted_to_kwh - contracted_kwh, site_kwh) as {{ exact_type() }})
        end as matched_kwh
    from running

)

select * from final
