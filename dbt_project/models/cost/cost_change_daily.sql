-- Why a date's cost differs from the day before and from the same weekday of the week before: price, efficiency, volume
-- and idle add up to the change to the last digit. Every run makes the lookback anew: a date changes with an earlier
-- one that is booked again.
{{ config(replaces='all') }}

with days as (

    select * from {{ ref('int_model_cost_days') }}

),

lookback as (

    select as_of_date from {{ ref('int_lookback') }}

),

lookback_dates as (

    select * from {{ ref('int_lookback_dates') }}

),

comparisons as (

    select 'day_before' as compared_with, 1 as days_before
    union all
    select 'week_before' as compared_with, 7 as days_before

),

site_days as (

    select distinct date, day_number, site from days

),

-- Both dates of a comparison are booked at the site.
site_pairs as (

    select
        now_days.date,
        now_days.site,
        comparisons.compared_with,
        then_days.date as compared_date
    from site_days as now_days
    cross join comparisons
    inner join site_days as then_days
        on now_days.site = then_days.site and now_days.day_number - comparisons.days_before = then_days.day_number
    inner join lookback_dates on now_days.date = lookback_dates.date

),

keys as (

    select
        site_pairs.date,
        site_pairs.compared_with,
        site_pairs.compared_date,
        site_pairs.site,
        days.model,
        days.part,
        days.unit,
        days.is_unheld
    from site_pairs
    inner join days on site_pairs.site = days.site and (days.date = site_pairs.date or days.date = site_pairs.compared_date)
    group by 1, 2, 3, 4, 5, 6, 7, 8

),

-- Tokens of a model are the same for all of its parts; a part that a model does not have on a date costs nothing then.
models as (

    select
        date,
        site,
        model,
        max(total_tokens) as total_tokens
    from days
    group by date, site, model

),

-- How much work there was also counts where its part had no price yet.
quantities as (

    select
        date,
        site,
        model,
        unit,
        max(quantity) as quantity
    from days
    group by date, site, model, unit

),

paired as (

    select
        keys.*,
        keys.is_unheld or (now_models.model is not null and then_models.model is not null) as is_on_both,
        case when now_days.part is null then {{ money('0') }} else now_days.cost_usd end as cost_usd,
        case when then_days.part is null then {{ money('0') }} else then_days.cost_usd end as compared_cost_usd,
        case when now_days.part is null then {{ money('0') }} else now_days.active_usd end as active_usd,
        case when then_days.part is null then {{ money('0') }} else then_days.active_usd end as compared_active_usd,
        now_quantities.quantity,
        then_quantities.quantity as compared_quantity,
        now_models.total_tokens,
        then_models.total_tokens as compared_total_tokens,
        coalesce(now_days.is_cost_complete, true) and coalesce(then_days.is_cost_complete, true) as is_cost_complete
    from keys
    left join days as now_days on {{ equal_keys('keys', 'now_days', ['date', 'site', 'model', 'part']) }}
    left join days as then_days on keys.compared_date = then_days.date and {{ equal_keys('keys', 'then_days', ['site', 'model', 'part']) }}
    left join models as now_models on {{ equal_keys('keys', 'now_models', ['date', 'site', 'model']) }}
    left join models as then_models on keys.compared_date = then_models.date and {{ equal_keys('keys', 'then_models', ['site', 'model']) }}
    left join quantities as now_quantities on {{ equal_keys('keys', 'now_quantities', ['date', 'site', 'model', 'unit']) }}
    left join quantities as then_quantities
        on keys.compared_date = then_quantities.date and {{ equal_keys('keys', 'then_quantities', ['site', 'model', 'unit']) }}

),

-- With W for the cost of work, q for its quantity and v for tokens: price is (W1/q1 - W0/q0)*q1, efficiency
-- W0/q0*(q1/v1 - q0/v0)*v1. Work without tokens has no efficiency: more of it is volume.
effects as (

    select
        *,
        cost_usd - compared_cost_usd as change_usd,
        active_usd - compared_active_usd as active_change_usd,
        case
            when is_on_both and quantity > 0 and compared_quantity > 0
                then {{ money('cast(active_usd as double) - cast(compared_active_usd as double) * (quantity / compared_quantity)') }}
            else {{ money('0') }}
        end as price_usd,
        case
            when is_on_both and quantity > 0 and compared_quantity > 0 and total_tokens > 0 and compared_total_tokens > 0
                then {{ money(
                    'cast(compared_active_usd as double) * (quantity / compared_quantity - '
                    ~ ratio('total_tokens', 'compared_total_tokens') ~ ')'
                ) }}
            else {{ money('0') }}
        end as efficiency_usd
    from paired

),

final as (

    select
        lookback.as_of_date,
        date,
        compared_with,
        compared_date,
        site,
        model,
        part,
        cast(cost_usd as {{ money_type() }}) as cost_usd,
        cast(compared_cost_usd as {{ money_type() }}) as compared_cost_usd,
        cast(change_usd as {{ money_type() }}) as change_usd,
        cast(case when change_usd is not null then price_usd end as {{ money_type() }}) as price_effect_usd,
        cast(case when change_usd is not null then efficiency_usd end as {{ money_type() }}) as efficiency_effect_usd,
        cast(
            case
                when is_on_both then active_change_usd - price_usd - efficiency_usd
                else change_usd
            end as {{ money_type() }}
        ) as volume_effect_usd,
        cast(
            case
                when is_on_both then change_usd - active_change_usd
                when change_usd is not null then 0
            end as {{ money_type() }}
        ) as idle_effect_usd,
        unit as quantity_unit,
        quantity,
        compared_quantity,
        total_tokens,
        compared_total_tokens,
        is_cost_complete,
        cast('{{ var("method_version") }}' as {{ dbt.type_string() }}) as method_version
    from effects
    cross join lookback

)

select * from final
