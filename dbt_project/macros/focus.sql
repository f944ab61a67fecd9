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
