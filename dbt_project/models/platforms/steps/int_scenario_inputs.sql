-- What each scenario states, with one input changed or none: one row per scenario, varied input and value. A value
-- without a meaning is NULL, and `wrong_inputs` names it.
{# A few rows of a seed, read twice. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}
{% set inputs = scenario_inputs() %}

with stated as (

    select * from {{ ref('scenarios') }}

),

sensitivities as (

    select * from {{ ref('scenario_sensitivities') }}

),

-- As stated, and with one input changed. A sensitivity of an unknown scenario or input keeps its row, without amounts.
variants as (

    select
        scenario,
        'none' as varied_input,
        cast(null as double) as varied_value
    from stated
    union all
    select
        scenario,
        varied_input,
        varied_value
    from sensitivities

),

varied as (

    select
        variants.scenario,
        variants.varied_input,
        variants.varied_value,
        stated.scenario is not null as is_known_scenario,
        variants.varied_input in (
            'none', {% for input in inputs %}'{{ input }}'{{ ', ' if not loop.last }}{% endfor %}
        ) as is_known_input,
        stated.title,
        stated.platform,
        stated.model,
        cast(stated.gpus_per_rack as double) as gpus_per_rack,
        stated.rate_includes_energy,
        stated.power_basis,
        stated.reference_scenario,
        stated.solve_for,
        stated.claim_measure,
        stated.claim_value,
        stated.claim_tolerance_ratio,
        stated.note,
        stated.source,
        stated.as_of,
        {%- for input in inputs %}
        case
            when variants.varied_input = '{{ input }}' then variants.varied_value
            else stated.{{ input }}
        end as {{ input }}{{ ',' if not loop.last }}
        {%- endfor %}
    from variants
    left join stated on variants.scenario = stated.scenario

),

final as (

    select
        scenario,
        varied_input,
        varied_value,
        title,
        platform,
        model,
        gpus_per_rack,
        rate_includes_energy,
        power_basis,
        reference_scenario,
        solve_for,
        claim_measure,
        claim_value,
        claim_tolerance_ratio,
        note,
        source,
        as_of,
        {%- for input, limits in inputs.items() %}
        case when is_known_input and not ({{ is_meaningless(input, limits) }}) then {{ input }} end as {{ input }},
        {%- endfor %}
        {% set wrong = [
            ['not is_known_scenario', 'scenario: it is not in seed scenarios'],
            ['not is_known_input', 'varied_input: seed scenarios has no such input']
        ] %}
        {%- for input, limits in inputs.items() if limits != [none, none] %}
            {%- set meant = limits[0] ~ ' to ' ~ (limits[1] if limits[1] is not none else 'any') %}
            {%- do wrong.append([is_meaningless(input, limits), input ~ ': its value is outside ' ~ meant]) %}
        {%- endfor -%}
        {{ joined_reasons(wrong) }} as wrong_inputs
    from varied

)

select * from final
