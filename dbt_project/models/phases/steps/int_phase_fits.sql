-- Joules of a computed input and of an output token by the fit of each date's own lookback: dates up to it, no later
-- ones. One row per date, model, device type and meter scope whose fit is accepted (as in phase_fit), with both
-- coefficients above 0.
-- depends_on: {{ ref('held_back_dates') }}
{% set keys = ['model', 'device_type', 'meter_scope'] %}

with sums as (

    select
        date,
        {{ keys | join(', ') }},
        fit_intervals,
        {% for product, column in fit_columns().items() -%}
        {{ column }} as {{ product }}{{ ',' if not loop.last }}
        {% endfor %}
    from {{ ref('phase_sums_daily') }}

),

-- A local month may begin a day before the UTC date does, or end after it.
asked as (

    select
        date as asked_date,
        {{ keys | join(', ') }}
    from sums
    where {{ in_run_months_of_lookback("date_trunc('month', date - interval 1 day)") }}
        or {{ in_run_months_of_lookback("date_trunc('month', date + interval 1 day)") }}

),

totals as (

    select
        asked.asked_date as date,
        {{ columns_of('asked', keys) }},
        sum(sums.fit_intervals) as intervals,
        count(case when sums.fit_intervals > 0 then 1 end) as days
        {%- for product in fit_columns() %},
        cast(sum(sums.{{ product }}) as double) as {{ product }}
        {%- endfor %}
    from asked
    inner join sums on {{ equal_keys('asked', 'sums', keys) }} and {{ in_lookback('sums.date', 'asked.asked_date') }}
    group by asked.asked_date, {{ columns_of('asked', keys) }}

),

fitted as (

    select
        *,
        {{ input_coefficient('') }} as input_joules,
        {{ output_coefficient('') }} as output_joules,
        xy / nullif(sqrt(xx * yy), 0) as collinearity_ratio
    from totals

),

assessed as (

    select
        *,
        {{ fit_error_ratio() }} as error_ratio
    from fitted

),

final as (

    select
        date,
        {{ keys | join(', ') }},
        input_joules as joules_per_computed_input_token,
        output_joules as joules_per_output_token
    from assessed
    where {{ fit_reason() }} = 'ok' and input_joules > 0 and output_joules > 0

)

select * from final
