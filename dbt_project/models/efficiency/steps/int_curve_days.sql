-- Sums of each curve's tokens and joules on each date of the lookback, in one pass over its intervals: the input of
-- phase_fit, and of the price of a token at its actual load.
with intervals as (

    select * from {{ ref('model_intervals') }}

),

lookback as (

    select * from {{ ref('int_lookback') }}

),

points as (

    select
        intervals.*,
        lookback.as_of_date,
        {{ curve_tokens_basis() }} as tokens_basis,
        {{ curve_tokens() }} as tokens,
        matched_total_tokens - matched_output_tokens as input_tokens,
        {{ fit_point() }}
    from intervals
    cross join lookback
    where {{ in_lookback('intervals.date', 'lookback.as_of_date') }}

),

summed as (

    select
        as_of_date,
        date,
        {{ curve_keys() | join(', ') }},
        tokens_basis,
        {{ exact_sum('matched_gpu_seconds') }} as gpu_seconds,
        {{ exact_sum('matched_joules') }} as joules,
        case when count(tokens) = count(*) then {{ exact_sum('tokens') }} end as tokens,
        {{ exact_sum('matched_productive_joules') }} as productive_joules,
        {{ exact_sum('matched_output_tokens') }} as output_tokens,
        {{ exact_sum('matched_computed_input_tokens') }} as computed_input_tokens,
        {{ exact_sum(
            'case when matched_computed_input_tokens is not null then matched_productive_joules end'
        ) }} as computed_productive_joules,
        {{ exact_sum('case when matched_computed_input_tokens is not null then matched_output_tokens end') }} as computed_output_tokens,
        {{ exact_sum('input_tokens') }} as all_input_tokens,
        {{ exact_sum('case when input_tokens is not null then matched_productive_joules end') }} as all_input_productive_joules,
        {{ exact_sum('case when input_tokens is not null then matched_output_tokens end') }} as all_input_output_tokens,
        {{ fit_sums() }}
    from points
    group by as_of_date, date, {{ curve_keys() | join(', ') }}, tokens_basis

),

-- Intervals with reported computed input; where there are none, those with reported input, cached tokens included.
final as (

    select
        as_of_date,
        date,
        {{ curve_keys() | join(', ') }},
        tokens_basis,
        gpu_seconds,
        joules,
        tokens,
        productive_joules,
        output_tokens,
        case when computed_input_tokens is not null then 'computed_input' when all_input_tokens is not null then 'input' end as input_basis,
        coalesce(computed_input_tokens, all_input_tokens) as input_tokens,
        case
            when computed_input_tokens is not null then computed_productive_joules
            else all_input_productive_joules
        end as split_productive_joules,
        case when computed_input_tokens is not null then computed_output_tokens else all_input_output_tokens end as split_output_tokens,
        fit_intervals,
        xx,
        xy,
        yy,
        xe,
        ye,
        ee,
        e
    from summed

)

select * from final
