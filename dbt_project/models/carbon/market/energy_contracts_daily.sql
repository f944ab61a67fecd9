-- What each contract supplied on a date, and what of it the site used: by the hour, or by the date for MWh that are
-- stated for a year.
with energy_hours as (

    select * from {{ ref('int_site_energy_hours') }}

),

contract_hours as (

    select * from {{ ref('int_contract_hours') }}

),

by_entry as (

    select
        date,
        site,
        entry,
        contract,
        matching,
        gco2e_per_kwh,
        is_renewable,
        {{ exact_sum('contracted_kwh') }} as contracted_kwh,
        {{ exact_sum('matched_kwh') }} as hourly_matched_kwh
    from contract_hours
    group by date, site, entry, contract, matching, gco2e_per_kwh, is_renewable

),

used as (

    select
        date,
        site,
        coalesce({{ exact_sum('facility_energy_kwh') }}, 0) as facility_energy_kwh
    from energy_hours
    group by date, site

),

matched_by_hour as (

    select
        date,
        site,
        sum(coalesce(hourly_matched_kwh, 0)) as hourly_matched_kwh
    from by_entry
    group by date, site

),

-- A contract by the year takes what those by the hour left of the date, in the fleet file's order.
running as (

    select
        by_entry.*,
        used.facility_energy_kwh - matched_by_hour.hourly_matched_kwh as remaining_kwh,
        sum(case when by_entry.matching = 'yearly' then by_entry.contracted_kwh else 0 end)
            over (partition by by_entry.date, by_entry.site order by by_entry.entry rows unbounded preceding) as contracted_to_kwh
    from by_entry
    inner join used on by_entry.date = used.date and by_entry.site = used.site
    inner join matched_by_hour on by_entry.date = matched_by_hour.date and by_entry.site = matched_by_hour.site

),

matched as (

    select
        *,
        cast(
            case
                when matching = 'yearly'
                    then least(contracted_to_kwh, remaining_kwh)
                        - least(contracted_to_kwh - contracted_kwh, remaining_kwh)
                else hourly_matched_kwh
            end as {{ exact_type() }}
        ) as matched_kwh
    from running

),

final as (

    select
        date,
        site,
        contract,
        matching,
        {{ exact_sum('contracted_kwh') }} as contracted_kwh,
        {{ exact_sum('matched_kwh') }} as matched_kwh,
        {{ exact_sum('contracted_kwh - matched_kwh') }} as surplus_kwh,
        {{ exact_sum('case when is_renewable then matched_kwh else 0 end') }} as renewable_matched_kwh,
        {{ exact_sum(exact('cast(matched_kwh as double) * gco2e_per_kwh')) }} as matched_gco2e,
        cast('{{ var("method_version") }}' as {{ dbt.type_string() }}) as method_version
    from matched
    group by date, site, contract, matching

)

select * from final
