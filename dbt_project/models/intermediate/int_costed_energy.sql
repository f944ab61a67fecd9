-- The ledger's rows of the run with their facility energy, CO2, water and money: one row per ledger row.
{{ config(materialized='view') }}

with ledger as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }}

),

site_intervals as (

    select * from {{ ref('int_site_intervals') }}

),

rates as (

    select
        device_type,
        usd_per_gpu_hour,
        includes_energy,
        valid_from,
        coalesce(valid_to, lead(valid_from) over (partition by device_type order by valid_from), date '9999-01-01') as until
    from (
        select device_type, usd_per_gpu_hour, includes_energy, valid_from, valid_to from {{ source('fleet', 'cost_rates') }}
        union all
        select device_type, usd_per_gpu_hour, includes_energy, valid_from, cast(null as date)
        from {{ ref('cost_rates') }}
        where device_type not in (select device_type from {{ source('fleet', 'cost_rates') }})
    ) as all_rates

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

meter_errors as (

    select * from {{ ref('meter_errors') }}

),

factored as (

    select
        ledger.*,
        site_intervals.billing_month,
        site_intervals.carbon_basis,
        -- A hall's meter has the cooling in it already.
        case when ledger.meter_scope = 'facility' then 1 else site_intervals.pue end as pue,
        site_intervals.usd_per_kwh,
        site_intervals.location_gco2e_per_kwh,
        site_intervals.lifecycle_gco2e_per_kwh,
        site_intervals.wue_litres_per_kwh,
        rates.usd_per_gpu_hour,
        coalesce(rates.includes_energy, false) as rate_includes_energy,
        device_types.idle_watts_loaded,
        device_types.idle_watts_bare,
        device_types.embodied_kgco2e,
        meter_errors.energy_error_ratio,
        cast(ledger.energy_joules as double) / 3.6e6 as device_kwh,
        cast(ledger.energy_joules + ledger.host_overhead_joules as double) / 3.6e6 as it_kwh,
        coalesce({{ ratio('ledger.idle_joules', 'ledger.energy_joules') }}, 0) as idle_ratio
    from ledger
    left join site_intervals on ledger.site = site_intervals.site and ledger.interval_start_at = site_intervals.interval_start_at
    left join rates
        on ledger.device_type = rates.device_type and ledger.date >= rates.valid_from and ledger.date < rates.until
    left join device_types on ledger.device_type = device_types.device_type
    left join meter_errors on ledger.meter_scope = meter_errors.meter_scope

),

final as (

    select
        *,
        {{ exact('it_kwh * pue') }} as facility_energy_kwh,
        case when carbon_basis in ('hourly', 'hourly_estimated') then {{ exact('it_kwh * pue') }} else {{ exact('0') }} end as hourly_carbon_kwh,
        {{ exact('it_kwh * pue * location_gco2e_per_kwh') }} as location_gco2e,
        {{ exact('it_kwh * pue * lifecycle_gco2e_per_kwh') }} as lifecycle_gco2e,
        {{ exact('it_kwh * pue * location_gco2e_per_kwh * idle_ratio') }} as idle_location_gco2e,
        -- Manufacture spread over four years of GPU-hours (35,064 h).
        {{ exact('embodied_kgco2e * 1000 * cast(gpu_seconds as double) / 3600 / 35064') }} as embodied_gco2e,
        {{ exact('it_kwh * wue_litres_per_kwh') }} as water_litres,
        {{ exact(row_energy_cost_usd()) }} as energy_cost_usd,
        {{ exact('device_kwh * pue * usd_per_kwh') }}
        - {{ exact('device_kwh * pue * usd_per_kwh * (1 - ' ~ ratio('productive_joules', 'energy_joules') ~ ')') }} as marginal_cost_usd,
        {{ exact(row_capacity_cost_usd()) }} as capacity_cost_usd,
        -- Energy is idle by its joules, capacity by its time; what is unknown is neither.
        {{ exact('it_kwh * pue * usd_per_kwh * idle_ratio') }} as idle_energy_cost_usd,
        case when state = 'unknown' then {{ exact('0') }} else {{ exact(
            'cast(gpu_seconds as double) / 3600 * usd_per_gpu_hour * (1 - ' ~ ratio('active_seconds + unknown_seconds', 'covered_seconds') ~ ')'
        ) }} end as idle_capacity_cost_usd,
        {{ exact(row_capacity_cost_usd() ~ ' + ' ~ row_charged_energy_cost_usd()) }} as allocation_cost_usd,
        {{ exact("case when state = 'unallocated' then idle_watts_bare else idle_watts_loaded end * cast(covered_seconds as double)") }}
        as reference_idle_joules,
        covered_seconds - unknown_seconds as known_seconds,
        {{ exact('cast(energy_joules as double) * energy_error_ratio') }} as error_joules
    from factored

)

select * from final
