-- Energy, capacity and money per hour and model, where who holds the accelerators is known apart from where it is not:
-- what the hours of models and the parts of the cost are computed from. One row per hour, local date, model_hourly's
-- keys and is_held.
{# Claimed time and its cost come from other models than the ledger's rows. #}
{% set extra = [
    'overhead_cost_usd', 'variable_device_cost_usd', 'productive_location_gco2e', 'active_gpu_seconds',
    'active_capacity_cost_usd', 'charged_energy_cost_usd', 'unknown_capacity_cost_usd', 'charged_gpu_seconds',
    'idle_gpu_seconds', 'idle_facility_kwh', 'idle_energy_cost_usd', 'idle_overhead_cost_usd', 'idle_capacity_cost_usd'
] %}
{% set of_claims = [
    'claimed_gpu_seconds', 'unpriced_gpu_seconds', 'capacity_cost_usd', 'unknown_cost_usd', 'compute_cost_usd'
] %}

with costed_energy as (

    select * from {{ ref('int_costed_energy') }}

),

engine_prices as (

    select * from {{ ref('int_engine_prices') }}

),

claimed_hours as (

    select * from {{ ref('int_claimed_hours') }}

),

prices as (

    select * from {{ ref('int_capacity_prices') }}

),

-- Few engines hold boards of which only some have a price.
partly_priced as (

    select * from engine_prices
    where (is_priced_in_part and not is_priced)
        or (is_tariffed_in_part and not is_tariffed)
        or (is_carbon_known_in_part and not is_carbon_known)

),

matched_energy as (

    select
        costed_energy.*,
        {% for flag in ['is_priced', 'is_tariffed', 'is_carbon_known'] -%}
        costed_energy.is_matched
            and costed_energy.{{ flag }}
            and coalesce(partly_priced.{{ flag }}, true) as is_matched_and_{{ flag[3:] }}{{ ',' if not loop.last }}
        {% endfor %}
    from costed_energy
    left join partly_priced
        on costed_energy.interval_start_at = partly_priced.interval_start_at and costed_energy.engine = partly_priced.engine

),

energy_pieces as (

    select
        date,
        date_trunc('hour', interval_start_at) as hour_start_at,
        local_date,
        billing_month,
        site,
        deployment,
        namespace,
        team,
        model,
        coalesce(device_type, {{ unknown() }}) as device_type,
        meter_scope,
        role,
        is_held,
        count(*) as ledger_rows,
        {% for fact in energy_facts() if fact not in of_claims and not fact.startswith('matched_') -%}
        {{ fact_sum(fact) }} as {{ fact }},
        {% endfor -%}
        {% for fact in extra -%}
        {{ fact_sum(fact) }} as {{ fact }},
        {% endfor -%}
        {{ money_sum('capacity_cost_usd') }} as covered_capacity_cost_usd,
        {{ exact_sum('case when not is_tariffed then facility_energy_kwh end') }} as untariffed_kwh,
        case when min(usd_per_kwh) = max(usd_per_kwh) then min(usd_per_kwh) end as tariff_usd_per_kwh,
        {{ exact_sum('case when is_priced then 0 else gpu_seconds end') }} as unpriced_covered_gpu_seconds,
        {{ exact_sum('case when capacity_cost_usd is null then gpu_seconds end') }} as unrated_covered_gpu_seconds,
        {{ exact_sum('case when is_matched then productive_joules + idle_joules end') }} as matched_joules,
        {{ exact_sum('case when is_matched then productive_joules end') }} as matched_productive_joules,
        {{ exact_sum('case when is_matched_and_carbon_known then location_gco2e end') }} as matched_location_gco2e,
        {{ money_sum('case when is_matched_and_tariffed then variable_cost_usd end') }} as matched_variable_cost_usd,
        {{ money_sum(
            'case when is_matched_and_priced then charged_energy_cost_usd + capacity_cost_usd end'
        ) }} as matched_compute_cost_usd
    from matched_energy
    group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13

),

-- Claimed time without coverage costs as much; whether it worked is unknown.
claimed_pieces as (

    select
        {% for key in ['date', 'hour_start_at', 'local_date', 'billing_month', 'is_held'] + model_keys() -%}
        coalesce(energy_pieces.{{ key }}, claimed_hours.{{ key }}) as {{ key }},
        {% endfor -%}
        {% for fact in energy_facts() if fact not in of_claims -%}
        energy_pieces.{{ fact }},
        {% endfor -%}
        {% for fact in extra -%}
        energy_pieces.{{ fact }},
        {% endfor -%}
        energy_pieces.covered_capacity_cost_usd,
        energy_pieces.untariffed_kwh,
        energy_pieces.tariff_usd_per_kwh,
        energy_pieces.unpriced_covered_gpu_seconds,
        energy_pieces.unrated_covered_gpu_seconds,
        coalesce(energy_pieces.ledger_rows, 0) > 0 as is_metered,
        claimed_hours.claimed_gpu_seconds,
        greatest(
            coalesce(claimed_hours.claimed_gpu_seconds, 0) - coalesce(energy_pieces.charged_gpu_seconds, 0),
            0
        ) as uncovered_gpu_seconds
    from energy_pieces
    full outer join claimed_hours
        on energy_pieces.hour_start_at = claimed_hours.hour_start_at
        and energy_pieces.local_date = claimed_hours.local_date
        and energy_pieces.is_held = claimed_hours.is_held
        {% for key in model_keys() -%}
        and energy_pieces.{{ key }} is not distinct from claimed_hours.{{ key }}
        {% endfor %}

),

priced_pieces as (

    select
        claimed_pieces.*,
        {{ money(
            'case when uncovered_gpu_seconds > 0 then cast(uncovered_gpu_seconds as double) / 3600 * prices.usd_per_gpu_hour else 0 end'
        ) }} as uncovered_cost_usd,
        {{ money('cast(coalesce(charged_gpu_seconds, 0) + uncovered_gpu_seconds as double) / 3600 * prices.capital_usd_per_gpu_hour') }}
        as cost_of_capital_usd,
        prices.rate_usd_per_gpu_hour,
        prices.capital_rate_usd_per_gpu_hour,
        prices.includes as rate_includes,
        prices.source as rate_source,
        prices.usd_per_gpu_hour is null as has_no_rate
    from claimed_pieces
    left join prices
        on claimed_pieces.site = prices.site
        and claimed_pieces.device_type = prices.device_type
        and claimed_pieces.hour_start_at = prices.hour_start_at
        and claimed_pieces.local_date = prices.local_date

),

-- Where nothing was metered no energy is charged, and all that was claimed is uncovered.
final as (

    select
        *,
        case when is_metered then covered_capacity_cost_usd else 0 end + uncovered_cost_usd as capacity_cost_usd,
        case when is_metered then unknown_capacity_cost_usd else 0 end + uncovered_cost_usd as unknown_cost_usd,
        case when is_metered then covered_capacity_cost_usd + charged_energy_cost_usd else 0 end
            + uncovered_cost_usd as compute_cost_usd,
        coalesce(unpriced_covered_gpu_seconds, 0) + case when has_no_rate then uncovered_gpu_seconds else 0 end as unpriced_gpu_seconds,
        coalesce(unrated_covered_gpu_seconds, 0) + case when has_no_rate then uncovered_gpu_seconds else 0 end as unrated_gpu_seconds
    from priced_pieces

)

select * from final
