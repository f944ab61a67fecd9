-- The dates that this run books, and how a mart replaces exactly them.

{# From the environment (DBT_ENV_CUSTOM_ENV_START_DATE, …_END_DATE) where the pipeline runs dbt, else the vars: a change of vars makes dbt
   parse the whole project again, every day; of these it takes no note. Nothing that is settled while parsing depends on a date. #}
{% macro start_date() %}{{ dbt_metadata_envs.get('START_DATE', var('start_date')) }}{% endmacro %}
{% macro end_date() %}{{ dbt_metadata_envs.get('END_DATE', var('end_date')) }}{% endmacro %}

{% macro run_start_at() %}cast('{{ start_date() }} 00:00:00+00:00' as {{ timestamp_type() }}){% endmacro %}
{% macro run_end_at() %}cast('{{ end_date() }} 00:00:00+00:00' as {{ timestamp_type() }}){% endmacro %}
{% macro run_start_us() %}{{ epoch_us(run_start_at()) }}{% endmacro %}
{% macro run_end_us() %}{{ epoch_us(run_end_at()) }}{% endmacro %}
{% macro in_run(date_column) %}({{ date_column }} >= date '{{ start_date() }}' and {{ date_column }} < date '{{ end_date() }}'){% endmacro %}

{# Months with a booked day; a site's month may begin up to 14 h before the UTC date does, or end 12 h after. #}
{% macro in_run_months(month_column) %}
    ({{ month_column }} >= date_trunc('month', date '{{ start_date() }}' - interval 1 day)
     and {{ month_column }} <= date_trunc('month', date '{{ end_date() }}'))
{% endmacro %}

{% macro day_us() %}86400000000{% endmacro %}
{% macro hour_us() %}3600000000{% endmacro %}
{% macro grid_us() %}{{ var('grid_seconds') | int * 1000000 }}{% endmacro %}
{% macro date_of_us(us) %}cast({{ from_epoch_us(us) }} as date){% endmacro %}

{# Windows that touch the run's dates. #}
{% macro overlaps_run(start_at, end_at) %}({{ start_at }} < {{ run_end_at() }} and {{ end_at }} > {{ run_start_at() }}){% endmacro %}

{# The rows of a mart that a run replaces, by the mart's `replaces`. #}
{% macro owned_by_run(replaces) %}
    {%- if replaces == 'months' %}{{ in_run_months('month') }}
    {%- elif replaces == 'windows' %}{{ overlaps_run('start_at', 'end_at') }}
    {%- elif replaces == 'all' %}true
    {%- else %}{{ in_run('date') }}
    {%- endif -%}
{% endmacro %}

{# Incremental strategy: one transaction deletes the run's rows from the mart and inserts the newly computed ones. A day without rows any more
   so has none in the mart either (delete+insert by key would keep the old ones). `replaces` names what a run owns: its dates, months or windows,
   or the whole mart, where the mart is a function of all booked dates. #}
{% macro get_incremental_replace_dates_sql(arg_dict) %}
    {%- set replaces = config.get('replaces', 'dates') -%}
    {%- set columns = get_quoted_csv(arg_dict['dest_columns'] | map(attribute='name')) -%}
    delete from {{ arg_dict['target_relation'] }} where {{ owned_by_run(replaces) }};
    insert into {{ arg_dict['target_relation'] }} ({{ columns }})
    select {{ columns }} from {{ arg_dict['temp_relation'] }}
{% endmacro %}
