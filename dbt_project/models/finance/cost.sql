-- What each month cost and whose it is, by part; what nobody holds has a row of its own, so that every column adds up.
with costs as (

    select * from {{ ref('cost_daily') }}

),

named as (

    select
        billing_month as month,
        {{ plain_name('site', 'site') }} as site,
        {{ payer('deployment', ['team']) }} as team,
        {{ plain_name('deployment', 'deployment') }} as deployment,
        {{ plain_name('model', 'model') }} as model,
        part,
        basis,
        cost_usd,
        idle_cost_usd,
        billed_cost_usd,
        is_cash,
        is_cost_complete,
        deployment in ({{ beside_the_models() }}) as is_unheld,
        site || ' | ' || deployment || ' | ' || model as marts_key
    from costs

),

-- Usage and marginal charge for work: of what nobody holds they have nothing.
final as (

    select
        month,
        site,
        team,
        deployment,
        model,
        part,
        {{ on_basis('fully_loaded') }} as known_cost_usd,
        {{ on_basis('allocation') }} as allocation_cost_usd,
        {{ on_basis('usage', also='not is_unheld') }} as usage_cost_usd,
        {{ on_basis('marginal', also='not is_unheld') }} as marginal_cost_usd,
        case
            when count(case when basis = 'fully_loaded' then cost_usd end) = count(case when basis = 'fully_loaded' then idle_cost_usd end)
                then {{ on_basis('fully_loaded', 'idle_cost_usd') }}
        end as idle_cost_usd,
        {{ on_basis('fully_loaded', 'billed_cost_usd') }} as billed_cost_usd,
        bool_and(is_cash) as is_cash,
        bool_and(is_cost_complete) as is_cost_complete,
        marts_key
    from named
    group by month, site, team, deployment, model, part, marts_key

)

select * from final
