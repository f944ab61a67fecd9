-- Is the fleet cheaper than a price list: its own price of a token beside the list's, at the utilisation of the
-- lookback and with full accelerators, and the utilisation at which both are equal.
{{ config(replaces='all') }}
{% set day_keys = ['date'] + model_keys() %}

with lookback as (

    select * from {{ ref('int_lookback') }}

),

token_costs as (

    select costs.*
    from {{ ref('token_class_cost_daily') }} as costs
    cross join lookback
    where {{ in_lookback('costs.date', 'lookback.as_of_date') }} and costs.token_class <> 'none' and costs.tokens_basis = 'own'

),

days as (

    select * from {{ ref('model_daily') }}

),

capacities as (

    select * from {{ ref('slo_capacity') }}

),

listed_costs as (

    select
        *,
        tokens * {{ exact('list_usd_per_mtok') }} / 1e6 as list_cost_usd
    from token_costs

),

-- All classes together have a list price where each of them has one.
class_days as (

    select
        {{ day_keys | join(', ') }},
        basis,
        token_class,
        tokens,
        cost_usd,
        cast(list_cost_usd as double) as list_cost_usd,
        is_cost_complete
    from listed_costs
    union all
    select
        {{ day_keys | join(', ') }},
        basis,
        'all' as token_class,
        sum(tokens) as tokens,
        sum(cost_usd) as cost_usd,
        case
            when count(list_cost_usd) = count(*) then cast(sum({{ money('cast(list_cost_usd as double)') }}) as double)
        end as list_cost_usd,
        min(case when is_cost_complete then 1 else 0 end) = 1 as is_cost_complete
    from listed_costs
    group by {{ day_keys | join(', ') }}, basis

),

class_sums as (

    select
        {{ curve_keys() | join(', ') }},
        basis,
        token_class,
        {{ exact_sum('tokens') }} as tokens,
        {{ money_sum('cost_usd') }} as cost_usd,
        {{ exact_sum('case when list_cost_usd is not null then tokens end') }} as listed_tokens,
        {{ money_sum('case when list_cost_usd is not null then cost_usd end') }} as listed_cost_usd,
        {{ money_sum(money('list_cost_usd')) }} as list_cost_usd,
        min(case when is_cost_complete then 1 else 0 end) = 1 as is_cost_complete
    from class_days
    group by {{ curve_keys() | join(', ') }}, basis, token_class

),

served_days as (

    select distinct {{ day_keys | join(', ') }} from token_costs

),

-- The time that was held on the dates with tokens; what other dates cost is not in the price of a token.
held as (

    select
        {{ columns_of('days', curve_keys()) }},
        {{ exact_sum('days.claimed_gpu_seconds') }} as claimed_gpu_seconds,
        {{ exact_sum("case when days.role = 'prefill' then days.total_tokens else days.output_tokens end") }} as load_tokens
    from days
    inner join served_days
        on days.date = served_days.date
        {% for key in model_keys() -%}
        and days.{{ key }} is not distinct from served_days.{{ key }}
        {% endfor %}
    group by {{ columns_of('days', curve_keys()) }}

),

loads as (

    select
        {{ columns_of('held', curve_keys()) }},
        capacities.capacity_basis,
        capacities.is_lower_bound as is_capacity_lower_bound,
        {{ ratio('held.load_tokens', 'held.claimed_gpu_seconds') }}
            / nullif(capacities.capacity_tokens_per_second_per_gpu, 0) as utilisation_ratio
    from held
    left join capacities on {{ equal_keys('held', 'capacities', curve_keys()) }}

),

-- What a basis costs above the variable cost is paid by time: at full load more tokens share it.
compared as (

    select
        {{ columns_of('class_sums', curve_keys()) }},
        class_sums.basis,
        class_sums.token_class,
        class_sums.tokens,
        class_sums.cost_usd,
        class_sums.is_cost_complete,
        {{ ratio('class_sums.cost_usd', 'class_sums.tokens') }} * 1e6 as own_usd_per_mtok,
        {{ ratio('class_sums.list_cost_usd', 'class_sums.listed_tokens') }} * 1e6 as list_usd_per_mtok,
        {{ ratio('class_sums.listed_cost_usd', 'class_sums.list_cost_usd') }} as list_price_ratio,
        {{ ratio('variable.cost_usd', 'class_sums.cost_usd') }} as variable_share_ratio,
        loads.utilisation_ratio,
        loads.capacity_basis,
        loads.is_capacity_lower_bound
    from class_sums
    left join class_sums as variable
        on {{ equal_keys('class_sums', 'variable', curve_keys() + ['token_class']) }} and variable.basis = 'variable'
    left join loads on {{ equal_keys('class_sums', 'loads', curve_keys()) }}
    where class_sums.basis in ('allocation', 'fully_loaded')

),

scaled as (

    select
        *,
        {{ at_full_load('1', 'variable_share_ratio', 'utilisation_ratio') }} as full_price_ratio,
        utilisation_ratio * (1 - variable_share_ratio)
            / nullif(greatest(1 / nullif(list_price_ratio, 0) - variable_share_ratio, 0), 0) as break_even_ratio
    from compared

),

final as (

    select
        lookback.as_of_date,
        {{ columns_of('scaled', curve_keys()) }},
        scaled.basis,
        scaled.token_class,
        cast(scaled.tokens as {{ exact_type() }}) as tokens,
        cast(scaled.cost_usd as {{ money_type() }}) as cost_usd,
        scaled.own_usd_per_mtok,
        scaled.list_usd_per_mtok,
        scaled.list_price_ratio,
        scaled.utilisation_ratio,
        scaled.capacity_basis,
        scaled.is_capacity_lower_bound,
        scaled.own_usd_per_mtok * scaled.full_price_ratio as full_usd_per_mtok,
        scaled.list_price_ratio * scaled.full_price_ratio as full_list_price_ratio,
        case when scaled.break_even_ratio <= 1 then scaled.break_even_ratio end as break_even_utilisation_ratio,
        scaled.is_cost_complete,
        lookback.held_back_dates,
        lookback.is_complete
    from scaled
    cross join lookback

)

select * from final
