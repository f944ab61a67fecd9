-- What a million tokens of each class cost in a month, beside the list price.
with class_costs as (

    select * from {{ ref('token_class_cost_daily') }} where basis = 'fully_loaded'

),

summed as (

    select
        billing_month as month,
        {{ plain_name('site', 'site') }} as site,
        {{ plain_name('model', 'model') }} as model,
        token_class,
        {{ exact_sum('tokens') }} as tokens,
        {{ money_sum('cost_usd') }} as known_cost_usd,
        {{ exact_sum('case when list_usd_per_mtok is not null then tokens end') }} as listed_tokens,
        {{ money_sum(money('cast(tokens as double) / 1e6 * list_usd_per_mtok')) }} as list_cost_usd,
        bool_and(is_cost_complete) as is_cost_complete,
        site || ' | ' || model as marts_key
    from class_costs
    group by billing_month, site, model, token_class

),

-- Every price of a model rests on all of its joules and tokens: they are what its cost is shared by.
model_months as (

    select
        *,
        site || ' | ' || model as marts_key
    from {{ ref('model_monthly') }}

),

doubts as (

    {{ doubts_by('model_months', ['month', 'marts_key']) }}

),

money_doubts as (

    select
        month,
        {{ plain_name('site', 'site') }} as site,
        string_agg(reason, ',' order by reason) as reasons
    from ({{ money_doubts(false) }}) as doubted
    group by 1, 2

),

intervals as (

    {{ intervals_by(['known_cost_usd']) }}

),

in_usd as (

    select
        summed.month,
        summed.site,
        summed.model,
        case token_class
            when 'cached_input' then 'cached input'
            when 'computed_input' then 'computed input'
            when 'none' then 'no tokens'
            else token_class
        end as token_kind,
        tokens,
        known_cost_usd,
        {{ ratio('known_cost_usd', 'tokens') }} * 1e6 as known_cost_usd_per_mtok,
        {{ ratio('known_cost_usd', 'tokens') }} * 1e6 * intervals.known_cost_usd_low_ratio as known_cost_usd_per_mtok_low,
        {{ ratio('known_cost_usd', 'tokens') }} * 1e6 * intervals.known_cost_usd_high_ratio as known_cost_usd_per_mtok_high,
        case when listed_tokens = tokens then list_cost_usd end as list_cost_usd,
        case when listed_tokens = tokens then {{ ratio('list_cost_usd', 'tokens') }} * 1e6 end as list_usd_per_mtok,
        is_cost_complete,
        doubts.doubted_energy_ratio,
        doubts.doubted_tokens_ratio,
        {{ with_money_reasons('doubts.doubt_reasons', 'money_doubts.reasons') }} as doubt_reasons,
        summed.marts_key
    from summed
    left join doubts on {{ equal_keys('summed', 'doubts', ['month', 'marts_key']) }}
    left join money_doubts on {{ equal_keys('summed', 'money_doubts', ['month', 'site']) }}
    left join intervals on {{ equal_keys('summed', 'intervals', ['month', 'marts_key']) }}

),

final as (

    {{ with_currency(['known_cost_usd', 'list_cost_usd']) }}

)

select * from final
