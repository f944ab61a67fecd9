-- What a receipt's own energy is priced by (docs/receipts.md, decision 0046). The price of a token is the active energy
-- of the lookback over all its tokens, weighed: an output token is 1, a computed input token its weight (by pools of its
-- own, by an accepted fit, else by the requests at once: macros of token_weights), a cached one a tenth of that;
-- `context_weight` is the part of an output token's energy that grows with the context which it reads. The receipt is
-- priced with the middle weights; its interval is what the others make of it.

{# The best of 60 simulated laws (bench/receipt_truth.py): 0 to 0.3, in most 0 to 0.1. #}
{% macro context_weights() %}{{ return(['0e0', '0.06e0', '0.15e0']) }}{% endmacro %}
{# Of an accepted fit: what the fit may miss an interval by (most_fit_error). #}
{% macro fitted_input_weights() %}
    {{ return(['(1e0 - ' ~ most_fit_error() ~ ')', '1e0', '1e0 / (1 - ' ~ most_fit_error() ~ ')']) }}
{% endmacro %}
{# What the law of the receipt itself misses a request's energy by, added to the meters' own error as independent errors
   are: with it the intervals hold the true energy of 0.98 of the receipts of those laws. #}
{% macro receipt_error_ratio() %}0.09e0{% endmacro %}
{# Of the active energy, what the accelerator draws above idle as soon as it works at all: the intercept of published
   power curves is 0.69 of their highest watts (H100, median). It divides the own energy, and is in no interval. #}
{% macro active_floor_ratio() %}0.69e0{% endmacro %}

{# Receipts cost a run nothing unless the fleet file keeps them. #}
{% macro receipts_are_kept() %}{{ 'true' if var('keeps_receipts') else 'false' }}{% endmacro %}
{# What receipts and balancing rows have to add up to, each. #}
{% macro receipt_facts() %}{{ return(['energy_joules', 'location_gco2e', 'market_gco2e', 'compute_cost_usd']) }}{% endmacro %}

{# The place of a request whose log names no engine, where several may have served it. #}
{% macro all_places() %}'__all__'{% endmacro %}

{# Rows of places, and the same rows once more as rows of all the model's places. `columns` are those beside the place. #}
{% macro each_and_all_places(of, columns) -%}
    select
        model,
        site,
        deployment,
        {{ columns | join(', ') }}
    from {{ of }}
    union all
    select
        model,
        {{ all_places() }} as site,
        {{ all_places() }} as deployment,
        {{ columns | join(', ') }}
    from {{ of }}
{%- endmacro %}

{# Tokens as output tokens. #}
{% macro priced_tokens(computed_input, cached_input, output, weight) -%}
    ({{ output }} + {{ weight }} * ({{ computed_input }} + {{ cached_of_computed() }} * {{ cached_input }}))
{%- endmacro %}
{# Own joules of a request at one set of weights: `context_ratio` is its context over the mean one. #}
{% macro own_joules(price, weight, context_weight) -%}
    {{ price }} * (
        {{ priced_tokens('computed_input', 'cached_input', 'output', weight) }} + {{ context_weight }} * output * (context_ratio - 1)
    )
{%- endmacro %}
