-- How productive joules are divided into prefill and decode, and when a regression is rejected: used by phase_fit,
-- phase_energy and phase_pools_hourly. What a token of each class costs of another: used by the models of
-- tenants, receipts and token classes.

{# The price of a computed input token over that of an output token: the median of input over output list price
   of the 3,030 chat models that state both in litellm 1.109.1 (half of them between 0.2 and 0.43). A
   market price, not a measurement. #}
{% macro input_token_weight() %}0.25{% endmacro %}
{# An input token that a cache gave costs a tenth of a computed one on most price lists. #}
{% macro cached_input_token_weight() %}0.025{% endmacro %}
{# Tokens of all classes as output tokens. What is NULL counts nothing. #}
{% macro weighted_tokens(computed_input, cached_input, output) -%}
    {{ exact(
        'cast(coalesce(' ~ output ~ ', 0) as double) + cast(coalesce(' ~ computed_input ~ ', 0) as double) * ' ~ input_token_weight() ~ 'e0'
        ~ ' + cast(coalesce(' ~ cached_input ~ ', 0) as double) * ' ~ cached_input_token_weight() ~ 'e0'
    ) }}
{%- endmacro %}

{# At least a day of intervals with tokens, on a week of dates: in less time the mix of input and output hardly changes.
   #}
{% macro least_fit_seconds() %}86400{% endmacro %}
{% macro least_fit_days() %}7{% endmacro %}
{# Cosine between input and output per interval. Beyond, 1 / (1 − r²) > 50: the errors of both coefficients are seven
   times what they would be if the two did not move together. #}
{% macro most_collinear() %}0.99{% endmacro %}
{# Root mean square of what an interval is missed by, over the mean interval. Beyond, it is not the tokens that move the
   watts. #}
{% macro most_fit_error() %}0.25{% endmacro %}

{# Utilisation above which a pool cannot take the next quarter of an hour's load: the upper end of what is usually
   planned for (0.70–0.85). #}
{% macro full_pool_ratio() %}0.85{% endmacro %}

{# Least squares of e = a x + b y through the origin with a, b ≥ 0, from sums of products: where one of them would be
   negative it is 0, and the other is fitted alone. (With two regressors that is the optimum: the gradient at 0 then
   points away from the forbidden side.) #}
{% macro input_coefficient(sums) %}
    case
        when {{ sums }}ye * {{ sums }}xx < {{ sums }}xe * {{ sums }}xy then {{ sums }}xe / {{ sums }}xx
        else greatest({{ sums }}xe * {{ sums }}yy - {{ sums }}ye * {{ sums }}xy, 0)
            / nullif({{ sums }}xx * {{ sums }}yy - {{ sums }}xy * {{ sums }}xy, 0)
    end
{% endmacro %}
{% macro output_coefficient(sums) %}
    case
        when {{ sums }}xe * {{ sums }}yy < {{ sums }}ye * {{ sums }}xy then {{ sums }}ye / {{ sums }}yy
        else greatest({{ sums }}ye * {{ sums }}xx - {{ sums }}xe * {{ sums }}xy, 0)
            / nullif({{ sums }}xx * {{ sums }}yy - {{ sums }}xy * {{ sums }}xy, 0)
    end
{% endmacro %}

{# The point of an interval in the fit, in thousands of tokens and of joules, so that the sums of their products fit
   into an exact number. Only intervals in which tokens moved and the computed input is known. #}
{% macro fit_point() %}
    case when matched_computed_input_tokens + matched_output_tokens > 0 then cast(matched_computed_input_tokens as double) / 1e3 end as x,
    case when matched_computed_input_tokens + matched_output_tokens > 0 then cast(matched_output_tokens as double) / 1e3 end as y,
    cast(matched_productive_joules as double) / 1e3 as e
{% endmacro %}
{% macro fit_sums() %}
    count(x) as fit_intervals,
    {% for product in ['x * x', 'x * y', 'y * y', 'x * e', 'y * e'] -%}
    {{ exact_sum(exact(product)) }} as {{ product | replace(' * ', '') }},
    {% endfor -%}
    {{ exact_sum(exact('case when x is not null then e * e end')) }} as ee,
    {{ exact_sum(exact('case when x is not null then e end')) }} as e
{% endmacro %}

{# What they are called in phase_sums_daily: thousands of computed input tokens (x), of output tokens (y), kilojoules
   (e). #}
{% macro fit_columns() %}
    {{ return({
        'xx': 'input_input_sum', 'xy': 'input_output_sum', 'yy': 'output_output_sum', 'xe': 'input_energy_sum', 'ye': 'output_energy_sum',
        'ee': 'energy_energy_sum', 'e': 'energy_sum'
    }) }}
{% endmacro %}

{# What the fit misses an interval by: the sum of squares follows from the sums of products. #}
{% macro fit_error_ratio() %}
    case when input_joules is not null then
        sqrt(greatest(ee - input_joules * xe - output_joules * ye, 0) / intervals) / nullif(e / intervals, 0)
    end
{% endmacro %}
{% macro fit_reason() %}
    case
        when intervals = 0 then 'no_tokens_told'
        when intervals * {{ var('grid_seconds') }} < {{ least_fit_seconds() }} then 'too_few_intervals'
        when days < {{ least_fit_days() }} then 'too_few_days'
        when coalesce(collinearity_ratio, 1) > {{ most_collinear() }} then 'tokens_move_together'
        when coalesce(error_ratio, 1) > {{ most_fit_error() }} then 'error_too_large'
        else 'ok'
    end
{% endmacro %}

{# Student's t at 97.5 % from the normal quantile (Abramowitz & Stegun 26.7.5, three terms): 2.4456 at 6 degrees of
   freedom; tables give 2.4469. #}
{% macro student_t_975(degrees) %}
    (1.959964e0 + 2.372271e0 / ({{ degrees }}) + 2.822502e0 / power({{ degrees }}, 2) + 2.555850e0 / power({{ degrees }}, 3))
{% endmacro %}
