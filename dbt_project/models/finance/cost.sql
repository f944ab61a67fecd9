-- What each month cost and whose it is, by part; what no model holds has a row of its own, so that every column adds up.
with known as (

    {{ known_costs() }}

),

closings as (

    {{ active_closings() }}

),

frozen as (

    {{ frozen_rows('closed_costs', cost_names()) }}

),

adjusted as (

    {{ adjusted_in('adjustments', cost_names()) }}

),

amounts as (

    {{ closed_and_known(cost_names()) }}

),

final as (

    select
        amounts.month,
        amounts.site,
        amounts.team,
        amounts.deployment,
        amounts.model,
        amounts.part,
        cast(amounts.closed_cost_usd as {{ money_type() }}) as closed_cost_usd,
        cast(amounts.adjustment_usd as {{ money_type() }}) as adjustment_usd,
        cast(amounts.known_cost_usd as {{ money_type() }}) as known_cost_usd,
        known.allocation_cost_usd,
        known.usage_cost_usd,
        known.marginal_cost_usd,
        known.idle_cost_usd,
        known.billed_cost_usd,
        coalesce(known.is_cash, amounts.part not in ({{ notional_parts() }})) as is_cash,
        coalesce(known.is_cost_complete, true) as is_cost_complete,
        amounts.marts_key
    from amounts
    left join known on {{ equal_keys('amounts', 'known', ['month'] + cost_names()) }}

)

select * from final
