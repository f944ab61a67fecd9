-- Who pays for each month: the team of the requests, else of the deployment, with what it got for it.
with tenants as (

    select * from {{ ref('tenant_daily') }}

),

unheld_costs as (

    select * from {{ ref('cost_daily') }}
    where deployment in ({{ beside_the_models() }}) and basis in ('allocation', 'fully_loaded')

),

held as (

    select
        coalesce(billing_month, cast(date_trunc('month', date) as date)) as month,
        {{ plain_name('site', 'site') }} as site,
        {{ payer('deployment', ['request_team', 'team']) }} as payer,
        case
            when deployment = {{ unallocated() }} then {{ plain_name('deployment', 'tenant') }} else {{ plain_name('tenant', 'tenant') }}
        end as tenant,
        {{ plain_name('model', 'model') }} as model,
        requests,
        input_tokens,
        output_tokens,
        energy_joules,
        location_gco2e,
        fully_loaded_cost_usd as known_cost_usd,
        allocation_cost_usd,
        usage_cost_usd,
        coalesce(is_cost_complete, true) as is_cost_complete,
        site || ' | ' || tenant || ' | ' || model as marts_key
    from tenants

),

unheld as (

    select
        billing_month as month,
        {{ plain_name('site', 'site') }} as site,
        {{ payer('deployment', ['team']) }} as payer,
        {{ plain_name('deployment', 'tenant') }} as tenant,
        {{ plain_name('model', 'model') }} as model,
        case when basis = 'fully_loaded' then cost_usd end as known_cost_usd,
        case when basis = 'allocation' then cost_usd end as allocation_cost_usd,
        is_cost_complete,
        site || ' | ' || deployment || ' | ' || model as marts_key
    from unheld_costs

),

all_rows as (

    select * from held
    union all by name
    select * from unheld

),

final as (

    select
        month,
        site,
        payer,
        tenant,
        model,
        {{ exact_sum('requests') }} as requests,
        {{ exact_sum('input_tokens') }} as input_tokens,
        {{ exact_sum('output_tokens') }} as output_tokens,
        {{ exact('cast(sum(energy_joules) as double) / 3.6e6') }} as energy_kwh,
        {{ exact('cast(sum(location_gco2e) as double) / 1000') }} as location_kgco2e,
        {{ money_sum('known_cost_usd') }} as known_cost_usd,
        {{ money_sum('allocation_cost_usd') }} as allocation_cost_usd,
        {{ money_sum('usage_cost_usd') }} as usage_cost_usd,
        bool_and(is_cost_complete) as is_cost_complete,
        min(marts_key) as marts_key
    from all_rows
    group by month, site, payer, tenant, model

)

select * from final
