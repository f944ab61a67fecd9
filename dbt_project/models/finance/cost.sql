-- What each month cost and whose it is, by part; what no model holds has a row of its own, so that every column adds up.
with {{ closed_and_known_costs() }},

in_usd as (

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
        known.variable_cost_usd,
        known.idle_cost_usd,
        known.billed_cost_usd,
        coalesce(known.is_cash, amounts.part not in ({{ notional_parts() }})) as is_cash,
        coalesce(known.is_cost_complete, true) as is_cost_complete,
        amounts.marts_key
    from amounts
    left join known on {{ equal_keys('amounts', 'known', ['month'] + cost_names()) }}

),

final as (

    {{ with_currency([
        'closed_cost_usd', 'adjustment_usd', 'known_cost_usd', 'allocation_cost_usd', 'usage_cost_usd', 'variable_cost_usd',
        'idle_cost_usd', 'billed_cost_usd'
    ]) }}

)

select * from final
