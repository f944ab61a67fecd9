-- What a date adds to the fits of joules per token: sums of products of tokens and joules, from which a fit over any dates
-- follows; and by how many requests were served at once an input token weighs where there is no fit.
with intervals as (

    select * from {{ ref('model_intervals') }} where {{ in_run('date') }} and role = 'unified'

),

concurrencies as (

    select * from {{ ref('int_model_concurrency') }}

),

points as (

    select
        date,
        model,
        device_type,
        meter_scope,
        {{ fit_point() }}
    from intervals

),

summed as (

    select
        date,
        model,
        device_type,
        meter_scope,
        {{ fit_sums() }}
    from points
    group by date, model, device_type, meter_scope

),

final as (

    select
        summed.date,
        summed.model,
        summed.device_type,
        summed.meter_scope,
        concurrencies.concurrency,
        cast(fit_intervals as bigint) as fit_intervals,
        {% for product in ['xx', 'xy', 'yy', 'xe', 'ye', 'ee', 'e'] -%}
        cast(coalesce({{ product }}, 0) as {{ exact_type() }}) as {{ fit_columns()[product] }}{{ ',' if not loop.last }}
        {% endfor %}
    from summed
    left join concurrencies on {{ equal_keys('summed', 'concurrencies', ['date', 'model']) }}

)

select * from final
