-- Who pays for each month: the team of the requests, else of the deployment, with what it got for it.
with known as (

    {{ known_chargebacks() }}

),

closings as (

    {{ active_closings() }}

),

frozen as (

    {{ frozen_rows('closed_chargebacks', chargeback_names()) }}

),

adjusted as (

    {{ adjusted_in('chargeback_adjustments', chargeback_names()) }}

),

amounts as (

    {{ closed_and_known(chargeback_names()) }}

),

in_usd as (

    select
        amounts.month,
        amounts.site,
        amounts.payer,
        amounts.tenant,
        amounts.model,
        known.requests,
        known.input_tokens,
        known.output_tokens,
        known.energy_kwh,
        known.location_kgco2e,
        cast(amounts.closed_cost_usd as {{ money_type() }}) as closed_cost_usd,
        cast(amounts.adjustment_usd as {{ money_type() }}) as adjustment_usd,
        cast(amounts.known_cost_usd as {{ money_type() }}) as known_cost_usd,
        known.allocation_cost_usd,
        known.usage_cost_usd,
        coalesce(known.is_cost_complete, true) as is_cost_complete,
        amounts.marts_key
    from amounts
    left join known on {{ equal_keys('amounts', 'known', ['month'] + chargeback_names()) }}

),

final as (

    {{ with_currency(['closed_cost_usd', 'adjustment_usd', 'known_cost_usd', 'allocation_cost_usd', 'usage_cost_usd']) }}

)

select * from final
