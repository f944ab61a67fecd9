-- What a scenario states (seed scenarios), and which of it a sensitivity may change.

{% macro scenario_classes() %}{{ return(['total', 'computed_input', 'cached_input', 'output']) }}{% endmacro %}

{# Input -> the lowest and the highest value that has a meaning; none: no limit. Another value counts as unknown, with the reason. #}
{% macro scenario_inputs() %}
    {%- set inputs = {
        'gpus': [0, none], 'price_decay_ratio': [0, 1], 'sold_utilisation_ratio': [0, 1], 'years': [0, 100], 'capex_usd': [0, none], 'usd_per_gpu_hour': [0, none],
        'other_usd_per_year': [0, none], 'stated_cost_usd_per_mtok': [0, none], 'power_kw_per_gpu': [0, none], 'pue': [1, none], 'usd_per_kwh': [none, none],
        'discount_ratio': [0, none],
        'peak_tokens_per_second': [0, none], 'target_utilisation_ratio': [0, 1], 'gpus_per_replica': [1, none], 'min_replicas': [0, none], 'servers': [1, 1000],
        'offered_servers': [0, none],
        'total_tokens_per_second_per_gpu': [0, none], 'computed_input_tokens_per_second_per_gpu': [0, none], 'cached_input_tokens_per_second_per_gpu': [0, none],
        'output_tokens_per_second_per_gpu': [0, none],
        'usd_per_total_mtok': [0, none], 'usd_per_computed_input_mtok': [0, none], 'usd_per_cached_input_mtok': [0, none], 'usd_per_output_mtok': [0, none]
    } -%}
    {{ return(inputs) }}
{% endmacro %}

{# Whether an input has a value that has no meaning. #}
{% macro is_meaningless(input, limits) -%}
    coalesce({% if limits[0] is not none %}{{ input }} < {{ limits[0] }}{% endif %}{% if limits[0] is not none and limits[1] is not none %} or {% endif %}{% if limits[1] is not none %}{{ input }} > {{ limits[1] }}{% endif %}{% if limits[0] is none and limits[1] is none %}false{% endif %}, false)
{%- endmacro %}

{# Texts that apply, joined by `; `; NULL where none does. `reasons` has a condition -> the text. #}
{% macro joined_reasons(reasons) -%}
    nullif(substring({% for condition, text in reasons %}case when {{ condition }} then '; {{ text }}' else '' end{{ ' || ' if not loop.last }}{% endfor %}, 3), '')
{%- endmacro %}
