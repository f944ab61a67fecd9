-- What FOCUS 1.2 (the FinOps Open Cost and Usage Specification) needs beside the parts of the cost: a SKU per part, its
-- unit and its price.

{# The prices of cost_drivers_hourly and int_site_fees: what of a date has other prices is a row of its own in
   int_priced_cost_days. #}
{% macro focus_prices() %}
    {{ return([
        'tariff_usd_per_kwh', 'rate_usd_per_gpu_hour', 'capital_rate_usd_per_gpu_hour', 'usd_per_kw_month',
        'hosting_usd_per_kw_month', 'operations_usd_per_month',
        'licence_usd_per_gpu_hour', 'usd_per_tonne'
    ]) }}
{% endmacro %}

{# Per part of cost_parts: `name` for people, the `price` among focus_prices and its `unit`, what is consumed (`by`:
   claimed GPU-hours, kWh, or what is charged alone), and by which measure the cost is shared among models (`method`,
   docs/finance.md). #}
{% macro focus_skus() %}
    {{ return({
        'capacity': {
            'name': 'GPU capacity',
            'price': 'rate_usd_per_gpu_hour',
            'unit': 'GPU-Hours',
            'by': 'gpu_hours',
            'frequency': 'Usage-Based',
            'method': 'claimed-gpu-hours'
        },
        'cost_of_capital': {
            'name': 'Cost of capital of GPUs',
            'price': 'capital_rate_usd_per_gpu_hour',
            'unit': 'GPU-Hours',
            'by': 'gpu_hours',
            'frequency': 'Usage-Based',
            'method': 'claimed-gpu-hours'
        },
        'energy': {
            'name': 'Energy of GPUs and hosts',
            'price': 'tariff_usd_per_kwh',
            'unit': 'kWh',
            'by': 'kwh',
            'frequency': 'Usage-Based',
            'method': 'metered-energy'
        },
        'cooling': {
            'name': 'Energy for cooling',
            'price': 'tariff_usd_per_kwh',
            'unit': 'kWh',
            'by': 'kwh',
            'frequency': 'Usage-Based',
            'method': 'metered-energy'
        },
        'overhead': {
            'name': 'Energy of other overhead',
            'price': 'tariff_usd_per_kwh',
            'unit': 'kWh',
            'by': 'kwh',
            'frequency': 'Usage-Based',
            'method': 'metered-energy'
        },
        'demand_charge': {
            'name': 'Demand charge',
            'price': 'usd_per_kw_month',
            'unit': 'kW-Months',
            'by': 'charge',
            'frequency': 'Recurring',
            'method': 'metered-energy'
        },
        'hosting': {
            'name': 'Hosting',
            'price': 'hosting_usd_per_kw_month',
            'unit': 'kW-Months',
            'by': 'charge',
            'frequency': 'Recurring',
            'method': 'claimed-power-limit'
        },
        'operations': {
            'name': 'Operations',
            'price': 'operations_usd_per_month',
            'unit': 'Months',
            'by': 'charge',
            'frequency': 'Recurring',
            'method': 'claimed-gpu-hours'
        },
        'licences': {
            'name': 'Licences',
            'price': 'licence_usd_per_gpu_hour',
            'unit': 'GPU-Hours',
            'by': 'gpu_hours',
            'frequency': 'Usage-Based',
            'method': 'claimed-gpu-hours'
        },
        'carbon_price': {
            'name': 'Internal carbon price',
            'price': 'usd_per_tonne',
            'unit': 'Tonnes CO2e',
            'by': 'charge',
            'frequency': 'Usage-Based',
            'method': 'metered-energy'
        }
    }) }}
{% endmacro %}

{# The parts of the cost by what paid for them: CTEs gpu_days and part_days. Needs `priced_days` and
   `capacity_by_source`. #}
{% macro focus_part_days(keys) -%}
{% set gpu_parts = ['capacity', 'cost_of_capital'] -%}
-- Accelerators at the one price of their hour, and those that several sources pay for.
gpu_days as (

    select
        {% for key in keys -%}
        {{ key }},
        {% endfor -%}
        is_held,
        'rate' as capacity_source,
        cast(null as {{ dbt.type_string() }}) as commitment,
        rate_usd_per_gpu_hour as usd_per_gpu_hour,
        capital_rate_usd_per_gpu_hour as capital_usd_per_gpu_hour,
        claimed_gpu_seconds as gpu_seconds,
        capacity_usd,
        cost_of_capital_usd
    from priced_days
    where rate_usd_per_gpu_hour is not null and deployment <> {{ unused_commitment() }}
    union all
    select
        {% for key in keys -%}
        {{ key }},
        {% endfor -%}
        is_held,
        coalesce(capacity_source, 'mean') as capacity_source,
        commitment,
        usd_per_gpu_hour,
        capital_usd_per_gpu_hour,
        gpu_seconds,
        capacity_usd,
        cost_of_capital_usd
    from capacity_by_source

),

-- What costs an unknown amount is no row. Only what is owned has a price of its capital.
part_days as (

    {% for part in cost_parts() -%}
    {% set sku = focus_skus()[part.name] -%}
    {% set is_of_gpus = part.name in gpu_parts -%}
    select
        {% for key in keys -%}
        {{ key }},
        {% endfor -%}
        is_held,
        '{{ part.name }}' as part,
        {{ 'capacity_source' if is_of_gpus else 'cast(null as ' ~ dbt.type_string() ~ ')' }} as capacity_source,
        {{ 'commitment' if is_of_gpus else 'cast(null as ' ~ dbt.type_string() ~ ')' }} as commitment,
        {{ 'capital_usd_per_gpu_hour is null' if is_of_gpus and part.is_cash else part.is_cash }} as is_billed,
        {{ part.is_cash }} as is_cash,
        {{ part.name }}_usd as cost_usd,
        {{ 'cast(null as ' ~ money_type() ~ ')' if is_of_gpus else part.name ~ '_memo_usd' }} as memo_usd,
        {{ {'capacity': 'usd_per_gpu_hour', 'cost_of_capital': 'capital_usd_per_gpu_hour'}.get(part.name, sku.price) }} as unit_price,
        {{ 'gpu_seconds' if is_of_gpus else 'claimed_gpu_seconds' if sku.by == 'gpu_hours' else 'cast(null as ' ~ exact_type() ~ ')' }}
        as gpu_seconds,
        {{ 'facility_energy_kwh' if sku.by == 'kwh' else 'cast(null as ' ~ exact_type() ~ ')' }} as facility_energy_kwh,
        {{ 'cast(null as ' ~ money_type() ~ ')' if is_of_gpus else 'energy_cost_usd' }} as facility_usd,
        {{ 'location_gco2e' if part.name == 'energy' else 'cast(null as ' ~ exact_type() ~ ')' }} as location_gco2e
    from {{ 'gpu_days' if is_of_gpus else 'priced_days' }}
    where {{ part.name }}_usd is not null
    {%- if part.name == 'cost_of_capital' %} and deployment <> {{ unused_commitment() }}
    {%- elif part.name != 'capacity' %} and deployment not in ({{ beside_the_models() }})
    {%- endif %}
    {{ 'union all' if not loop.last }}
    {% endfor %}

)
{%- endmacro %}

{# CTE unshared_fees. Needs `fees`. #}
{% macro focus_unshared_fees() -%}
-- A site's fee of an hour in which no row could share it.
unshared_fees as (

    {% for part in cost_parts() if part.fee -%}
    select
        date,
        billing_month,
        site,
        {{ remainder() }} as deployment,
        {{ remainder() }} as model,
        cast(null as {{ dbt.type_string() }}) as namespace,
        cast(null as {{ dbt.type_string() }}) as team,
        'none' as device_type,
        'none' as meter_scope,
        'unified' as role,
        '{{ part.name }}' as part,
        cast(null as {{ dbt.type_string() }}) as capacity_source,
        cast(null as {{ dbt.type_string() }}) as commitment,
        {{ part.is_cash }} as is_billed,
        {{ part.is_cash }} as is_cash,
        cast(null as {{ dbt.type_string() }}) as sku_device_type,
        {{ part.fee }} as cost_usd,
        cast(null as {{ money_type() }}) as memo_usd,
        {{ to_a_billionth(focus_skus()[part.name].price) }} as unit_price,
        cast(null as {{ exact_type() }}) as gpu_seconds,
        cast(null as {{ exact_type() }}) as facility_energy_kwh,
        cast(null as {{ money_type() }}) as facility_usd,
        cast(null as {{ exact_type() }}) as location_gco2e
    from fees
    where {{ part.charged }} is not null and {{ part.fee }} is not null and {{ part.among }} = 0
    {{ 'union all' if not loop.last }}
    {% endfor %}

)
{%- endmacro %}

{# Prices are quotients of doubles: equal to a billionth is the same price. #}
{% macro to_a_billionth(price) %}(floor(({{ price }}) * 1e9 + 0.5) / 1e9){% endmacro %}

{# A quantity with 15 digits after the point: times a price of a million dollars it is right to a billionth of a dollar.
   As money(). #}
{% macro quantity_type() %}decimal(28, 15){% endmacro %}
{% macro quantity(value) -%}
    cast(
        cast(floor({{ value }}) as {{ quantity_type() }})
            + cast(
                floor((({{ value }}) - floor({{ value }})) * 1e15 + 0.5) / 1e15 as {{ quantity_type() }}
            ) as {{ quantity_type() }}
    )
{%- endmacro %}

{# A decimal(28, 12) as the shortest text, such as 0.23: engines differ in how they write decimals. #}
{% macro number_text(value) -%}
regexp_replace(
    case when {{ value }} < 0 then '-' else '' end || cast(cast(floor(abs({{ value }})) as bigint) as {{ dbt.type_string() }}) || '.'
    || lpad(cast(cast(floor((abs({{ value }}) - floor(abs({{ value }}))) * 1e12 + 0.5) as bigint) as {{ dbt.type_string() }}), 12, '0'),
    '[.]?0+$', ''
)
{%- endmacro %}
