-- Joules of a computed input token and of an output token, by least squares over the intervals of the lookback, or why
-- the fit is rejected.
{{ config(replaces='all') }}

with lookback as (

    select * from {{ ref('int_lookback') }}

),

curve_days as (

    select * from {{ ref('int_curve_days') }} where role = 'unified'

),

days as (

    select
        as_of_date,
        date,
        model,
        device_type,
        meter_scope,
        sum(fit_intervals) as intervals
        {%- for product in ['xx', 'xy', 'yy', 'xe', 'ye', 'ee', 'e'] %},
        coalesce({{ exact_sum(product) }}, 0) as {{ product }}
        {%- endfor %}
    from curve_days
    group by as_of_date, date, model, device_type, meter_scope

),

totals as (

    select
        as_of_date,
        model,
        device_type,
        meter_scope,
        sum(intervals) as intervals,
        count(case when intervals > 0 then 1 end) as days
        {%- for product in ['xx', 'xy', 'yy', 'xe', 'ye', 'ee', 'e'] %},
        sum({{ product }}) as exact_{{ product }},
        cast(sum({{ product }}) as double) as {{ product }}
        {%- endfor %}
    from days
    group by as_of_date, model, device_type, meter_scope

),

fitted as (

    select
        *,
        {{ input_coefficient('') }} as input_joules,
        {{ output_coefficient('') }} as output_joules,
        xy / nullif(sqrt(xx * yy), 0) as collinearity_ratio
    from totals

),

-- The same with one date after another left out.
without_a_day as (

    select
        days.model,
        days.device_type,
        days.meter_scope
        {%- for product in ['xx', 'xy', 'yy', 'xe', 'ye'] %},
        cast(totals.exact_{{ product }} - days.{{ product }} as double) as {{ product }}
        {%- endfor %}
    from days
    inner join totals on {{ equal_keys('days', 'totals', ['model', 'device_type', 'meter_scope']) }}
    where days.intervals > 0

),

moved as (

    select
        fitted.model,
        fitted.device_type,
        fitted.meter_scope,
        -- Parts per million of the coefficient.
        ({{ input_coefficient('without_a_day.') }} / nullif(fitted.input_joules, 0) - 1) * 1e6 as input_move,
        ({{ output_coefficient('without_a_day.') }} / nullif(fitted.output_joules, 0) - 1) * 1e6 as output_move
    from without_a_day
    inner join fitted on {{ equal_keys('without_a_day', 'fitted', ['model', 'device_type', 'meter_scope']) }}

),

spread as (

    select
        model,
        device_type,
        meter_scope,
        {{ exact_sum(exact('input_move * input_move')) }} as input_moves,
        {{ exact_sum(exact('output_move * output_move')) }} as output_moves
    from moved
    group by model, device_type, meter_scope

),

assessed as (

    select
        fitted.*,
        {{ fit_error_ratio() }} as error_ratio
        {%- for side in ['input', 'output'] %},
        case when fitted.days > 1 and fitted.{{ side }}_joules > 0 then
            {{ student_t_975('fitted.days - 1') }} * sqrt(cast(spread.{{ side }}_moves as double) * (fitted.days - 1) / fitted.days) / 1e6
        end as {{ side }}_spread_ratio
        {%- endfor %}
    from fitted
    left join spread on {{ equal_keys('fitted', 'spread', ['model', 'device_type', 'meter_scope']) }}

),

reasoned as (

    select
        *,
        {{ fit_reason() }} as reason_code
    from assessed

),

final as (

    select
        reasoned.as_of_date,
        model,
        device_type,
        meter_scope,
        cast(intervals as bigint) as intervals,
        cast(days as integer) as days,
        collinearity_ratio,
        error_ratio,
        {% for side in ['input', 'output'] -%}
        {%- set name = 'joules_per_computed_input_token' if side == 'input' else 'joules_per_output_token' -%}
        case when reason_code = 'ok' then {{ side }}_joules end as {{ name }},
        case
            when reason_code = 'ok' and {{ side }}_spread_ratio is not null
                then greatest({{ side }}_joules * (1 - {{ side }}_spread_ratio), 0)
        end as {{ name }}_low,
        case when reason_code = 'ok' then {{ side }}_joules * (1 + {{ side }}_spread_ratio) end as {{ name }}_high,
        {% endfor -%}
        reason_code,
        lookback.held_back_dates,
        lookback.is_complete
    from reasoned
    cross join lookback

)

select * from final
