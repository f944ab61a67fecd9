-- What a token of each scenario earns, what a year of it costs, and how many years it has: one row per scenario, varied
-- input and value. Sums over the years come after it, in scenario_results.
{# scenario_results alone reads it. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}
{% set classes = scenario_classes() %}

with inputs as (

    select * from {{ ref('int_scenario_inputs') }}

),

-- A scenario states tokens of all classes together, or of each class.
mixed as (

    select
        *,
        {% for class in classes -%}
        coalesce({{ class }}_tokens_per_second_per_gpu, 0){{ ' + ' if not loop.last }}
        {%- endfor %} as all_tokens_per_second_per_gpu,
        {% for class in classes -%}
        coalesce({{ class }}_tokens_per_second_per_gpu * usd_per_{{ class }}_mtok, 0){{ ' + ' if not loop.last }}
        {%- endfor %} as priced_sum,
        coalesce(
            {% for class in classes %}{{ class }}_tokens_per_second_per_gpu{{ ', ' if not loop.last }}{% endfor %}
        ) is not null as has_throughput,
        {% for class in classes -%}
        (
            coalesce({{ class }}_tokens_per_second_per_gpu, 0) > 0
            and usd_per_{{ class }}_mtok is null
        ){{ ' or ' if not loop.last }}
        {%- endfor %} as has_unpriced_class,
        total_tokens_per_second_per_gpu is not null
            and coalesce(
                computed_input_tokens_per_second_per_gpu,
                cached_input_tokens_per_second_per_gpu,
                output_tokens_per_second_per_gpu
            ) is not null as is_counted_twice,
        {% for class in classes -%}
        case when usd_per_{{ class }}_mtok is null then 0 else 1 end{{ ' + ' if not loop.last }}
        {%- endfor %} as priced_classes,
        coalesce(
            {% for class in classes %}usd_per_{{ class }}_mtok{{ ', ' if not loop.last }}{% endfor %}
        ) as first_price
    from inputs

),

-- The price of a mean token in the first year. Stated provisioned kW hold cooling and overhead already; those of the IT
-- equipment do not.
priced as (

    select
        *,
        case
            when has_throughput and not is_counted_twice then all_tokens_per_second_per_gpu
        end as stated_tokens_per_second_per_gpu,
        case
            when is_counted_twice then null
            when has_throughput and not has_unpriced_class and all_tokens_per_second_per_gpu > 0
                then priced_sum / all_tokens_per_second_per_gpu
            when (not has_throughput or all_tokens_per_second_per_gpu = 0) and priced_classes = 1
                then first_price
        end as price_usd_per_mtok,
        case power_basis
            when 'provisioned' then power_kw_per_gpu
            when 'it' then power_kw_per_gpu * pue
        end as facility_kw_per_gpu
    from mixed

),

yearly as (

    select
        *,
        case
            when rate_includes_energy then 0.0
            else gpus * facility_kw_per_gpu * 8760 * usd_per_kwh
        end as energy_usd_per_year,
        case
            when capex_usd is not null and usd_per_gpu_hour is not null then 'stated_twice'
            when stated_cost_usd_per_mtok is not null then 'stated_per_mtok'
            when usd_per_gpu_hour is not null and rate_includes_energy then 'rate_with_energy'
            when usd_per_gpu_hour is not null and usd_per_kwh is not null then 'rate_and_energy'
            when usd_per_gpu_hour is not null then 'rate_without_energy'
            when capex_usd is not null and usd_per_kwh is not null then 'capex_and_energy'
            when capex_usd is not null then 'capex_alone'
            when other_usd_per_year is not null then 'yearly_amount_alone'
            else 'unknown'
        end as cost_basis
    from priced

),

costed as (

    select
        *,
        case
            when cost_basis in ('stated_per_mtok', 'stated_twice', 'unknown') then null
            else
                coalesce(gpus * 8760 * usd_per_gpu_hour, case when usd_per_gpu_hour is null then 0 end)
                + case when cost_basis in ('rate_and_energy', 'capex_and_energy') then energy_usd_per_year else 0 end
                + coalesce(other_usd_per_year, 0)
        end as annual_cost_usd
    from yearly

),

final as (

    select
        *,
        case
            when solve_for = 'years' and claim_measure = 'cost_usd'
                then {{ ratio('claim_value - coalesce(capex_usd, 0)', 'annual_cost_usd') }}
            else years
        end as held_years
    from costed

)

select * from final
