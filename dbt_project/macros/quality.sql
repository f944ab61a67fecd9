-- Words that the book uses in more than one model.

{% macro unallocated() %}'__unallocated__'{% endmacro %}
{% macro unknown() %}'__unknown__'{% endmacro %}

{# A name as a source uses it. Names that begin with two underscores are the book's own (above), so a source's are written in double quotes:
   a model served as `__base__` is `"__base__"`. What the fleet file says of a name is looked up before. #}
{% macro name_of_source(name) %}case when substr({{ name }}, 1, 2) = '__' then '"' || {{ name }} || '"' else {{ name }} end{% endmacro %}

{# A board cannot draw more than this; what implies more is a glitch of the counter, not energy. #}
{% macro possible_power_factor() %}1.5{% endmacro %}
{# A limit that is stated too low: on a date on which a board draws more nearly all the time, this much more is believed. What crosses a midnight
   is always judged so: neither date must know what the other one believes. #}
{% macro doubted_limit_factor() %}2{% endmacro %}
{% macro believed_watts(possible_watts, is_doubted, start_us, end_us) -%}
    {{ possible_watts }} * case
        when {{ is_doubted }} or {{ int_div(start_us, day_us()) }} <> {{ int_div(end_us, day_us()) }} then {{ doubted_limit_factor() }}
        else 1
    end
{%- endmacro %}
{# Watts above which a meter of a scope is not believed where no limit is known: a sentinel, or milliwatts read as watts. Far above what
   existed in 2026: a board of 2 kW, a socket of 0.5, a node of 15 (140 where a whole rack is one host), a rack of 140, a site of 1 GW. #}
{% macro ceiling_watts(scope) %}case {{ scope }} when 'board' then 3e4 when 'module' then 5e3 when 'node' then 1e6 when 'rack' then 3e6 else 3e9 end{% endmacro %}
{# A gauge says nothing about a silence longer than this many of its own intervals. #}
{% macro gauge_gap_factor() %}3{% endmacro %}

{# Host (CPU, DRAM) over accelerator energy where nothing is measured or stated: 0.06 Wh over 0.14 Wh, arXiv 2508.15734 (2025). #}
{% macro host_energy_ratio() %}0.43{% endmacro %}

{# Whether a name is the one that the fleet file states, or begins with it. #}
{% macro fits(name, pattern, is_prefix) %}
    case when {{ is_prefix }} then substring({{ name }}, 1, length({{ pattern }})) = {{ pattern }} else {{ name }} = {{ pattern }} end
{% endmacro %}

{# `moonshotai/Kimi-K2.5` and `together_ai/moonshotai/kimi-k2.5` are one model: prefixes say who serves it. #}
{% macro name_behind_prefixes(name) %}lower(regexp_extract({{ name }}, '([^/]+)$', 1)){% endmacro %}

{# `0`, `card0`, `nvidia1`: the number of a board in its host, of which every host has one. #}
{% macro is_bare_index(value) %}regexp_extract({{ value }}, '^(card|nvidia|gpu|accel)?[0-9]{1,3}$', 0) <> ''{% endmacro %}
{# What exporters write where a board has no serial number or UUID. #}
{% macro is_no_identity(value) %}lower({{ value }}) in ('n/a', '[n/a]', '[not supported]', 'unknown', 'none', 'null'){% endmacro %}
