-- What a rack earns: its tokens at their price against its cost on each basis, per accelerator-hour and per MW. Whole
-- billing months that the run touched, as cost_daily; sold utilisation refers to the capacity of the run's lookback.
{{ config(replaces='billing_months') }}
{% set keys = ['date', 'billing_month'] + model_keys() %}
{% set classes = {'cached_input': 'cached_input', 'computed_input': 'input', 'output': 'output'} %}

with lookback as (

    select as_of_date from {{ ref('int_lookback') }}

),

rack_days as (

    select
        {{ chargeback_month() }} as billing_month,
        {{ (['date', 'rack'] + model_keys()) | join(', ') }},
        gpu_seconds,
        energy_joules,
        cached_input_tokens,
        computed_input_tokens,
        output_tokens
    from {{ ref('rack_usage_daily') }}
    where {{ in_run_months(chargeback_month()) }}

),

costs as (

    select * from {{ ref('cost_daily') }} where {{ in_run_months('billing_month') }}

),

hours as (

    select
        *,
        {{ chargeback_month() }} as month
    from {{ ref('model_hourly') }}
    where {{ in_run_months(chargeback_month()) }}

),

used as (

    select
        *,
        {{ chargeback_month() }} as month
    from {{ ref('tenant_daily') }}
    where {{ in_run_months('billing_month') }}

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

capacities as (

    select * from {{ ref('slo_capacity') }}

),

contract_prices as (

    select * from {{ source('fleet', 'contract_prices') }}

),

list_prices as (

    select * from {{ ref('model_list_prices') }}

),

models as (

    select * from {{ source('fleet', 'models') }}

),

cost_rates as (

    select * from {{ source('fleet', 'cost_rates') }}

),

-- Which part of a model's row is in which rack: what is paid by time by accelerator-seconds, what is paid by energy by
-- joules.
shares as (

    select
        *,
        {{ ratio('gpu_seconds', 'sum(gpu_seconds) over model_day') }} as gpu_share,
        {{ ratio('energy_joules', 'sum(energy_joules) over model_day') }} as energy_share
    from rack_days
    where gpu_seconds is not null or energy_joules is not null
    window model_day as (partition by {{ keys | join(', ') }})

),

-- Accelerators with a purchase price: what they cost is written off and no cash of the date.
purchase_prices as (

    select
        cost_dates.date,
        cost_rates.device_type,
        cost_rates.price_usd_per_gpu
    from cost_rates
    inner join (select distinct date from costs) as cost_dates
        on cost_dates.date >= cost_rates.valid_from and (cost_rates.valid_to is null or cost_dates.date < cost_rates.valid_to)
    qualify row_number() over (partition by cost_dates.date, cost_rates.device_type order by cost_rates.valid_from desc) = 1

),

placed_costs as (

    select
        costs.date,
        costs.billing_month,
        costs.site,
        case
            when costs.deployment in ({{ beside_the_models() }}) then costs.deployment
            else coalesce(shares.rack, {{ unknown() }})
        end as rack,
        costs.basis,
        costs.is_cost_complete and costs.cost_usd is not null as is_cost_complete,
        costs.is_cash and not (costs.part = 'capacity' and purchase_prices.price_usd_per_gpu is not null) as is_cash,
        cast(costs.cost_usd as double)
        * case
            when shares.rack is null then 1
            when costs.part in ({% for part in cost_parts() if part.by != 'time' %}'{{ part.name }}'{{ ', ' if not loop.last }}{% endfor %})
                then coalesce(shares.energy_share, shares.gpu_share, 1.0 / count(*) over cost_row)
            else coalesce(shares.gpu_share, shares.energy_share, 1.0 / count(*) over cost_row)
        end as cost_usd
    from costs
    left join shares
        on costs.date = shares.date
        {% for key in keys[1:] -%}
        and costs.{{ key }} is not distinct from shares.{{ key }}
        {% endfor -%}
    left join purchase_prices on costs.date = purchase_prices.date and costs.device_type = purchase_prices.device_type
    window cost_row as (
        partition by
            costs.date,
            costs.billing_month,
            costs.basis,
            costs.part,
            {{ columns_of('costs', model_keys()) }}
    )

),

rack_costs as (

    select
        date,
        billing_month,
        site,
        rack,
        basis,
        {{ money_sum(money('cost_usd')) }} as cost_usd,
        {{ money_sum(money('case when is_cash then cost_usd else 0 end')) }} as cash_cost_usd,
        min(case when is_cost_complete then 1 else 0 end) = 1 as is_cost_complete
    from placed_costs
    group by date, billing_month, site, rack, basis

),

days as (

    select
        date,
        month as billing_month,
        {{ model_keys() | join(', ') }},
        {{ exact_sum('facility_energy_kwh') }} as facility_energy_kwh
    from hours
    where facility_energy_kwh is not null
    group by date, month, {{ model_keys() | join(', ') }}

),

rack_energy as (

    select
        days.date,
        days.billing_month,
        days.site,
        coalesce(shares.rack, {{ unknown() }}) as rack,
        {{ exact_sum(exact('cast(days.facility_energy_kwh as double) * coalesce(shares.energy_share, 1)')) }} as facility_energy_kwh
    from days
    left join shares on days.date = shares.date
        {% for key in keys[1:] -%}
        and days.{{ key }} is not distinct from shares.{{ key }}
        {% endfor -%}
    group by days.date, days.billing_month, days.site, coalesce(shares.rack, {{ unknown() }})

),

named_lists as (

    select
        list_prices.date,
        list_prices.model,
        list_prices.input_usd_per_mtok,
        list_prices.cached_input_usd_per_mtok,
        list_prices.output_usd_per_mtok
    from list_prices
    inner join models
        on list_prices.model = models.model
        and list_prices.price_source = models.list_price_source
        and list_prices.listed_model = models.list_price_name

),

{{ tenant_sales(['date', 'month', 'site', 'deployment']) }},

-- Where a contract holds, a list is not mixed into it. What a log of requests does not explain is sold to no tenant.
priced as (

    select
        sold.*,
        case when sold.has_contract then 'contract' when named_lists.model is not null then 'list' else 'none' end as price_basis,
        case
            when sold.has_contract then sold.usd_per_mtok
            {% for class, price in classes.items() -%}
            when sold.token_class = '{{ class }}' then named_lists.{{ price }}_usd_per_mtok
            {% endfor -%}
        end * case when sold.tenant = {{ unattributed() }} then 0 else 1 end as charged_usd_per_mtok
    from sold
    left join named_lists on sold.date = named_lists.date and sold.model = named_lists.model
    where sold.tokens > 0

),

model_sales as (

    select
        date,
        month as billing_month,
        site,
        deployment,
        model,
        token_class,
        {{ money_sum(money('tokens * charged_usd_per_mtok / 1e6')) }} as priced_usd,
        max(case when charged_usd_per_mtok is null then 1 else 0 end) as is_unpriced,
        max(case when charged_usd_per_mtok is not null and price_basis = 'contract' then 1 else 0 end) as has_contract,
        max(case when charged_usd_per_mtok is not null and price_basis = 'list' then 1 else 0 end) as has_list
    from priced
    group by date, month, site, deployment, model, token_class

),

rack_classes as (

    {% for class in classes -%}
    select
        date,
        billing_month,
        site,
        rack,
        deployment,
        model,
        '{{ class }}' as token_class,
        {{ exact_sum(class ~ '_tokens') }} as tokens
    from rack_days
    where {{ class }}_tokens is not null
    group by date, billing_month, site, rack, deployment, model
    {{ 'union all' if not loop.last }}
    {% endfor %}

),

-- Each rack has of the model's revenue what it has of its tokens.
shared_sales as (

    select
        *,
        {{ ratio('tokens', 'sum(tokens) over (partition by date, billing_month, site, deployment, model, token_class)') }} as rack_share
    from rack_classes

),

rack_sales as (

    select
        shared_sales.date,
        shared_sales.billing_month,
        shared_sales.site,
        shared_sales.rack,
        {{ exact_sum('shared_sales.tokens') }} as tokens,
        max(case when shared_sales.tokens > 0 then coalesce(model_sales.is_unpriced, 1) else 0 end) as is_unpriced,
        {{ money_sum(money('cast(model_sales.priced_usd as double) * shared_sales.rack_share')) }} as priced_usd,
        max(case when shared_sales.tokens > 0 then model_sales.has_contract else 0 end) as has_contract,
        max(case when shared_sales.tokens > 0 then model_sales.has_list else 0 end) as has_list
    from shared_sales
    left join model_sales
        on {{ equal_keys('shared_sales', 'model_sales', ['date', 'billing_month', 'site', 'deployment', 'model', 'token_class']) }}
    group by shared_sales.date, shared_sales.billing_month, shared_sales.site, shared_sales.rack

),

-- Time of a full accelerator that the tokens would take. Accelerators that serve none are not sold.
used_rows as (

    select
        rack_days.date,
        rack_days.billing_month,
        rack_days.site,
        rack_days.rack,
        rack_days.gpu_seconds,
        case
            when rack_days.role = 'prefill'
                then coalesce(rack_days.cached_input_tokens, 0) + rack_days.computed_input_tokens
            else rack_days.output_tokens
        end as load_tokens,
        coalesce(rack_days.cached_input_tokens, 0)
            + coalesce(rack_days.computed_input_tokens, 0)
            + coalesce(rack_days.output_tokens, 0) as served_tokens,
        rack_days.deployment not in ({{ unallocated() }}, {{ unknown() }})
        and rack_days.gpu_seconds > 0
        and coalesce(rack_days.cached_input_tokens, rack_days.computed_input_tokens, rack_days.output_tokens) is null as is_unreported,
        capacities.capacity_tokens_per_second_per_gpu,
        purchase_prices.price_usd_per_gpu
    from rack_days
    left join capacities on {{ equal_keys('rack_days', 'capacities', curve_keys()) }}
    left join purchase_prices on rack_days.date = purchase_prices.date and rack_days.device_type = purchase_prices.device_type

),

rack_use as (

    select
        date,
        billing_month,
        site,
        rack,
        {{ exact_sum('gpu_seconds') }} as gpu_seconds,
        max(case when is_unreported then 1 else 0 end) = 0 as are_tokens_known,
        case
            when max(
                case
                    when is_unreported or (served_tokens > 0 and coalesce(capacity_tokens_per_second_per_gpu, 0) = 0)
                        then 1
                    else 0
                end
            ) = 0
                then {{ exact_sum(
                    exact(
                        'case when load_tokens > 0'
                        ~ ' then cast(load_tokens as double) / nullif(capacity_tokens_per_second_per_gpu, 0)'
                        ~ ' else 0 end'
                    )
                ) }}
        end as sold_gpu_seconds,
        case
            when max(case when gpu_seconds > 0 and price_usd_per_gpu is null then 1 else 0 end) = 0
                then {{ money_sum(money('cast(gpu_seconds as double) / 86400 * price_usd_per_gpu')) }}
        end as capex_usd
    from used_rows
    group by date, billing_month, site, rack

),

-- What no rack holds earns nothing.
joined as (

    select
        rack_costs.date,
        rack_costs.billing_month,
        rack_costs.site,
        rack_costs.rack,
        rack_costs.basis,
        rack_costs.cost_usd,
        rack_costs.cash_cost_usd,
        rack_costs.is_cost_complete,
        variable.cost_usd as variable_cost_usd,
        rack_use.gpu_seconds,
        rack_use.sold_gpu_seconds,
        rack_use.capex_usd,
        rack_energy.facility_energy_kwh,
        case when coalesce(rack_use.are_tokens_known, true) then coalesce(rack_sales.tokens, 0) end as tokens,
        coalesce(rack_sales.is_unpriced, 0) = 0 and coalesce(rack_use.are_tokens_known, true) as is_revenue_complete,
        case
            when rack_sales.has_contract = 1 and rack_sales.has_list = 1 then 'contract_and_list'
            when rack_sales.has_contract = 1 then 'contract'
            when rack_sales.has_list = 1 then 'list'
            when rack_sales.tokens > 0 then 'no_price'
            when not coalesce(rack_use.are_tokens_known, true) then 'tokens_not_reported'
            else 'no_tokens'
        end as revenue_basis,
        rack_sales.priced_usd
    from rack_costs
    left join rack_costs as variable
        on {{ equal_keys('rack_costs', 'variable', ['date', 'billing_month', 'site', 'rack']) }} and variable.basis = 'variable'
    left join rack_use on {{ equal_keys('rack_costs', 'rack_use', ['date', 'billing_month', 'site', 'rack']) }}
    left join rack_energy on {{ equal_keys('rack_costs', 'rack_energy', ['date', 'billing_month', 'site', 'rack']) }}
    left join rack_sales on {{ equal_keys('rack_costs', 'rack_sales', ['date', 'billing_month', 'site', 'rack']) }}

),

earned as (

    select
        *,
        case revenue_basis
            when 'no_tokens' then {{ money('0') }}
            when 'no_price' then null
            when 'tokens_not_reported' then null
            else priced_usd
        end as revenue_usd,
        {{ ratio('sold_gpu_seconds', 'gpu_seconds') }} as sold_utilisation_ratio
    from joined

),

balanced as (

    select
        *,
        case when is_revenue_complete and is_cost_complete then revenue_usd - cost_usd end as margin_usd,
        case when is_revenue_complete and is_cost_complete then revenue_usd - cash_cost_usd end as cash_margin_usd,
        case
            when is_revenue_complete and is_cost_complete and revenue_usd > variable_cost_usd
                then sold_utilisation_ratio * {{ ratio('cost_usd - variable_cost_usd', 'revenue_usd - variable_cost_usd') }}
        end as break_even_sold_ratio
    from earned

),

final as (

    select
        balanced.date,
        balanced.billing_month,
        lookback.as_of_date,
        balanced.site,
        balanced.rack,
        balanced.basis,
        cast(balanced.gpu_seconds as {{ exact_type() }}) as gpu_seconds,
        cast(balanced.facility_energy_kwh as {{ exact_type() }}) as facility_energy_kwh,
        cast(balanced.tokens as {{ exact_type() }}) as tokens,
        cast(balanced.revenue_usd as {{ money_type() }}) as revenue_usd,
        balanced.revenue_basis,
        balanced.is_revenue_complete,
        cast(balanced.cost_usd as {{ money_type() }}) as cost_usd,
        cast(balanced.cash_cost_usd as {{ money_type() }}) as cash_cost_usd,
        balanced.is_cost_complete,
        cast(balanced.margin_usd as {{ money_type() }}) as margin_usd,
        cast(balanced.cash_margin_usd as {{ money_type() }}) as cash_margin_usd,
        {{ ratio('balanced.margin_usd', 'balanced.revenue_usd') }} as gross_margin_ratio,
        {{ ratio('balanced.margin_usd', 'balanced.gpu_seconds') }} * 3600 as margin_usd_per_gpu_hour,
        {{ ratio('balanced.margin_usd', 'balanced.facility_energy_kwh') }} * 24000 as margin_usd_per_mw,
        {{ ratio('balanced.tokens', 'balanced.facility_energy_kwh') }} / 3.6 as tokens_per_second_per_mw,
        balanced.sold_utilisation_ratio,
        case when balanced.break_even_sold_ratio <= 1 then balanced.break_even_sold_ratio end as break_even_sold_ratio,
        balanced.capex_usd,
        case
            when balanced.cash_margin_usd > 0 then {{ ratio('balanced.capex_usd', 'balanced.cash_margin_usd') }} / 365
        end as payback_years,
        case
            when balanced.gpu_seconds is null then 'no_accelerators'
            when balanced.capex_usd is null then 'rented'
            when balanced.cash_margin_usd is null then 'margin_not_known'
            when balanced.cash_margin_usd <= 0 then 'no_cash_margin'
            else 'owned'
        end as payback_basis
    from balanced
    cross join lookback

)

select * from final
