-- How the cost of a date is compared with that of earlier ones: used by int_model_cost_days, cost_change_daily and
-- cost_anomalies_daily.

{# What a part is the price of, so that its change is price, efficiency or volume: productive kWh of the devices,
   facility kWh, or active GPU-hours. #}
{% macro part_unit(part) -%}
    {{ return({'energy': 'productive_kwh', 'peak': 'facility_kwh', 'time': 'active_gpu_hours'}[part.by]) }}
{%- endmacro %}

{# The dates of the lookback, and as many before them: each date of the lookback is compared with as many dates. #}
{% macro in_cost_history(date_column, as_of_date) %}
    ({{ date_column }} > {{ as_of_date }} - interval {{ 2 * var('curve_lookback_days') }} day and {{ date_column }} <= {{ as_of_date }})
{% endmacro %}

{# The name of the row of the whole fleet in the place of a site, model and part. #}
{% macro whole_fleet() %}'__all__'{% endmacro %}

{# What makes a cost unusual: over 5 % and over 3.5 spreads from what is usual, with at least 14 earlier dates to
   compare with, and a difference of at least 1 % of what the fleet usually costs, whatever that is: it mutes cents of a
   big fleet and none of a small one. The spread is 1.4826 × the median absolute deviation, which is the standard
   deviation of a normal law. #}
{% macro least_history_days() %}14{% endmacro %}
{% macro least_difference_ratio() %}0.05{% endmacro %}
{% macro least_fleet_ratio() %}0.01{% endmacro %}
{% macro least_robust_z() %}3.5{% endmacro %}
{% macro spreads_per_deviation() %}1.4826{% endmacro %}

{# The parts of the cost that change with the load, quoted: all others are paid whatever runs. #}
{% macro energy_parts() %}'{{ cost_parts() | selectattr('by', 'equalto', 'energy') | map(attribute='name') | join("', '") }}'{% endmacro %}
