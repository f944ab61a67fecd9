-- What each date would have saved, had its tokens cost what they cost at the best load that the curve has seen.
{{ config(replaces='all') }}

with days as (

    select * from {{ ref('model_daily') }}

),

lookback as (

    select * from {{ ref('int_lookback') }}

),

best_points as (

    select * from {{ ref('efficiency_curve') }} where is_best

),

summed as (

    select
        lookback.as_of_date,
        days.date,
        {{ columns_of('days', curve_keys()) }},
        {{ curve_tokens_basis() }} as tokens_basis,
        {{ exact_sum('days.energy_joules') }} as energy_joules,
        {{ exact_sum('days.matched_joules') }} as matched_joules,
        {{ exact_sum(curve_tokens()) }} as matched_tokens
    from days
    cross join lookback
    where {{ in_lookback('days.date', 'lookback.as_of_date') }} and days.energy_joules is not null
    group by lookback.as_of_date, days.date, {{ columns_of('days', curve_keys()) }}

),

compared as (

    select
        summed.*,
        best_points.joules_per_token as best_joules_per_token,
        best_points.tokens_per_second_per_gpu as best_tokens_per_second_per_gpu,
        -- No tokens means no joules needed; unknown tokens mean unknown.
        case
            when summed.matched_tokens = 0 and summed.matched_joules is not null then 'no_tokens_served'
            when summed.matched_tokens > 0 and best_points.joules_per_token is not null then 'best_observed_load'
        end as recoverable_basis
    from summed
    left join best_points on {{ equal_keys('summed', 'best_points', curve_keys()) }}

),

final as (

    select
        compared.as_of_date,
        date,
        {{ curve_keys() | join(', ') }},
        tokens_basis,
        energy_joules,
        matched_joules,
        matched_tokens,
        {{ ratio('matched_joules', 'matched_tokens') }} as joules_per_token,
        best_joules_per_token,
        best_tokens_per_second_per_gpu,
        cast(case recoverable_basis
            when 'no_tokens_served' then matched_joules
            -- A day may do better than a whole level did on average.
            when 'best_observed_load'
                then greatest(matched_joules - {{ exact('cast(matched_tokens as double) * best_joules_per_token') }}, 0)
        end as {{ exact_type() }}) as recoverable_joules,
        recoverable_basis,
        lookback.held_back_dates,
        lookback.is_complete
    from compared
    cross join lookback

)

select * from final
