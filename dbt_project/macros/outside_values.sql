-- How a text or a number from outside becomes a value: a label, or the sample of a time. One grammar for DuckDB and
-- Spark: a regular expression before the cast, because each engine's own casts accept other texts (DuckDB reads
-- `1_000`, `0x1F`, `7.6` and `1e3` as integers). What does not fit is NULL. Add a parser for what staging reads. Keep
-- out arithmetic of the book, and the second parsing of raw (`int_label_identities`, `int_metered_…`), which has code
-- of its own so that a mistake in either shows.

{# The part of a text that the expression's group matches; NULL where it does not. The text's end is marked: Java's `$`
   also matches before a last line feed. #}
{% macro matched_part(text, expression, group=0) -%}
    nullif(regexp_extract({{ text }} || ';', '{{ expression }};$', {{ group }}), '')
{%- endmacro %}

{# nvidia_gpu_exporter writes a board's UUID without the `GPU-` that all others begin it with. #}
{% macro whole_uuid(source_kind, text) -%}
case
    when {{ source_kind }} = 'nvidia_gpu_exporter' and {{ text }} like '%-%-%-%-%' and {{ text }} not like 'GPU-%'
        then 'GPU-' || {{ text }}
    else {{ text }}
end
{%- endmacro %}

{# A rank is the digits at the end of its label, at most nine: `3`, `tp3` and `stage3` are 3. NULL without digits. #}
{% macro rank_of(text) %}cast({{ matched_part(text, '(^|[^0-9])([0-9]{1,9})', 2) }} as integer){% endmacro %}
{# Where a rank without digits is sorted: behind all that have some. #}
{% macro last_rank() %}2147483647{% endmacro %}
{% macro is_rank(text) %}({{ matched_part(text, '^[0-9]{1,9}') }} is not null){% endmacro %}

{# A number as exporters write it: `0.5`, `5`, `.5`, `1e-05`, `+2`. Not `1_000`, `0x1F`, `NaN`. #}
{% macro number_of(text) -%}
cast({{ matched_part(text, '^([+-]?([0-9]{1,15}[.]?[0-9]{0,20}|[.][0-9]{1,20})([eE][+-]?[0-9]{1,2})?)', 1) }} as double)
{%- endmacro %}

{# The upper bound of a histogram's bucket (`le`); 1e300 for the last one, `+Inf`. NULL: no number, and the bucket is
   not used. #}
{% macro bucket_bound(text) -%}
case when {{ matched_part(text, '^[+]?[iI][nN][fF]([iI][nN][iI][tT][yY])?') }} is not null then 1e300 else {{ number_of(text) }} end
{%- endmacro %}

{# The compute slices of a MIG profile: 3 of `3g.40gb` and `3g.40gb+me`; of a compute instance its own, 1 of
   `1c.3g.40gb`. NULL: no profile. #}
{% macro mig_profile_pattern() %}^(MIG )?([0-9]{1,2}c[.])?[0-9]{1,2}g[.][0-9]{1,4}gb([+-][a-z.]{1,20})*{% endmacro %}
{% macro mig_slices(text) -%}
case when {{ matched_part(text, mig_profile_pattern()) }} is not null
        then cast(nullif(regexp_extract({{ text }}, '^(MIG )?([0-9]{1,2})[cg]', 2), '') as integer)
    end
{%- endmacro %}
{# Those of the whole GPU instance, 3 of `1c.3g.40gb`, and the number of its memory, 40. #}
{% macro mig_instance_slices(text) -%}
case when {{ matched_part(text, mig_profile_pattern()) }} is not null
        then cast(nullif(regexp_extract({{ text }}, '([0-9]{1,2})g[.]', 1), '') as integer)
    end
{%- endmacro %}
{% macro mig_memory_gb(text) -%}
case when {{ matched_part(text, mig_profile_pattern()) }} is not null
        then cast(nullif(regexp_extract({{ text }}, 'g[.]([0-9]{1,4})gb', 1), '') as integer)
    end
{%- endmacro %}

{# A sample of a time (process start) in Unix seconds: milliseconds, microseconds and nanoseconds are recognised by
   their size, for each unit covers 1973 to 5138. NULL where that is before 2000 or more than a day after the sample
   (the rules of the book are tried in 1970: there, 2000 is no bound). #}
{% macro unix_unit(value) -%}
case when {{ value }} < 1e11 then 1 when {{ value }} < 1e14 then 1e3 when {{ value }} < 1e17 then 1e6 else 1e9 end
{%- endmacro %}
{% macro first_believed_second() %}946684800{% endmacro %}
{% macro moment_of(value, sampled_us) -%}
case when {{ is_moment(value ~ ' / ' ~ unix_unit(value), sampled_us) }} then {{ value }} / {{ unix_unit(value) }} end
{%- endmacro %}
{% macro is_moment(seconds, sampled_us) -%}
({{ seconds }} * 1e6 <= {{ sampled_us }} + {{ day_us() }}
        and ({{ seconds }} >= {{ first_believed_second() }} or {{ sampled_us }} < {{ first_believed_second() }} * 1e6))
{%- endmacro %}

{# Whole microseconds of a moment that `moment_of` gave. #}
{% macro moment_us(seconds) %}cast(case when {{ seconds }} < 1e11 then floor({{ seconds }} * 1e6 + 0.5) end as bigint){% endmacro %}

{# A valid sample as text, without its fraction: both engines write the same digits of a whole number. #}
{% macro whole_text(value) -%}
    cast(cast(case when {{ value }} < 1e19 then floor({{ value }}) end as decimal(38, 0)) as {{ dbt.type_string() }})
{%- endmacro %}
