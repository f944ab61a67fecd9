-- The dates that this run books, and how a mart replaces exactly them.

{# Nothing that dbt settles while parsing depends on a date: a parsed project serves every run. #}
{% macro start_date() %}{{ var('start_date') }}{% endmacro %}
{% macro end_date() %}{{ var('end_date') }}{% endmacro %}

{% macro run_start_at() %}cast('{{ start_date() }} 00:00:00+00:00' as {{ timestamp_type() }}){% endmacro %}
{% macro run_end_at() %}cast('{{ end_date() }} 00:00:00+00:00' as {{ timestamp_type() }}){% endmacro %}
{% macro run_start_us() %}{{ epoch_us(run_start_at()) }}{% endmacro %}
{% macro run_end_us() %}{{ epoch_us(run_end_at()) }}{% endmacro %}
{% macro in_run(date_column) -%}
    ({{ date_column }} >= date '{{ start_date() }}' and {{ date_column }} < date '{{ end_date() }}')
{%- endmacro %}

{# Months with a booked day; a site's month may begin up to 14 h before the UTC date does, or end 12 h after. #}
{% macro in_run_months(month_column) %}
    ({{ month_column }} >= date_trunc('month', date '{{ start_date() }}' - interval 1 day)
     and {{ month_column }} <= date_trunc('month', date '{{ end_date() }}'))
{% endmacro %}

{# The months of the dates whose lookback has one of the run's dates as well: what they were computed from has changed.
   #}
{% macro in_run_months_of_lookback(month_column) %}
    ({{ month_column }} >= date_trunc('month', date '{{ start_date() }}' - interval 1 day)
     and {{ month_column }} <= date_trunc('month', date '{{ end_date() }}' + interval {{ var('curve_lookback_days') }} day))
{% endmacro %}

{% macro day_us() %}86400000000{% endmacro %}
{% macro hour_us() %}3600000000{% endmacro %}
{% macro grid_us() %}{{ var('grid_seconds') | int * 1000000 }}{% endmacro %}
{% macro date_of_us(us) %}cast({{ from_epoch_us(us) }} as date){% endmacro %}

{# Of a day that is still running the book ends where its last closed interval does (pipelines/today); 0: of a whole day
   every interval is closed. #}
{% macro is_closed(interval_start_us) -%}
    {%- if var('closed_until_us') | int -%}
    {{ interval_start_us }} + {{ grid_us() }} <= {{ var('closed_until_us') }}
    {%- else -%}
    true
    {%- endif -%}
{%- endmacro %}

{# Windows that touch the run's dates. #}
{% macro overlaps_run(start_at, end_at) %}({{ start_at }} < {{ run_end_at() }} and {{ end_at }} > {{ run_start_at() }}){% endmacro %}

{# The rows of a mart that a run replaces, by the mart's `replaces`. #}
{% macro owned_by_run(replaces) %}
    {%- if replaces == 'months' %}{{ in_run_months('month') }}
    {%- elif replaces == 'billing_months' %}{{ in_run_months('billing_month') }}
    {%- elif replaces == 'billing_months_of_lookback' %}{{ in_run_months_of_lookback('billing_month') }}
    {%- elif replaces == 'windows' %}{{ overlaps_run('start_at', 'end_at') }}
    {%- elif replaces == 'all' %}true
    {%- else %}{{ in_run('date') }}
    {%- endif -%}
{% endmacro %}
