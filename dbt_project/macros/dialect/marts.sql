-- Where DuckDB and Spark differ about how a mart is stored.

{# Spark cannot replace rows of a Parquet table. So a mart is divided into folders, one for each thing that a run owns,
   and a run writes new folders into a directory of its own (pipelines/spark/driver.py commits them all at once).
   Windows may begin before the run and are few: one folder. Marts that every run computes whole have one folder, too.
   #}
{% macro spark__partition_cols(label, required=false) %}
    {%- if model.schema == 'marts' and config.get('replaces', 'dates') not in ('windows', 'all') -%}
        {{ label }} (
            {{ {'months': 'month', 'billing_months': 'billing_month', 'billing_months_of_lookback': 'billing_month'}.get(
                config.get('replaces'),
                'date'
            ) }}
        )
    {%- endif -%}
{% endmacro %}

{% macro spark__location_clause() %}
    {%- set folder = env_var('WATTLEDGER_SPARK_MARTS', '') -%}
    {%- if model.schema == 'marts' and folder %}
    location '{{ folder }}/{{ model.alias }}'
    {%- endif -%}
{% endmacro %}
