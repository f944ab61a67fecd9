-- Each month's budgets beside what was spent and what the month will have cost.
with budgets as (

    select * from {{ source('computed', 'budget_monthly') }}

),

in_usd as (

    select
        billing_month as month,
        budget,
        scope,
        scope_name as name,
        basis,
        budget_usd,
        spent_usd,
        remaining_usd,
        spent_ratio,
        forecast_usd,
        forecast_low_usd,
        forecast_high_usd,
        expected_overrun_usd,
        booked_ratio,
        is_in_progress,
        is_cost_complete,
        as_of_date
    from budgets

),

final as (

    {{ with_currency(['budget_usd', 'spent_usd', 'remaining_usd', 'forecast_usd', 'expected_overrun_usd'], has_key=false) }}

)

select * from final
