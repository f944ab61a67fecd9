-- Budgets of the running month that are spent, or that the month will exceed.
select
    format('{} {}', budget, strftime(billing_month, '%Y-%m')) as name,
    case when spent_usd > budget_usd then 'error' else 'warning' end as severity,
    format(
        'the budget {} of {} {} {} in {}', budget, scope, scope_name,
        case when spent_usd > budget_usd then 'is spent' else 'will be exceeded' end, strftime(billing_month, '%B %Y')
    ) as what,
    concat_ws(
        '; ',
        format('{:,.2f} of {:,.2f} USD spent by the end of {}', spent_usd, budget_usd, as_of_date),
        format('{:,.2f} USD expected by the end of the month', forecast_usd)
        || coalesce(format(' ({:,.2f} to {:,.2f})', forecast_low_usd, forecast_high_usd), '')
    ) as which,
    'see finance.cost and finance.bridge for what it is spent on and what changed; follow advice (finance.savings), or '
    || 'change the budget in the fleet file' as remedy,
    null::date as since,
    'over the budget' as amount_of,
    greatest(spent_usd - budget_usd, expected_overrun_usd) as usd,
    null::double as joules
from marts.budget_monthly
where is_in_progress and (spent_usd > budget_usd or expected_overrun_usd > 0)
order by name
