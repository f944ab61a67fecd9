-- What a scenario states (seed scenarios), and which of it a sensitivity may change.

{% macro scenario_classes() %}{{ return(['total', 'computed_input', 'cached_input', 'output']) }}{% endmacro %}

{# Input -> the lowest and the highest value that has a meaning; none: no limit. Another value counts as unknown, with
   the reason. #}
{% macro scenario_inputs() %}
    {%- set inputs = {
        'gpus': [0, none],
        'price_decay_ratio': [0, 1],
        'sold_utilisation_ratio': [0, 1],
        'years': [0, 100],
        'capex_usd': [0, none],
        'usd_per_gpu_hour': [0, none],
        'other_usd_per_year': [0, none],
        'stated_cost_usd_per_mtok': [0, none],
        'power_kw_per_gpu': [0, none],
        'pue': [1, none],
        'usd_per_kwh': [none, none],
        'discount_ratio': [0, none],
        'peak_tokens_per_second': [0, none],
        'target_utilisation_ratio': [0, 1],
        'gpus_per_replica': [1, none],
        'min_replicas': [0, none],
        'servers': [1, 1000],
        'offered_servers': [0, none],
        'total_tokens_per_second_per_gpu': [0, none],
        'computed_input_tokens_per_second_per_gpu': [0, none],
        'cached_input_tokens_per_second_per_gpu': [0, none],
        'output_tokens_per_second_per_gpu': [0, none],
        'usd_per_total_mtok': [0, none],
        'usd_per_computed_input_mtok': [0, none],
        'usd_per_cached_input_mtok': [0, none],
        'usd_per_output_mtok': [0, none]
    } -%}
    {{ return(inputs) }}
{% endmacro %}

{# Whether an input has a value that has no meaning. #}
{% macro is_meaningless(input, limits) -%}
    {%- set wrong = [] -%}
    {%- if limits[0] is not none -%}{%- do wrong.append(input ~ ' < ' ~ limits[0]) -%}{%- endif -%}
    {%- if limits[1] is not none -%}{%- do wrong.append(input ~ ' > ' ~ limits[1]) -%}{%- endif -%}
    coalesce({{ wrong | join(' or ') if wrong else 'false' }}, false)
{%- endmacro %}

{# Texts that apply, joined by `; `; NULL where none does. `reasons` has a condition -> the text. #}
{% macro joined_reasons(reasons) -%}
    nullif(
        substring(
            {%- for condition, text in reasons %}
            case when {{ condition }} then '; {{ text }}' else '' end{{ ' || ' if not loop.last }}
            {%- endfor %},
            3
        ),
        ''
    )
{%- endmacro %}

{# Why columns of scenario_results are NULL: condition -> the first column that is, and the reason. #}
{% macro scenario_reasons() %}
    {{ return([
        ['wrong_inputs is not null', "' || wrong_inputs || '"],
        ['is_counted_twice', 'revenue_usd: tokens are stated as total and by class'],
        ["cost_basis = 'stated_twice'", 'cost_usd: capex_usd and usd_per_gpu_hour are both stated'],
        ["throughput_basis = 'unknown'", 'revenue_usd: no tokens per second are stated'],
        ["throughput_basis in ('stated', 'solved') and price_usd_per_mtok is null", 'revenue_usd: no price of a class that is served'],
        ["throughput_basis in ('stated', 'solved') and gpus is null", 'sold_mtok: gpus is not known'],
        ["throughput_basis in ('stated', 'solved') and sold_utilisation_ratio is null", 'sold_mtok: sold_utilisation_ratio is not known'],
        ["throughput_basis in ('stated', 'solved') and held_years is null", 'sold_mtok: years is not known'],
        ['held_years > 1 and price_usd_per_mtok is not null and price_decay_ratio is null', 'revenue_usd: price_decay_ratio is not known'],
        ['reference_scenario is not null and not is_known_reference', 'cost_multiple: the reference is not in seed scenarios'],
        ["cost_basis = 'unknown'", 'cost_usd: no cost is stated'],
        ['sold_mtok = 0', 'cost_usd_per_mtok: no token is sold'],
        ['investment_usd = 0', 'revenue_multiple: the investment is 0 USD'],
        ['cost_usd = 0', 'roi_ratio: the cost is 0 USD'],
        ['revenue_usd = 0', 'gross_margin_ratio: the revenue is 0 USD'],
        [
            "cost_basis = 'stated_per_mtok' and sold_utilisation_ratio is not null",
            'break_even_sold_ratio: the cost is stated per token, so it is the same part of revenue whatever is sold'
        ],
        ["investment_basis = 'yearly_cost'", 'payback_years: nothing is paid at the start'],
        [
            "investment_basis = 'capex' and capex_usd > 0 and revenue_usd is not null and payback_years is null",
            'payback_years: not within the years'
        ],
        ['discount_ratio is null', 'npv_usd: no discount_ratio is stated'],
        ['offered_servers >= servers', 'waiting_ratio: the load keeps all servers busy, so the queue has no end'],
        [
            'peak_tokens_per_second is not null and (tokens_per_second_per_gpu = 0 or target_utilisation_ratio = 0)',
            'needed_gpus: a GPU serves nothing'
        ],
        ['facility_kw_per_gpu = 0', 'tokens_per_second_per_mw: the power is 0 kW']
    ]) }}
{% endmacro %}

{# One scenario with the same input changed. #}
{% macro same_variant(one, other) -%}
    {{ one }}.scenario = {{ other }}.scenario
        and {{ one }}.varied_input = {{ other }}.varied_input
        and {{ one }}.varied_value is not distinct from {{ other }}.varied_value
{%- endmacro %}
