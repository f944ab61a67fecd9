-- The budgets of the newest month, those that it will exceed first.
select
    month,
    budget,
    scope,
    name,
    budget_usd,
    spent_usd,
    forecast_usd,
    expected_overrun_usd,
    is_in_progress,
    is_cost_complete
from finance.budgets
where month = (select max(month) from finance.budgets)
order by expected_overrun_usd desc nulls last, budget
