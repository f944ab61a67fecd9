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
