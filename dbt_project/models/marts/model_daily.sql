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

gpus as (

    select
        date,
        {% for key in model_keys() -%}
        {{ key }},
        {% endfor -%}
        sum(day_seconds) as expected_gpu_seconds
    from (
        select distinct
            date,
            meter,
            86400 * gpu_count as day_seconds,
            {% for key in model_keys() -%}
            {{ "coalesce(device_type, " ~ unknown() ~ ") as device_type" if key == 'device_type' else key }}{{ ',' if not loop.last }}
            {% endfor -%}
        from {{ ref('int_attributed_energy') }}
    ) as meters
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
        {{ ratio('summed.gpu_seconds', 'gpus.expected_gpu_seconds') }} as coverage_ratio,
        {{ model_ratios() }}
    from summed
    left join gpus
        on summed.date = gpus.date
        {% for key in model_keys() -%}
        and summed.{{ key }} is not distinct from gpus.{{ key }}
        {% endfor %}

)

select * from final
