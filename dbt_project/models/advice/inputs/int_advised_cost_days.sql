-- What each site, team and model costs, on the basis allocation and on those that a budget names: one row per scope,
-- name, basis, date, billing month, site and device type.

with costs as (

    select * from {{ ref('cost_daily') }}

),

budgets as (

    select * from {{ source('fleet', 'budgets') }}

),

prices as (

    select * from {{ ref('int_advised_load_prices') }}

),

-- What changes with the load, and what is paid whatever runs.
split as (

    select
        date,
        billing_month,
        site,
        team,
        case when deployment not in ({{ beside_the_models() }}) then model end as model,
        basis,
        device_type,
        sum(cost_usd) filter (part in ({{ energy_parts() }})) as energy_usd,
        sum(cost_usd) filter (part = 'capacity') as capacity_usd,
        sum(cost_usd) filter (part not in ({{ energy_parts() }})) as contract_usd,
        bool_and(is_cost_complete) as is_cost_complete
    from costs
    where basis = 'allocation' or basis in (select basis from budgets)
    group by all

),

scoped as (

    {% for scope in ['site', 'team', 'model'] -%}
    select
        '{{ scope }}' as scope,
        {{ scope }} as scope_name,
        basis,
        date,
        billing_month,
        site,
        device_type,
        sum(capacity_usd) as capacity_usd,
        -- Where no part of a date has a price, what it cost is unknown.
        cast(coalesce(sum(energy_usd), sum(contract_usd) * 0) as {{ money_type() }}) as energy_usd,
        cast(coalesce(sum(contract_usd), sum(energy_usd) * 0) as {{ money_type() }}) as contract_usd,
        bool_and(is_cost_complete) as is_cost_complete
    from split
    where {{ scope }} is not null
    group by all
    {{ 'union all' if not loop.last }}
    {% endfor %}

),

final as (

    select
        scoped.*,
        cast(scoped.energy_usd as double) / coalesce(prices.price_ratio, 1) as load_usd
    from scoped
    left join prices on {{ equal_keys('scoped', 'prices', ['site', 'billing_month', 'date']) }}
    where
        scoped.basis = 'allocation'
        or (scoped.scope, scoped.scope_name, scoped.basis) in (select (scope, scope_name, basis) from budgets)

)

select * from final
