-- The headline per model and day: the hours of model_hourly, summed.
with hours as (

    select * from {{ ref('model_hourly') }} where {{ in_run('date') }}

),

market as (

    select * from {{ ref('int_model_market') }}

),

summed as (

    select
        date,
        {{ model_keys() | join(', ') }},
        {{ summed_facts() }},
        {{ summed_doubts() }}
    from hours
    group by date, {{ model_keys() | join(', ') }}

),

-- Without any factor, market-based CO2 is unknown, not zero.
with_market as (

    select
        summed.*,
        market.market_gco2e
    from summed
    left join market
        on summed.date = market.date
        {% for key in model_keys() -%}
        and summed.{{ key }} is not distinct from market.{{ key }}
        {% endfor %}

),

final as (

    select
        date,
        {{ (model_keys() + energy_facts() + token_facts()) | join(', ') }},
        market_gco2e,
        {{ model_ratios() }},
        {{ doubt_columns() }},
        false as is_opening_balance
    from with_market

)

select * from final
