-- Dollars of a row of int_costed_energy before they are rounded, each once. The ledger rounds a row to a millionth; a window of minutes is
-- priced from the unrounded.

{% macro row_energy_cost_usd() %}it_kwh * pue * usd_per_kwh{% endmacro %}
{% macro row_capacity_cost_usd() %}cast(gpu_seconds as double) / 3600 * usd_per_gpu_hour{% endmacro %}
{# A rate that holds the electricity already is not charged with it again. #}
{% macro row_charged_energy_cost_usd() %}case when rate_includes_energy then 0 else {{ row_energy_cost_usd() }} end{% endmacro %}
