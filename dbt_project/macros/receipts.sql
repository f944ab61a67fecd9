-- What a receipt's own energy is priced by (docs/receipts.md, decision 0046). The price of a token is the active energy
-- of the lookback over all its tokens, weighed: an output token is 1, a computed input token `input_weight`, a cached
-- one a tenth of that; `context_weight` is the part of an output token's energy that grows with the context which it
-- reads. The receipt is priced with the middle weights; its interval is what the others make of it.

{# Without times and without an accepted fit. 331 published runs of separate prefill and decode pools (InferenceX, 2025
   to 2026; half of those of 8,192 tokens in and 1,024 out): an input token takes 0.03 to 0.21 of the accelerator time of
   an output token, with pools of whole nodes, of which one waits. 24 simulated laws (bench/receipts.py): 0.005 to 0.15. #}
{% macro prior_input_weights() %}{{ return(['0.01e0', '0.04e0', '0.15e0']) }}{% endmacro %}
{# Where the log has times: what a request waits per computed input token over what it waits per output token. A second
   of prefill, in which one request has the accelerator to itself, takes 1 to 6 times the energy of its second of
   decoding. The bounds: beyond them the wait is a queue's. #}
{% macro timed_input_weights() %}{{ return(['1e0', '3e0', '6e0']) }}{% endmacro %}
{% macro timed_ratio(ratio) %}least(greatest({{ ratio }}, 0.003e0), 0.02e0){% endmacro %}
{% macro context_weights() %}{{ return(['0e0', '0.1e0', '0.3e0']) }}{% endmacro %}
{# Of an accepted fit: what the fit may miss an interval by (most_fit_error). #}
{% macro fitted_input_weights() %}{{ return(['(1e0 - ' ~ most_fit_error() ~ ')', '1e0', '1e0 / (1 - ' ~ most_fit_error() ~ ')']) }}{% endmacro %}
{# What the best weights miss the energy of a request by: 2 to 5 % in the median of 24 simulated laws. Added to the
   meters' own error as independent errors are. #}
{% macro receipt_error_ratio() %}0.08e0{% endmacro %}
{# Of the active energy, what the accelerator draws above idle as soon as it works at all: the intercept of published
   power curves is 0.69 of their highest watts (H100, median). It divides the own energy, and is in no interval. #}
{% macro active_floor_ratio() %}0.69e0{% endmacro %}

{# Receipts cost a run nothing unless the fleet file keeps them. #}
{% macro receipts_are_kept() %}{{ 'true' if var('keeps_receipts') else 'false' }}{% endmacro %}
{# What receipts and balancing rows have to add up to, each. #}
{% macro receipt_facts() %}{{ return(['energy_joules', 'location_gco2e', 'market_gco2e', 'compute_cost_usd']) }}{% endmacro %}

{# The place of a request whose log names no engine, where several may have served it. #}
{% macro all_places() %}'__all__'{% endmacro %}

{# Tokens as output tokens. #}
{% macro priced_tokens(computed_input, cached_input, output, weight) -%}
    ({{ output }} + {{ weight }} * ({{ computed_input }} + 0.1e0 * {{ cached_input }}))
{%- endmacro %}
{# Own joules of a request at one set of weights: `context_ratio` is its context over the mean one. #}
{% macro own_joules(price, weight, context_weight) -%}
    {{ price }} * (
        {{ priced_tokens('computed_input', 'cached_input', 'output', weight) }} + {{ context_weight }} * output * (context_ratio - 1)
    )
{%- endmacro %}
