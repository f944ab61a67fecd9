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

final as (

    select
        date,
        {% for key in model_keys() + energy_facts() + token_facts() -%}
        {{ key }},
        {% endfor -%}
        -- No contracts are known yet: market-based CO2 is unknown, not zero.
        cast(null as {{ exact_type() }}) as market_gco2e,
        {{ model_ratios() }},
        false as is_opening_balance
    from summed

)

select * from final
