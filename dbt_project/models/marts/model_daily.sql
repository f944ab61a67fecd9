-- The headline per model and day: the hours of model_hourly, summed.
with hours as (

    select * from {{ ref('model_hourly') }} where {{ in_run('date') }}

),

summed as (

    select
        date,
        {% for key in model_keys() -%}
        {{ key }},
        {% endfor -%}
        {{ summed_facts() }}
    from hours
    group by date{% for key in model_keys() %}, {{ key }}{% endfor %}

),

held as (

    select
        date,
        {% for key in model_keys() -%}
        {{ key }},
        {% endfor -%}
        {{ exact_sum('held_gpu_seconds') }} as held_gpu_seconds
    from {{ ref('int_held_time') }}
    group by date{% for key in model_keys() %}, {{ key }}{% endfor %}

),

final as (

    select
        summed.date,
        {% for key in model_keys() + energy_facts() + token_facts() -%}
        summed.{{ key }},
        {% endfor -%}
        -- No contracts are known yet: market-based CO2 is unknown, not zero.
        cast(null as {{ exact_type() }}) as market_gco2e,
        {{ ratio('summed.gpu_seconds', 'held.held_gpu_seconds') }} as coverage_ratio,
        {{ model_ratios() }},
        false as is_opening_balance
    from summed
    left join held
        on summed.date = held.date
        {% for key in model_keys() -%}
        and summed.{{ key }} is not distinct from held.{{ key }}
        {% endfor %}

)

select * from final
