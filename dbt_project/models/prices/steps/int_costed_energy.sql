-- The ledger's rows of the run with their facility energy, CO2, water and money: one row per ledger row.
{{ config(materialized='view') }}

with ledger as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }}

),

site_intervals as (

    select * from {{ ref('int_site_intervals') }}

),

prices as (

    select * from {{ ref('int_capacity_prices') }}

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
        coalesce(site_intervals.local_date, ledger.date) as local_date,
        site_intervals.carbon_basis,
        -- A hall's meter has the cooling in it already.
        case when ledger.meter_scope = 'facility' then 1 else site_intervals.pue end as pue,
        site_intervals.usd_per_kwh,
        site_intervals.location_gco2e_per_kwh,
        site_intervals.lifecycle_gco2e_per_kwh,
        site_intervals.wue_litres_per_kwh,
        prices.usd_per_gpu_hour,
        coalesce(prices.includes_energy, false) as rate_includes_energy,
        coalesce(ledger.unknown_reason <> 'over_max_spread', true) as is_charged,
        -- Where only bare watts are known, a sum over loaded and empty boards would have half.
        case
            when ledger.state <> 'unallocated' then device_types.idle_watts_loaded
            when device_types.idle_watts_loaded is not null then device_types.idle_watts_bare
        end as reference_idle_watts,
        device_types.embodied_kgco2e,
        device_types.embodied_life_years,
        meter_errors.energy_error_ratio,
        coalesce(ledger.unknown_reason = 'unplaced_meter', false) as is_unplaced,
        -- What an unplaced meter reads is in the host energy of the boards beside it already.
        case when ledger.unknown_reason = 'unplaced_meter' then 0 else cast(ledger.energy_joules as double) / 3.6e6 end as device_kwh,
        case
            when ledger.unknown_reason = 'unplaced_meter' then 0
            else cast(ledger.energy_joules + ledger.host_overhead_joules as double) / 3.6e6
        end as it_kwh,
        coalesce({{ ratio('ledger.idle_joules', 'ledger.energy_joules') }}, 0) as idle_ratio
    from ledger
    left join site_intervals on ledger.site = site_intervals.site and ledger.interval_start_at = site_intervals.interval_start_at
    left join prices
        on ledger.site = prices.site
        and ledger.device_type = prices.device_type
        and date_trunc('hour', ledger.interval_start_at) = prices.hour_start_at
        and site_intervals.local_date = prices.local_date
    left join device_types on ledger.device_type = device_types.device_type
    left join meter_errors on ledger.meter_scope = meter_errors.meter_scope

),

priced as (

    select
        *,
        it_kwh * pue as facility_kwh,
        {{ row_energy_cost_usd() }} as energy_usd,
        device_kwh * pue * usd_per_kwh as device_energy_usd,
        {{ row_charged_energy_cost_usd() }} as charged_energy_usd,
        -- Without an accelerator of its own (a node's meter beside its boards) a row needs no rate.
        case when gpu_seconds = 0 then 0 else {{ row_capacity_cost_usd() }} end as capacity_usd,
        -- Energy is idle by its joules, capacity by its time; what is unknown is neither.
        coalesce({{ ratio('active_seconds', 'covered_seconds') }}, 0) as active_ratio,
        coalesce({{ ratio('covered_seconds - unknown_seconds', 'covered_seconds') }}, 0) as known_ratio
    from factored

),

final as (

    select
        *,
        {{ exact('facility_kwh') }} as facility_energy_kwh,
        case
            when carbon_basis in ('hourly', 'hourly_estimated') then {{ exact('facility_kwh') }}
            else {{ exact('0') }}
        end as hourly_carbon_kwh,
        {{ exact('facility_kwh * location_gco2e_per_kwh') }} as location_gco2e,
        {{ exact('facility_kwh * lifecycle_gco2e_per_kwh') }} as lifecycle_gco2e,
        {{ exact('facility_kwh * location_gco2e_per_kwh * idle_ratio') }} as idle_location_gco2e,
        {{ exact(embodied_gco2e('gpu_seconds')) }} as embodied_gco2e,
        {{ exact('it_kwh * wue_litres_per_kwh') }} as water_litres,
        {{ money('energy_usd') }} as energy_cost_usd,
        {{ money('energy_usd') }} - {{ money('energy_usd / pue') }} as overhead_cost_usd,
        {{ money('charged_energy_usd') }} as charged_energy_cost_usd,
        {{ money('energy_usd * idle_ratio') }} as idle_energy_cost_usd,
        {{ money('energy_usd * idle_ratio') }} - {{ money('energy_usd / pue * idle_ratio') }} as idle_overhead_cost_usd,
        {{ exact('facility_kwh * idle_ratio') }} as idle_facility_kwh,
        {{ money('device_energy_usd') }}
            - {{ money(
                'device_energy_usd * (1 - ' ~ ratio('productive_joules', 'energy_joules') ~ ')'
            ) }} as variable_cost_usd,
        {{ money('device_energy_usd / pue') }}
            - {{ money('device_energy_usd / pue * (1 - ' ~ ratio('productive_joules', 'energy_joules') ~ ')') }}
        as variable_device_cost_usd,
        {{ exact('device_kwh * pue * location_gco2e_per_kwh * coalesce(' ~ ratio('productive_joules', 'energy_joules') ~ ', 0)') }}
        as productive_location_gco2e,
        {{ exact('case when is_charged then cast(gpu_seconds as double) * active_ratio else 0 end') }} as active_gpu_seconds,
        {{ exact('case when is_charged then cast(gpu_seconds as double) * (known_ratio - active_ratio) else 0 end') }} as idle_gpu_seconds,
        -- Differences of one rounded total, so that the parts add up to it.
        {{ money('capacity_usd') }} as capacity_cost_usd,
        {{ money('capacity_usd * active_ratio') }} as active_capacity_cost_usd,
        {{ money('capacity_usd * known_ratio') }} - {{ money('capacity_usd * active_ratio') }} as idle_capacity_cost_usd,
        {{ money('capacity_usd') }} - {{ money('capacity_usd * known_ratio') }} as unknown_capacity_cost_usd,
        {{ money('charged_energy_usd * idle_ratio') }}
            + {{ money('capacity_usd * known_ratio') }}
            - {{ money('capacity_usd * active_ratio') }} as idle_compute_cost_usd,
        case when is_charged then gpu_seconds else {{ exact('0') }} end as charged_gpu_seconds,
        energy_usd is not null as is_tariffed,
        deployment not in ({{ unallocated() }}, {{ unknown() }}) or coalesce(unknown_reason = 'no_engine_for_pod', false) as is_held,
        charged_energy_usd is not null and capacity_usd is not null as is_priced,
        facility_kwh * location_gco2e_per_kwh is not null as is_carbon_known,
        case
            when facility_kwh * location_gco2e_per_kwh is null and not is_unplaced then energy_joules
            else {{ exact('0') }}
        end as carbon_unknown_joules,
        {{ exact("reference_idle_watts * cast(covered_seconds as double)") }} as reference_idle_joules,
        covered_seconds - unknown_seconds as known_seconds,
        {{ exact('cast(energy_joules as double) * energy_error_ratio') }} as error_joules
    from priced

)

select * from final
