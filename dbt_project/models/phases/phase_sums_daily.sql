-- What a date adds to the fits of joules per token: sums of products of tokens and joules. A fit over any dates follows
-- from them.
with intervals as (

    select * from {{ ref('model_intervals') }} where {{ in_run('date') }} and role = 'unified'

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
        date,
        model,
        device_type,
        meter_scope,
        cast(fit_intervals as bigint) as fit_intervals,
        {% for product in ['xx', 'xy', 'yy', 'xe', 'ye', 'ee', 'e'] -%}
        cast(coalesce({{ product }}, 0) as {{ exact_type() }}) as {{ fit_columns()[product] }}{{ ',' if not loop.last }}
        {% endfor %}
    from summed

)

select * from final
