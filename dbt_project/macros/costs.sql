-- Dollars of a row of int_costed_energy before they are rounded, each once. The ledger's rows are rounded; a window of minutes is priced from
-- the unrounded.

{% macro row_energy_cost_usd() %}it_kwh * pue * usd_per_kwh{% endmacro %}
{# Time that is charged to the claimant elsewhere is not charged here: undated joules come from a silence that a claimant holds. #}
{% macro row_capacity_cost_usd() %}case when not is_charged then 0 else cast(gpu_seconds as double) / 3600 * usd_per_gpu_hour end{% endmacro %}
{# A rate that holds the electricity already is not charged with it again. #}
{% macro row_charged_energy_cost_usd() %}case when rate_includes_energy then 0 else {{ row_energy_cost_usd() }} end{% endmacro %}

{# What the first holders of a site's hour carry of its remainder (model_hourly), up to so many GPU-seconds: the last one takes the rest. #}
{% macro remainder_cost_up_to(gpu_seconds) -%}
case
    when {{ gpu_seconds }} >= site_gpu_seconds then cast(site_remainder_cost_usd as {{ money_type() }})
    else {{ money('cast(site_remainder_cost_usd as double) * ' ~ ratio(gpu_seconds, 'site_gpu_seconds')) }}
end
{%- endmacro %}
