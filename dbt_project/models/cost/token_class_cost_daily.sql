-- What a million tokens of each class cost, beside the list price that the fleet file names for the model. Whole
-- billing months that the run touched, as cost_daily, and those of the lookback after it: a fit of joules per token is
-- of the dates before.
{{ config(replaces='billing_months_of_lookback') }}
{% set keys = ['date', 'billing_month'] + model_keys() %}
{% set classes = ['cached_input', 'computed_input', 'output'] %}

with cost_parts as (

    select * from {{ ref('cost_daily') }}
    where {{ in_run_months_of_lookback('billing_month') }} and deployment not in ({{ beside_the_models() }})

),

hours as (

    select * from {{ ref('model_hourly') }} where {{ in_run_months_of_lookback('billing_month') }}

),

fits as (

    select * from {{ ref('int_phase_fits') }}

),

list_prices as (

    select * from {{ ref('model_list_prices') }}

),

models as (

    select * from {{ source('fleet', 'models') }}

),

costs as (

    select
        {{ keys | join(', ') }},
        basis,
        {{ money_sum('cost_usd') }} as cost_usd,
        min(case when is_cost_complete then 1 else 0 end) = 1 as is_cost_complete
    from cost_parts
    group by {{ keys | join(', ') }}, basis

),

tokens as (

    select
        {{ keys | join(', ') }},
        {{ exact_sum('cached_input_tokens') }} as cached_input_tokens,
        -- Where an engine does not report its cache, all input counts as computed.
        {{ exact_sum('coalesce(computed_input_tokens, input_tokens)') }} as computed_input_tokens,
        {{ exact_sum('output_tokens') }} as output_tokens,
        case when sum(shared_tokens) > 0 then 'shared' else 'own' end as tokens_basis,
        count(case when computed_input_tokens is null and input_tokens > 0 then 1 end) = 0 as is_cache_reported
    from hours
    group by {{ keys | join(', ') }}

),

-- The accelerators of a role serve its tokens alone. Others are shared by the joules that a token of each class takes,
-- where a fit has separated them, else by what a token of each class weighs. No fit has a coefficient of cached input:
-- it weighs the same part of a computed one as without.
methods as (

    select
        {{ columns_of('costs', keys) }},
        costs.basis,
        costs.cost_usd,
        costs.is_cost_complete,
        tokens.cached_input_tokens,
        tokens.computed_input_tokens,
        tokens.output_tokens,
        tokens.tokens_basis,
        case
            when costs.role in ('prefill', 'decode') then 'measured_role'
            when fits.model is not null and tokens.is_cache_reported then 'regression'
            else 'weights'
        end as price_method,
        fits.joules_per_computed_input_token,
        fits.joules_per_output_token
    from costs
    left join tokens
        on costs.date = tokens.date
        and costs.billing_month = tokens.billing_month
        {% for key in model_keys() -%}
        and costs.{{ key }} is not distinct from tokens.{{ key }}
        {% endfor -%}
    left join fits on {{ equal_keys('costs', 'fits', ['date', 'model', 'device_type', 'meter_scope']) }}

),

input_weights as (

    select
        *,
        case
            when role = 'decode' then 0
            when price_method = 'regression' then joules_per_computed_input_token / joules_per_output_token
            else {{ input_token_weight() }}
        end as input_weight
    from methods

),

weighed as (

    select
        *,
        input_weight * ({{ cached_input_token_weight() }} / {{ input_token_weight() }})
            * coalesce(cast(cached_input_tokens as double), 0) as cached_weight,
        input_weight * coalesce(cast(computed_input_tokens as double), 0) as computed_weight,
        case when role = 'prefill' then 0 else 1 end * coalesce(cast(output_tokens as double), 0) as output_weight
    from input_weights

),

-- Differences of one rounded total, so that the classes add up to the basis.
shared as (

    select
        *,
        {{ money(
            'cast(cost_usd as double) * ' ~ ratio('cached_weight', 'cached_weight + computed_weight + output_weight')
        ) }} as cached_usd,
        {{ money(
            'cast(cost_usd as double) * '
                ~ ratio('cached_weight + computed_weight', 'cached_weight + computed_weight + output_weight')
        ) }} as input_usd
    from weighed

),

by_class as (

    {% for class in classes -%}
    select
        {{ keys | join(', ') }},
        basis,
        '{{ class }}' as token_class,
        {{ class }}_tokens as tokens,
        tokens_basis,
        {{ {
            'cached_input': 'cached_usd',
            'computed_input': 'input_usd - cached_usd',
            'output': 'cost_usd - input_usd'
        }[class] }} as cost_usd,
        price_method,
        is_cost_complete
    from shared
    where {{ {'cached_input': 'cached', 'computed_input': 'computed', 'output': 'output'}[class] }}_weight > 0
    union all
    {% endfor -%}
    select
        {{ keys | join(', ') }},
        basis,
        'none' as token_class,
        cast(null as {{ exact_type() }}) as tokens,
        cast(null as {{ dbt.type_string() }}) as tokens_basis,
        cost_usd,
        cast(null as {{ dbt.type_string() }}) as price_method,
        is_cost_complete
    from shared
    where cached_weight + computed_weight + output_weight = 0

),

named_prices as (

    select
        list_prices.date,
        list_prices.model,
        list_prices.price_source,
        list_prices.cached_input_usd_per_mtok,
        list_prices.input_usd_per_mtok,
        list_prices.output_usd_per_mtok
    from list_prices
    inner join models
        on list_prices.model = models.model
        and list_prices.price_source = models.list_price_source
        and list_prices.listed_model = models.list_price_name

),

priced as (

    select
        by_class.*,
        -- The dollars of a row are not for a share of its engine's tokens.
        case when by_class.tokens_basis = 'own' then {{ ratio('by_class.cost_usd', 'by_class.tokens') }} * 1e6 end as cost_usd_per_mtok,
        named_prices.price_source as list_price_source,
        case by_class.token_class
            when 'cached_input' then named_prices.cached_input_usd_per_mtok
            when 'computed_input' then named_prices.input_usd_per_mtok
            when 'output' then named_prices.output_usd_per_mtok
        end as list_usd_per_mtok
    from by_class
    left join named_prices on by_class.date = named_prices.date and by_class.model = named_prices.model

),

final as (

    select
        {{ keys | join(',\n        ') }},
        basis,
        token_class,
        tokens,
        tokens_basis,
        cast(cost_usd as {{ money_type() }}) as cost_usd,
        cost_usd_per_mtok,
        price_method,
        list_price_source,
        list_usd_per_mtok,
        {{ ratio('cost_usd_per_mtok', 'list_usd_per_mtok') }} as list_price_ratio,
        is_cost_complete,
        cast('{{ var("method_version") }}' as {{ dbt.type_string() }}) as method_version
    from priced

)

select * from final
