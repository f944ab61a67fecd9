-- What the tables of platforms share: stated assumptions, the ownerships that a GPU-hour is priced by, and who is
-- compared with whom.

{# Who owns the accelerators that a price per GPU-hour is for. #}
{% macro ownerships() %}{{ return(['hyperscaler', 'neocloud', 'rental']) }}{% endmacro %}

{# The loads that a platform's cost is computed at, as shares of capacity: above 0, where a token has no cost, up to 1.
   #}
{% macro platform_loads() %}{{ return([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]) }}{% endmacro %}

{# The value of an assumption, as a scalar subquery on a CTE `assumptions`. #}
{% macro assumed(assumption) %}(select max(value) from assumptions where assumption = '{{ assumption }}'){% endmacro %}

{# A name as words between blanks: ` nvidia h200 sxm 141gb `. #}
{% macro as_words(name) %}' ' || translate(lower({{ name }}), '-_/,.()', '       ') || ' '{% endmacro %}

{# What results are compared within: the same work. #}
{% macro work_keys() %}{{ return(['model', 'precision', 'compared_input_length_tokens', 'compared_output_length_tokens']) }}{% endmacro %}

{# The configuration of a result, beside its lengths: what stays the same while software changes. #}
{% macro configuration_keys() %}
    {{- return([
        'benchmark', 'accelerator', 'framework', 'model', 'precision', 'scenario', 'speculation', 'is_disaggregated',
        'configuration', 'gpus', 'concurrency'
    ]) -}}
{% endmacro %}

{# Which results may be the best of a platform: one row per selection, for a CTE. `within_slo` holds at a target. #}
{% macro selections(with_slo) %}
    select 'all' as selection
    union all
    select 'without_speculation' as selection
    union all
    select 'ttft_within_limit' as selection
    {%- if with_slo %}
    union all
    select 'within_slo' as selection
    {%- endif %}
{% endmacro %}

{# Whether a result is in a selection, whatever the target: what is not stated is in none of the limited ones. #}
{% macro is_selected(results, selections) %}
    case {{ selections }}.selection
        when 'all' then true
        when 'without_speculation' then coalesce(lower({{ results }}.speculation) = 'none', false)
        else coalesce({{ results }}.ttft_p99_seconds <= {{ assumed('ttft_p99_limit_seconds') }}, false)
    end
{% endmacro %}
