-- The parts of what a token costs, and how each is shared: used by int_priced_cost_days and cost_daily.

{# A part's own cost of a row and hour in USD (`usd`), and how the bases share it:
   - `by: energy`: usage and allocation take a row's own cost, variable the productive share of it (`variable`).
   - `by: peak`: the same, but nothing is variable.
   - `by: time`: allocation takes what was claimed, usage the active share of the claimed time (or `active`), variable
     nothing.
   `idle` is what of `usd` paid for idle accelerators: idle energy, or the idle share of the claimed time.
   `fee` is the site's amount of the hour that `usd` shares out among all rows (`among`); without any it is the
   remainder's. `charged` is NULL where a site does not pay the part at all. `complete` holds where every price was
   known; of an unmetered accelerator no energy is. `is_exact`: `usd` is a decimal, not a double. `is_cash` is false for
   what no invoice shows. Overhead and cooling are kWh at one price, that of the row's accelerators: their sizes compare
   as their kWh do, also where the price is negative. To add a part: a line here and in focus_skus, and where its price is new a charge
   of the fleet file (pipelines/fleet/money/site_charges.py). #}
{% macro cost_parts() %}
    {{ return([
        {
            'name': 'capacity',
            'by': 'time',
            'usd': 'capacity_cost_usd',
            'active': 'active_capacity_cost_usd',
            'idle': 'idle_capacity_cost_usd',
            'complete': 'unrated_gpu_seconds = 0',
            'is_exact': true,
            'is_cash': true
        },
        {
            'name': 'cost_of_capital',
            'by': 'time',
            'usd': 'nullif(cost_of_capital_usd, 0)',
            'complete': 'unrated_gpu_seconds = 0',
            'is_exact': true,
            'is_cash': false
        },
        {
            'name': 'energy',
            'by': 'energy',
            'usd': 'energy_cost_usd - overhead_cost_usd',
            'variable': 'variable_cost_usd - variable_overhead_cost_usd',
            'idle': 'idle_energy_cost_usd - idle_overhead_cost_usd',
            'charged': '1',
            'complete': 'untariffed_kwh = 0',
            'is_exact': true,
            'is_cash': true
        },
        {
            'name': 'cooling',
            'by': 'energy',
            'usd': 'cooling_cost_usd',
            'variable': 'variable_cooling_cost_usd',
            'idle': 'idle_cooling_cost_usd',
            'charged': 'cooling_share',
            'complete': 'untariffed_kwh = 0',
            'is_exact': true,
            'is_cash': true
        },
        {
            'name': 'overhead',
            'by': 'energy',
            'usd':
                'case when abs(overhead_cost_usd) < abs(coalesce(cooling_cost_usd, 0)) then 0'
                ~ ' else overhead_cost_usd - coalesce(cooling_cost_usd, 0) end',
            'variable':
                'case when abs(variable_overhead_cost_usd) < abs(coalesce(variable_cooling_cost_usd, 0)) then 0'
                ~ ' else variable_overhead_cost_usd - coalesce(variable_cooling_cost_usd, 0) end',
            'idle':
                'case when abs(idle_overhead_cost_usd) < abs(coalesce(idle_cooling_cost_usd, 0)) then 0'
                ~ ' else idle_overhead_cost_usd - coalesce(idle_cooling_cost_usd, 0) end',
            'charged': '1',
            'complete': 'untariffed_kwh = 0',
            'is_exact': true,
            'is_cash': true
        },
        {
            'name': 'demand_charge',
            'by': 'peak',
            'usd': 'demand_usd * kwh_share',
            'idle': 'demand_usd * kwh_share * idle_energy_share',
            'fee': 'demand_usd',
            'charged': 'usd_per_kw_month',
            'among': 'site_facility_energy_kwh',
            'is_cash': true
        },
        {
            'name': 'hosting',
            'by': 'time',
            'usd': 'hosting_usd * watts_share',
            'fee': 'hosting_usd',
            'charged': 'hosting_usd',
            'among': 'site_limit_joules',
            'is_cash': true
        },
        {
            'name': 'operations',
            'by': 'time',
            'usd': 'operations_usd * gpu_share',
            'fee': 'operations_usd',
            'charged': 'operations_usd',
            'among': 'site_claimed_gpu_seconds',
            'is_cash': true
        },
        {
            'name': 'licences',
            'by': 'time',
            'usd': 'licence_usd_per_gpu_hour * claimed_gpu_seconds / 3600',
            'is_cash': true
        },
        {
            'name': 'carbon_price',
            'by': 'energy',
            'usd': 'location_gco2e / 1e6 * usd_per_tonne',
            'idle': 'idle_location_gco2e / 1e6 * usd_per_tonne',
            'variable': 'productive_location_gco2e / 1e6 * usd_per_tonne',
            'charged': 'usd_per_tonne',
            'complete': 'carbon_unknown_joules = 0',
            'is_cash': false
        }
    ]) }}
{% endmacro %}

{# The parts that no invoice shows. #}
{% macro notional_parts() -%}
    {%- set names = [] -%}
    {%- for part in cost_parts() if not part.is_cash %}{% do names.append("'" ~ part.name ~ "'") %}{% endfor -%}
    {{ names | join(', ') }}
{%- endmacro %}

{% macro cost_bases() %}{{ return(['variable', 'usage', 'allocation', 'fully_loaded']) }}{% endmacro %}

{# Of a row's cost of a part what it pays itself: nothing where its rate holds the part already. #}
{% macro beside_the_rate(part, usd) -%}
    {%- set priced = usd if part.get('is_exact') else money('cast(' ~ usd ~ ' as double)') -%}
    case when rate_includes like '% {{ part.name }} %' then case when {{ usd }} is not null then {{ money('0') }} end else {{ priced }} end
{%- endmacro %}

{# What of a row's cost of a part paid for idle accelerators. #}
{% macro idle_of(part) -%}
    {{ beside_the_rate(part if part.idle else {'name': part.name}, part.get('idle', part.usd ~ ' * idle_share')) }}
{%- endmacro %}

{# Whether a part of the row's own cost is unknown. #}
{% macro part_is_missing(part) -%}
    case
        {%- if part.by in ('energy', 'peak') %}
        when deployment = {{ unmetered() }} and {{ part.charged }} is not null then 1
        {%- endif %}
        when not ({{ part.get('complete', 'true') }}) then 1
        else 0
    end
{%- endmacro %}

{# A part's columns of int_priced_cost_days, added up. #}
{% macro part_sums(part) -%}
    {%- set amounts = ['usd', 'idle_usd', 'memo_usd', 'carried_usd', 'carried_idle_usd']
        + {'energy': ['variable_usd'], 'time': ['usage_usd']}.get(part.by, []) -%}
    {%- for amount in amounts -%}
    {{ money_sum(part.name ~ '_' ~ amount) }} as {{ part.name }}_{{ amount }}{{ ',' if not loop.last }}
    {% endfor -%}
{%- endmacro %}
