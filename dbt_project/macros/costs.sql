-- Dollars of a row of int_costed_energy before they are rounded, each once. The ledger's rows are rounded; a window of
-- minutes is priced from the unrounded.

{% macro row_energy_cost_usd() %}it_kwh * pue * usd_per_kwh{% endmacro %}
{# Time that is charged to the claimant elsewhere is not charged here: undated joules come from a silence that a
   claimant holds. #}
{% macro row_capacity_cost_usd() -%}
    case when not is_charged then 0 else cast(gpu_seconds as double) / 3600 * usd_per_gpu_hour end
{%- endmacro %}
{# A rate that holds the electricity already is not charged with it again. #}
{% macro row_charged_energy_cost_usd() %}case when rate_includes_energy then 0 else {{ row_energy_cost_usd() }} end{% endmacro %}

{# Of an amount, what the first of those who share it have together: amount × their weight ÷ all weight, rounded. A
   share is the difference of two such sums, so the shares add up to the amount to the last digit: the last one takes
   what is left. #}
{% macro shared_up_to(amount, weight, all_weight, fact='_usd') -%}
case
    when {{ weight }} >= {{ all_weight }} then cast({{ amount }} as {{ fact_type(fact) }})
    {%- set share = 'cast(' ~ amount ~ ' as double) * ' ~ ratio(weight, all_weight) %}
    else {{ money(share) if fact.endswith('_usd') else exact(share) }}
end
{%- endmacro %}

{# What the first holders of a site's hour carry of what is not held, up to so many GPU-seconds. #}
{% macro carried_up_to(unheld_usd, gpu_seconds) -%}{{ shared_up_to(unheld_usd, gpu_seconds, 'site_gpu_seconds') }}{%- endmacro %}

{# CTEs: what each tenant's tokens of a class are sold at by its contract, ending with `sold`, one row per keys, local date,
   tenant, model and class. Read from `used` (tenant_daily) and `hours` (model_hourly), both with their `month`,
   `contract_prices` and `sites`. A model without a log of requests has one tenant, `__no_requests__`. #}
{% macro tenant_sales(keys) -%}
{% set sold_classes = ['computed_input', 'cached_input', 'output'] %}
-- A price begins on a local date, which has hours of its UTC date and of the one before or after.
price_dates as (

    {% for side in ['valid_from', 'valid_to'] -%}
    select {{ side }} as date from contract_prices
    union
    select cast({{ side }} - interval 1 day as date) as date from contract_prices
    {{ 'union' if not loop.last }}
    {% endfor %}

),

-- Of these UTC dates, which part of the model's tokens each local date has.
local_dates as (

    select
        hours.date,
        hours.month,
        hours.site,
        hours.deployment,
        hours.model,
        greatest({{ local_date('hours.hour_start_at', "coalesce(sites.time_zone, 'UTC')") }}, hours.month) as local_date,
        {% for class in sold_classes -%}
        {% set computed = 'coalesce(hours.computed_input_tokens, hours.input_tokens)' -%}
        {% set tokens = computed if class == 'computed_input' else 'hours.' ~ class ~ '_tokens' -%}
        coalesce(
            {{ ratio('sum(' ~ tokens ~ ')', 'sum(sum(' ~ tokens ~ ')) over whole_window') }},
            {{ ratio('count(*)', 'sum(count(*)) over whole_window') }}
        ) as {{ class }}_ratio{{ ',' if not loop.last }}
        {% endfor %}
    from hours
    inner join price_dates on hours.date = price_dates.date
    left join sites on hours.site = sites.site
    group by 1, 2, 3, 4, 5, 6
    window whole_window as (partition by hours.date, hours.month, hours.site, hours.deployment, hours.model)

),

tenant_days as (

    select
        {{ columns_of('used', keys) }},
        used.model,
        used.tenant,
        coalesce(local_dates.local_date, used.date) as local_date,
        {% for class in sold_classes -%}
        {% set computed = 'coalesce(used.computed_input_tokens, used.input_tokens)' -%}
        cast({{ computed if class == 'computed_input' else 'used.' ~ class ~ '_tokens' }} as double)
            * coalesce(local_dates.{{ class }}_ratio, 1) as {{ class }}_tokens{{ ',' if not loop.last }}
        {% endfor %}
    from used
    left join local_dates on {{ equal_keys('used', 'local_dates', ['date', 'month', 'site', 'deployment', 'model']) }}

),

-- A tenant with a contract of its own pays by it alone.
contracts as (

    select
        asked.local_date,
        asked.model,
        asked.tenant,
        contract_prices.input_usd_per_mtok,
        coalesce(contract_prices.cached_input_usd_per_mtok, contract_prices.input_usd_per_mtok) as cached_input_usd_per_mtok,
        contract_prices.output_usd_per_mtok
    from (select distinct local_date, model, tenant from tenant_days) as asked
    inner join contract_prices
        on asked.model = contract_prices.model
        and (contract_prices.tenant is null or asked.tenant = contract_prices.tenant)
        and asked.local_date >= contract_prices.valid_from
        and (contract_prices.valid_to is null or asked.local_date < contract_prices.valid_to)
    qualify row_number() over (
        partition by asked.local_date, asked.model, asked.tenant
        order by contract_prices.tenant nulls last, contract_prices.valid_from desc
    ) = 1

),

sold as (

    {% for class in sold_classes -%}
    select
        {{ columns_of('tenant_days', keys) }},
        tenant_days.model,
        tenant_days.tenant,
        '{{ class }}' as token_class,
        tenant_days.{{ class }}_tokens as tokens,
        contracts.tenant is not null as has_contract,
        contracts.{{ class | replace('computed_', '') }}_usd_per_mtok as usd_per_mtok,
        case
            when coalesce(tenant_days.{{ class }}_tokens, 0) = 0 then 0
            else tenant_days.{{ class }}_tokens * contracts.{{ class | replace('computed_', '') }}_usd_per_mtok / 1e6
        end as revenue_usd
    from tenant_days
    left join contracts
        on tenant_days.local_date = contracts.local_date
        and tenant_days.model = contracts.model
        and tenant_days.tenant = contracts.tenant
    {{ 'union all' if not loop.last }}
    {% endfor %}

)
{%- endmacro %}

{# What electricity is charged with: what the compute cost has above capacity, which is 0 where the rate of a GPU-hour holds
   it already. Where some time lacks a price, the compute cost lacks the capacity of that time as well. #}
{% macro charged_energy_usd(days) -%}
case when coalesce({{ days }}.is_cost_complete, true) then {{ days }}.compute_cost_usd - {{ days }}.capacity_cost_usd end
{%- endmacro %}
