-- Productive joules by phase: prefill, decode and unknown; together they always equal the model's productive joules.
{{ config(replaces='all') }}
{% set ends = ['low', 'middle', 'high'] %}

with days as (

    select * from {{ ref('model_daily') }}

),

lookback as (

    select * from {{ ref('int_lookback') }}

),

curve_days as (

    select * from {{ ref('int_curve_days') }}

),

fits as (

    select * from {{ ref('phase_fit') }} where reason_code = 'ok'

),

sums as (

    select * from {{ ref('phase_sums_daily') }}

),

booked as (

    select
        lookback.as_of_date,
        days.date,
        {{ columns_of('days', curve_keys()) }},
        {{ exact_sum('days.productive_joules') }} as productive_joules
    from days
    cross join lookback
    where {{ in_lookback('days.date', 'lookback.as_of_date') }}
    group by lookback.as_of_date, days.date, {{ columns_of('days', curve_keys()) }}
    having sum(days.productive_joules) > 0

),

based as (

    select
        booked.*,
        curve_days.input_basis,
        curve_days.input_tokens,
        curve_days.output_tokens,
        curve_days.productive_joules as matched_productive_joules,
        curve_days.split_productive_joules,
        curve_days.split_output_tokens,
        fits.error_ratio,
        fits.joules_per_computed_input_token,
        fits.joules_per_output_token,
        sums.concurrency,
        case
            when booked.role in ('prefill', 'decode') then 'measured_role'
            when curve_days.input_basis = 'computed_input' and fits.model is not null then 'regression'
            when curve_days.input_basis is not null and sums.concurrency is not null then 'concurrency'
            when curve_days.input_basis is not null then 'prior'
        end as asked_basis
    from booked
    left join curve_days on {{ equal_keys('booked', 'curve_days', ['date'] + curve_keys()) }}
    left join fits on {{ equal_keys('booked', 'fits', ['model', 'device_type', 'meter_scope']) }}
    left join sums on {{ equal_keys('booked', 'sums', ['date', 'model', 'device_type', 'meter_scope']) }}

),

weighed as (

    select
        *,
        {% for end in ends -%}
        case
            when asked_basis = 'regression' then joules_per_computed_input_token
            else {{ input_energy_weight_at(end, 'concurrency') }}
                {%- if end == 'low' %} * case when input_basis = 'input' then {{ cached_of_computed() }} else 1 end{% endif %}
        end as {{ end }}_input_weight,
        {% endfor -%}
        case when asked_basis = 'regression' then joules_per_output_token else 1 end as output_weight
    from based

),

rated as (

    select
        *,
        {% for end in ends -%}
        {%- set prefill = 'input_tokens * ' ~ end ~ '_input_weight' -%}
        {{ ratio(prefill, prefill ~ ' + split_output_tokens * output_weight') }} as {{ end }}_prefill_ratio{{ ',' if not loop.last }}
        {% endfor %}
    from weighed

),

-- Decode is the rest, so that nothing is lost to rounding.
split as (

    select
        *,
        case when asked_basis = 'measured_role' or middle_prefill_ratio is not null then asked_basis end as phase_basis,
        {% for end in ends -%}
        least({{ exact('cast(split_productive_joules as double) * ' ~ end ~ '_prefill_ratio') }}, split_productive_joules)
        as {{ end }}_prefill_joules{{ ',' if not loop.last }}
        {% endfor %}
    from rated

),

phases as (

    select
        *,
        role as phase,
        productive_joules as phase_joules,
        null as phase_joules_low,
        null as phase_joules_high,
        case when role = 'prefill' then split_productive_joules else matched_productive_joules end as phase_matched_joules,
        case when role = 'prefill' then input_tokens else output_tokens end as phase_tokens,
        case when role = 'prefill' then input_basis when output_tokens is not null then 'output' end as phase_tokens_basis
    from split
    where phase_basis = 'measured_role'
    union all
    select
        *,
        'prefill' as phase,
        middle_prefill_joules as phase_joules,
        low_prefill_joules as phase_joules_low,
        high_prefill_joules as phase_joules_high,
        middle_prefill_joules as phase_matched_joules,
        input_tokens as phase_tokens,
        input_basis as phase_tokens_basis
    from split
    where phase_basis in ('regression', 'concurrency', 'prior')
    union all
    select
        *,
        'decode' as phase,
        split_productive_joules - middle_prefill_joules as phase_joules,
        split_productive_joules - high_prefill_joules as phase_joules_low,
        split_productive_joules - low_prefill_joules as phase_joules_high,
        split_productive_joules - middle_prefill_joules as phase_matched_joules,
        split_output_tokens as phase_tokens,
        'output' as phase_tokens_basis
    from split
    where phase_basis in ('regression', 'concurrency', 'prior')
    union all
    select
        *,
        'unknown' as phase,
        productive_joules - case when phase_basis is null then 0 else split_productive_joules end as phase_joules,
        null as phase_joules_low,
        null as phase_joules_high,
        null as phase_matched_joules,
        null as phase_tokens,
        null as phase_tokens_basis
    from split
    where phase_basis is null or (phase_basis <> 'measured_role' and productive_joules > split_productive_joules)

),

final as (

    select
        as_of_date,
        date,
        {{ curve_keys() | join(', ') }},
        phase,
        cast(phase_joules as {{ exact_type() }}) as productive_joules,
        {% for end in ['low', 'high'] -%}
        cast(
            case when phase_basis in ('concurrency', 'prior') then phase_joules_{{ end }} end as {{ exact_type() }}
        ) as productive_joules_{{ end }},
        {% endfor -%}
        cast(phase_matched_joules as {{ exact_type() }}) as matched_productive_joules,
        cast(phase_tokens as {{ exact_type() }}) as matched_tokens,
        phase_tokens_basis as tokens_basis,
        {{ ratio('phase_matched_joules', 'phase_tokens') }} as productive_joules_per_token,
        case when phase <> 'unknown' then phase_basis end as phase_basis,
        case
            when phase <> 'unknown' and phase_basis <> 'measured_role' then middle_input_weight / nullif(output_weight, 0)
        end as input_token_weight,
        case when phase <> 'unknown' and phase_basis = 'regression' then error_ratio end as basis_error_ratio
    from phases

)

select * from final
