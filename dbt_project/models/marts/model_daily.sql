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

claims as (

    select
        claims.date,
        meters.site,
        claims.deployment,
        claims.namespace,
        claims.team,
        claims.model,
        coalesce(meters.device_type, {{ unknown() }}) as device_type,
        claims.meter_scope,
        claims.role,
        meters.gpu_count * (claims.slice_end_us - claims.slice_start_us) / 1e6 / claims.members as claimed_gpu_seconds
    from {{ ref('int_claims') }} as claims
    inner join {{ ref('int_meter_choices') }} as meters
        on claims.date = meters.date
        and claims.meter_scope = meters.meter_scope
        and claims.meter = meters.meter
        and meters.purpose = 'booked'

),

claimed as (

    select
        date,
        {% for key in model_keys() -%}
        {{ key }},
        {% endfor -%}
        {{ exact_sum('claimed_gpu_seconds') }} as claimed_gpu_seconds
    from claims
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
        {{ ratio('summed.gpu_seconds', 'claimed.claimed_gpu_seconds') }} as coverage_ratio,
        {{ model_ratios() }},
        false as is_opening_balance
    from summed
    left join claimed
        on summed.date = claimed.date
        {% for key in model_keys() -%}
        and summed.{{ key }} is not distinct from claimed.{{ key }}
        {% endfor %}

)

select * from final
