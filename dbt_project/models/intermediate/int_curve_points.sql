-- The intervals of the lookback that saw tokens, each with the half octave of load that it belongs to.
with intervals as (

    select * from {{ ref('model_intervals') }}

),

lookback as (

    select * from {{ ref('int_lookback') }}

),

points as (

    select
        lookback.as_of_date,
        intervals.date,
        {{ columns_of('intervals', curve_keys()) }},
        {{ curve_tokens_basis() }} as tokens_basis,
        {{ curve_tokens() }} as tokens,
        intervals.matched_gpu_seconds as gpu_seconds,
        intervals.matched_joules as joules
    from intervals
    cross join lookback
    where {{ in_lookback('intervals.date', 'lookback.as_of_date') }}

),

-- Watts, J/token and tok/s of one accelerator, so that a deployment that grows or shrinks stays on one curve.
rated as (

    select
        *,
        {{ ratio('tokens', 'gpu_seconds') }} as tokens_per_second_per_gpu,
        {{ ratio('joules', 'tokens') }} as joules_per_token,
        {{ ratio('joules', 'gpu_seconds') }} as watts_per_gpu
    from points
    where tokens > 0 and gpu_seconds > 0

),

final as (

    select
        *,
        {{ load_bin('tokens_per_second_per_gpu') }} as load_bin
    from rated

)

select * from final
