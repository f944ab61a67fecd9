-- Where DuckDB and Spark differ about time. One macro per difference, with its reason; everything else is common SQL.

{# Integer microseconds: the grid is integer arithmetic, so both engines cut time at the same instant. #}
{% macro epoch_us(at) %}{{ return(adapter.dispatch('epoch_us', 'wattledger')(at)) }}{% endmacro %}
{% macro default__epoch_us(at) %}epoch_us({{ at }}){% endmacro %}
{% macro spark__epoch_us(at) %}unix_micros({{ at }}){% endmacro %}

{% macro from_epoch_us(us) %}{{ return(adapter.dispatch('from_epoch_us', 'wattledger')(us)) }}{% endmacro %}
{% macro default__from_epoch_us(us) %}make_timestamptz({{ us }}){% endmacro %}
{% macro spark__from_epoch_us(us) %}timestamp_micros({{ us }}){% endmacro %}

{# `/` on integers gives a double on both; the integer quotient has two spellings. #}
{% macro int_div(a, b) %}{{ return(adapter.dispatch('int_div', 'wattledger')(a, b)) }}{% endmacro %}
{% macro default__int_div(a, b) %}(({{ a }}) // ({{ b }})){% endmacro %}
{% macro spark__int_div(a, b) %}(({{ a }}) div ({{ b }})){% endmacro %}

{# A UTC instant's hour and date on the wall clock of a time zone. #}
{% macro local_hour(at, time_zone) %}{{ return(adapter.dispatch('local_hour', 'wattledger')(at, time_zone)) }}{% endmacro %}
{% macro default__local_hour(at, time_zone) %}cast(extract(hour from {{ at }} at time zone {{ time_zone }}) as integer){% endmacro %}
{% macro spark__local_hour(at, time_zone) %}hour(from_utc_timestamp({{ at }}, {{ time_zone }})){% endmacro %}

{% macro local_date(at, time_zone) %}{{ return(adapter.dispatch('local_date', 'wattledger')(at, time_zone)) }}{% endmacro %}
{% macro default__local_date(at, time_zone) %}cast({{ at }} at time zone {{ time_zone }} as date){% endmacro %}
{% macro spark__local_date(at, time_zone) %}to_date(from_utc_timestamp({{ at }}, {{ time_zone }})){% endmacro %}

{# The UTC date of a moment on the wall clock of a time zone. #}
{% macro utc_date_of_local(local_at, time_zone) -%}
    {{ return(adapter.dispatch('utc_date_of_local', 'wattledger')(local_at, time_zone)) }}
{%- endmacro %}
{% macro default__utc_date_of_local(local_at, time_zone) -%}
    cast(cast({{ local_at }} as timestamp) at time zone {{ time_zone }} as date)
{%- endmacro %}
{% macro spark__utc_date_of_local(local_at, time_zone) -%}
    to_date(to_utc_timestamp(cast({{ local_at }} as timestamp), {{ time_zone }}))
{%- endmacro %}

{# Contracts: Spark's TIMESTAMP is an instant, DuckDB's instant is TIMESTAMPTZ. #}
{% macro timestamp_type() %}{{ return('timestamp' if target.type == 'spark' else 'timestamptz') }}{% endmacro %}

{# The UTC microseconds of a site's local time. #}
{% macro utc_us_of_local(local_at, time_zone) -%}
    {{ return(adapter.dispatch('utc_us_of_local', 'wattledger')(local_at, time_zone)) }}
{%- endmacro %}
{% macro default__utc_us_of_local(local_at, time_zone) -%}
    epoch_us(cast({{ local_at }} as timestamp) at time zone {{ time_zone }})
{%- endmacro %}
{% macro spark__utc_us_of_local(local_at, time_zone) -%}
    unix_micros(to_utc_timestamp(cast({{ local_at }} as timestamp), {{ time_zone }}))
{%- endmacro %}
