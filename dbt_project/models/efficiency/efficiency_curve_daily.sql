-- What each date of the lookback gave to each load level of its curve: sums, so that dates can be left out or drawn
-- again.
{{ config(replaces='all') }}

with points as (

    select * from {{ ref('int_curve_points') }}

),

final as (

    select
        as_of_date,
        date,
        {{ curve_keys() | join(', ') }},
        tokens_basis,
        load_bin,
        count(*) as intervals,
        {{ exact_sum('gpu_seconds') }} as gpu_seconds,
        {{ exact_sum('tokens') }} as tokens,
        {{ exact_sum('joules') }} as joules
    from points
    group by as_of_date, date, {{ curve_keys() | join(', ') }}, tokens_basis, load_bin

)

select * from final
