-- What a rack earns: its tokens at their price against its cost on each basis, per accelerator-hour and per MW. Every
-- run makes the lookback anew, because the capacity that sold utilisation refers to is of the lookback.
{{ config(replaces='all') }}
{% set classes = {'cached_input': 'cached_input', 'computed_input': 'input', 'output': 'output'} %}

with lookback as (

    select as_of_date from {{ ref('int_lookback') }}

),

lookback_dates as (

    select * from {{ ref('int_lookback_dates') }}

),

rack_days as (

    select used.*
    from {{ ref('rack_usage_daily') }} as used
    inner join lookback_dates on used.date = lookback_dates.date

),

costs as (

    select paid.*
    from {{ ref('cost_daily') }} as paid
    inner join lookback_dates on paid.date = lookback_dates.date

),

days as (

    select model_days.*
    from {{ ref('model_daily') }} as model_days
    inner join lookback_dates on model_days.date = lookback_dates.date

),

capacities as (

    select * from {{ ref('slo_capacity') }}

),

contract_prices as (

    select * from {{ source('fleet', 'contract_prices') }} where tenant is null

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
    window model_day as (partition by date, {{ model_keys() | join(', ') }})

),

-- Accelerators with a purchase price: what they cost is written off and no cash of the date.
purchase_prices as (

    select
        lookback_dates.date,
        cost_rates.device_type,
        cost_rates.price_usd_per_gpu
    from cost_rates
    inner join lookback_dates
        on lookback_dates.date >= cost_rates.valid_from and (cost_rates.valid_to is null or lookback_dates.date < cost_rates.valid_to)
    qualify row_number() over (partition by lookback_dates.date, cost_rates.device_type order by cost_rates.valid_from desc) = 1

),

placed_costs as (

    select
        costs.date,
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
        {% for key in model_keys() -%}
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
        site,
        rack,
        basis,
        {{ money_sum(money('cost_usd')) }} as cost_usd,
        {{ money_sum(money('case when is_cash then cost_usd else 0 end')) }} as cash_cost_usd,
        min(case when is_cost_complete then 1 else 0 end) = 1 as is_cost_complete
    from placed_costs
    group by date, site, rack, basis

),

rack_energy as (

    select
        days.date,
        days.site,
        coalesce(shares.rack, {{ unknown() }}) as rack,
        {{ exact_sum(exact('cast(days.facility_energy_kwh as double) * coalesce(shares.energy_share, 1)')) }} as facility_energy_kwh
    from days
    left join shares
        on days.date = shares.date
        {% for key in model_keys() -%}
        and days.{{ key }} is not distinct from shares.{{ key }}
        {% endfor -%}
    where days.facility_energy_kwh is not null
    group by days.date, days.site, coalesce(shares.rack, {{ unknown() }})

),

model_dates as (

    select distinct date, model from rack_days

),

contracts as (

    select
        model_dates.date,
        model_dates.model,
        contract_prices.input_usd_per_mtok,
        coalesce(contract_prices.cached_input_usd_per_mtok, contract_prices.input_usd_per_mtok) as cached_input_usd_per_mtok,
        contract_prices.output_usd_per_mtok
    from contract_prices
    inner join model_dates
        on contract_prices.model = model_dates.model
        and model_dates.date >= contract_prices.valid_from
        and (contract_prices.valid_to is null or model_dates.date < contract_prices.valid_to)
    qualify row_number() over (partition by model_dates.date, model_dates.model order by contract_prices.valid_from desc) = 1

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

-- A model with a contract is sold by it alone; a list is not mixed into it.
sold as (

    {% for class, price in classes.items() -%}
    select
        rack_days.date,
        rack_days.site,
        rack_days.rack,
        rack_days.{{ class }}_tokens as tokens,
        case when contracts.model is not null then 'contract' when named_lists.model is not null then 'list' else 'none' end as price_basis,
        case
            when contracts.model is not null then contracts.{{ price }}_usd_per_mtok
            else named_lists.{{ price }}_usd_per_mtok
        end as usd_per_mtok
    from rack_days
    left join contracts on rack_days.date = contracts.date and rack_days.model = contracts.model
    left join named_lists on rack_days.date = named_lists.date and rack_days.model = named_lists.model
    where rack_days.{{ class }}_tokens is not null
    {{ 'union all' if not loop.last }}
    {% endfor %}

),

rack_sales as (

    select
        date,
        site,
        rack,
        {{ exact_sum('tokens') }} as tokens,
        {{ exact_sum('case when usd_per_mtok is null then tokens else 0 end') }} as unpriced_tokens,
        {{ money_sum(money('cast(tokens as double) * usd_per_mtok / 1e6')) }} as priced_usd,
        max(case when tokens > 0 and usd_per_mtok is not null and price_basis = 'contract' then 1 else 0 end) as has_contract,
        max(case when tokens > 0 and usd_per_mtok is not null and price_basis = 'list' then 1 else 0 end) as has_list
    from sold
    group by date, site, rack

),

-- Time of a full accelerator that the tokens would take. Accelerators that serve none are not sold.
used_rows as (

    select
        rack_days.date,
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
    group by date, site, rack

),

-- What no rack holds earns nothing.
joined as (

    select
        rack_costs.date,
        rack_costs.site,
        rack_costs.rack,
        rack_costs.basis,
        rack_costs.cost_usd,
        rack_costs.cash_cost_usd,
        rack_costs.is_cost_complete,
        marginal.cost_usd as marginal_cost_usd,
        rack_use.gpu_seconds,
        rack_use.sold_gpu_seconds,
        rack_use.capex_usd,
        rack_energy.facility_energy_kwh,
        case when coalesce(rack_use.are_tokens_known, true) then coalesce(rack_sales.tokens, 0) end as tokens,
        coalesce(rack_sales.unpriced_tokens, 0) = 0 and coalesce(rack_use.are_tokens_known, true) as is_revenue_complete,
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
    left join rack_costs as marginal
        on {{ equal_keys('rack_costs', 'marginal', ['date', 'site', 'rack']) }} and marginal.basis = 'marginal'
    left join rack_use on {{ equal_keys('rack_costs', 'rack_use', ['date', 'site', 'rack']) }}
    left join rack_energy on {{ equal_keys('rack_costs', 'rack_energy', ['date', 'site', 'rack']) }}
    left join rack_sales on {{ equal_keys('rack_costs', 'rack_sales', ['date', 'site', 'rack']) }}

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
            when is_revenue_complete and is_cost_complete and revenue_usd > marginal_cost_usd
                then sold_utilisation_ratio * {{ ratio('cost_usd - marginal_cost_usd', 'revenue_usd - marginal_cost_usd') }}
        end as break_even_sold_ratio
    from earned

),

final as (

    select
        balanced.date,
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
