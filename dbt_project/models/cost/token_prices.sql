-- What a token of each class cost over a billing month and over the lookback, and what of that does not grow with the
-- load: with both, the price at any utilisation. It is what gateways are given back.
{{ config(replaces='all') }}
{% set period_keys = ['period', 'start_date', 'end_date'] %}

with lookback as (

    select * from {{ ref('int_lookback') }}

),

class_costs as (

    select * from {{ ref('token_class_cost_daily') }} where basis in ('variable', 'allocation', 'fully_loaded')

),

days as (

    select * from {{ ref('model_daily') }}

),

capacities as (

    select * from {{ ref('slo_capacity') }}

),

period_costs as (

    select
        'month' as period,
        billing_month as start_date,
        cast(billing_month + interval 1 month as date) as end_date,
        class_costs.*
    from class_costs
    union all
    select
        'lookback' as period,
        cast(lookback.as_of_date - interval {{ var('curve_lookback_days') - 1 }} day as date) as start_date,
        cast(lookback.as_of_date + interval 1 day as date) as end_date,
        class_costs.*
    from class_costs
    cross join lookback
    where {{ in_lookback('class_costs.date', 'lookback.as_of_date') }}

),

-- Tokens without a known cost have no part in a price.
class_sums as (

    select
        {{ period_keys | join(', ') }},
        {{ curve_keys() | join(', ') }},
        basis,
        token_class,
        {{ exact_sum('case when cost_usd is not null then tokens end') }} as tokens,
        {{ money_sum('cost_usd') }} as cost_usd,
        max(case when tokens_basis = 'shared' then 1 else 0 end) = 1 as has_shared_tokens,
        min(case when is_cost_complete then 1 else 0 end) = 1 as is_cost_complete
    from period_costs
    group by {{ period_keys | join(', ') }}, {{ curve_keys() | join(', ') }}, basis, token_class

),

served_days as (

    select distinct
        {{ period_keys | join(', ') }},
        date,
        {{ model_keys() | join(', ') }}
    from period_costs
    where token_class <> 'none'

),

-- The time that was held on the dates with tokens; what other dates cost is the row `none`, not in the price of a token.
loads as (

    select
        {{ columns_of('served_days', period_keys + curve_keys()) }},
        min(case when capacities.is_lower_bound then 1 when not capacities.is_lower_bound then 0 end) = 1 as is_capacity_lower_bound,
        {{ ratio(
            "sum(case when days.role = 'prefill' then days.total_tokens else days.output_tokens end)",
            'sum(days.claimed_gpu_seconds)'
        ) }} / nullif(max(capacities.capacity_tokens_per_second_per_gpu), 0) as utilisation_ratio
    from served_days
    inner join days
        on served_days.date = days.date
        {% for key in model_keys() -%}
        and served_days.{{ key }} is not distinct from days.{{ key }}
        {% endfor -%}
    left join capacities on {{ equal_keys('served_days', 'capacities', curve_keys()) }}
    group by {{ columns_of('served_days', period_keys + curve_keys()) }}

),

class_parts as (

    select
        {{ columns_of('class_sums', period_keys) }},
        class_sums.model,
        class_sums.basis,
        class_sums.token_class,
        class_sums.tokens,
        class_sums.cost_usd,
        class_sums.is_cost_complete,
        {{ ratio('variable.cost_usd', 'variable.tokens') }} * cast(class_sums.tokens as double) as variable_usd,
        case when class_sums.tokens is not null and not class_sums.has_shared_tokens then loads.utilisation_ratio end as utilisation_ratio,
        case when class_sums.tokens is not null then loads.is_capacity_lower_bound end as is_capacity_lower_bound
    from class_sums
    left join class_sums as variable
        on {{ equal_keys('class_sums', 'variable', period_keys + curve_keys() + ['token_class']) }} and variable.basis = 'variable'
    left join loads on {{ equal_keys('class_sums', 'loads', period_keys + curve_keys()) }}
    where class_sums.basis <> 'variable'

),

-- Of a model in several deployments each one's time has its own utilisation.
model_sums as (

    select
        {{ period_keys | join(', ') }},
        model,
        basis,
        token_class,
        {{ exact_sum('tokens') }} as tokens,
        {{ money_sum('cost_usd') }} as cost_usd,
        {{ ratio('sum(cost_usd)', 'sum(tokens)') }} * 1e6 as own_usd_per_mtok,
        case
            when count(variable_usd) = count(tokens) then {{ ratio('sum(' ~ money('variable_usd') ~ ')', 'sum(tokens)') }} * 1e6
        end as variable_usd_per_mtok,
        case
            when count(variable_usd) = count(tokens) and count(utilisation_ratio) = count(tokens)
                then {{ ratio(
                    'sum(' ~ money('(cast(cost_usd as double) - variable_usd) * utilisation_ratio') ~ ')',
                    'sum(' ~ money('cast(cost_usd as double) - variable_usd') ~ ')'
                ) }}
        end as utilisation_ratio,
        case
            when count(is_capacity_lower_bound) = count(tokens)
                then max(case when is_capacity_lower_bound then 1 when not is_capacity_lower_bound then 0 end) = 1
        end as is_capacity_lower_bound,
        min(case when is_cost_complete then 1 else 0 end) = 1 as is_cost_complete
    from class_parts
    group by {{ period_keys | join(', ') }}, model, basis, token_class

),

final as (

    select
        lookback.as_of_date,
        {{ columns_of('model_sums', period_keys) }},
        model_sums.model,
        model_sums.basis,
        model_sums.token_class,
        model_sums.tokens,
        model_sums.cost_usd,
        model_sums.own_usd_per_mtok,
        model_sums.variable_usd_per_mtok,
        model_sums.utilisation_ratio,
        model_sums.is_capacity_lower_bound,
        {{ at_full_load(
            'model_sums.own_usd_per_mtok', 'model_sums.variable_usd_per_mtok', 'model_sums.utilisation_ratio'
        ) }} as full_usd_per_mtok,
        model_sums.is_cost_complete,
        lookback.held_back_dates,
        lookback.is_complete
    from model_sums
    cross join lookback

)

select * from final
