-- What a token weighs, in output tokens of the engine that moved it, and engines against each other where they share a
-- board: used by int_token_weights, int_attributed_energy, int_receipt_prices and
-- tenant_usage_daily.

{# GPU time and joules of a computed input token over those of an output token, by how many requests an engine has at
   once. Time: DeepSeek-R1 of InferenceX (11 June 2026), solved from the shapes 1k/1k, 8k/1k and 1k/8k of one
   configuration: median 0.007 at 1, 0.03 at 16, 0.09 at 64, 0.26 at 256, 0.45 at 512; a dense model of 8 billion
   parameters on one H200 (docs/measured.md): 0.017 at 1, 0.09 at 16, 0.25 at 64, 0.41 at 128. The curve runs between
   them: the H200 is within 2.4 times of it, and of 55 configurations 45 within four times (of six of the others noise is
   more than the difference). Prefill draws more watts: on the H200 1.3 times those of decoding. #}
{% macro input_time_weight(concurrency) %}(0.009e0 * power({{ concurrency }}, 0.63e0)){% endmacro %}
{% macro input_energy_weight(concurrency) %}(0.012e0 * power({{ concurrency }}, 0.63e0)){% endmacro %}
{# Where the requests are not counted, there may be one or 512; between them 16. #}
{% macro concurrency_at(end, concurrency) -%}
    coalesce({{ concurrency }}, {{ {'low': '1e0', 'middle': '16e0', 'high': '512e0'}[end] }})
{%- endmacro %}
{# At an end of its range. Rounded: powers of DuckDB and Spark differ in the last digit. #}
{% macro input_energy_weight_at(end, concurrency) -%}
    {%- set factor = {'low': '/ 4', 'middle': '* 1', 'high': '* 4'}[end] -%}
    round({{ input_energy_weight(concurrency_at(end, concurrency)) }} {{ factor }}, 6)
{%- endmacro %}
{# A cached input token is read again, not computed. #}
{% macro cached_of_computed() %}0.1e0{% endmacro %}

{# Joules of an output token, up to a factor of the device: √(parameters × active parameters ÷ requests at once). By how
   much one engine's may be off against another's at 95 %: pairs of 838 measured configurations of 34 models, each pair on
   one GPU type and task (ML.ENERGY, leaderboard v3). What is not known of all that share a slice is left out for all. #}
{% macro token_scale(model_size, concurrency) %}
    (coalesce({{ model_size }}, 1e0) / sqrt(coalesce({{ concurrency }}, 1e0)))
{% endmacro %}
{% macro token_scale_error(is_one_engine, is_one_model, are_sizes_known, are_concurrencies_known) %}
    case
        when {{ is_one_engine }} then 1e0
        when {{ is_one_model }} then case when {{ are_concurrencies_known }} then 2e0 else 10e0 end
        when {{ are_sizes_known }} then case when {{ are_concurrencies_known }} then 3.5e0 else 12e0 end
        when {{ are_concurrencies_known }} then 20e0
        else 40e0
    end
{% endmacro %}
{# A share by tokens is `medium` while it may be off by up to half of itself, beyond that `low`. #}
{% macro medium_share_error() %}0.5e0{% endmacro %}
