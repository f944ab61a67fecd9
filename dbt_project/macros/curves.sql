-- What an efficiency curve is of, and from how much history: used by every model that computes what a load costs or how
-- much fits.

{% macro curve_keys() %}{{ return(['site', 'deployment', 'model', 'device_type', 'meter_scope', 'role']) }}{% endmacro %}

{# The load of a prefill engine is its prompts; everybody else's is what it generates. #}
{% macro curve_tokens_basis() %}case when role = 'prefill' then 'total' else 'output' end{% endmacro %}
{% macro curve_tokens() %}case when role = 'prefill' then matched_total_tokens else matched_output_tokens end{% endmacro %}

{# All tokens that moved, as far as they are reported; an interval without tokens is parked. A prefill engine generates
   none and is not idle. #}
{% macro moved_tokens() %}
    case
        when role = 'prefill' then coalesce(matched_total_tokens, matched_computed_input_tokens)
        else coalesce(matched_total_tokens, matched_output_tokens + matched_computed_input_tokens, matched_output_tokens)
    end
{% endmacro %}

{# The lookback ends with the newest booked date. So a day's cost does not grow with history, and the order of booking
   makes no difference. #}
{% macro in_lookback(date_column, as_of_date) %}
    ({{ date_column }} > {{ as_of_date }} - interval {{ var('curve_lookback_days') }} day and {{ date_column }} <= {{ as_of_date }})
{% endmacro %}

{# Number of a load's half octave. Rounded: the logarithms of DuckDB and Spark differ in the last digit, and a load may
   be exactly on an edge. #}
{% macro load_bin(tokens_per_second) %}cast(floor(round(2 * log2({{ tokens_per_second }}), 9)) as integer){% endmacro %}

{# Advice: the rows of a mart that are of a deployment of `deployments` and of a date of its lookback. A date that is
   held back is evidence of nothing. #}
{% macro of_deployments(rows, held_back_dates) -%}
inner join deployments on {{ equal_keys(rows, 'deployments', curve_keys()) }}
    where {{ rows }}.date between deployments.lookback_start_date and deployments.as_of_date
        and {{ rows }}.date not in (select date from {{ held_back_dates }})
{%- endmacro %}

{# What a price is with full accelerators: the variable part stays with each token, all other cost is paid by time, so more
   tokens share it. #}
{% macro at_full_load(price, variable, utilisation_ratio) -%}
{{ variable }} + ({{ price }} - {{ variable }}) * {{ utilisation_ratio }}
{%- endmacro %}
