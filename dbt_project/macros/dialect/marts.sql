-- Where DuckDB and Spark differ about how a mart is stored.

{# Spark replaces no rows of a Parquet table: a mart is cut into folders, by what a run owns, and a run writes new folders in a place of
   its own (pipelines/spark/driver.py commits them all at once). Windows may begin before the run and are few: one folder. So is
   what every run makes anew. #}
{% macro spark__partition_cols(label, required=false) %}
    {%- if model.schema == 'marts' and config.get('replaces', 'dates') not in ('windows', 'all') -%}
        {{ label }} ({{ 'month' if config.get('replaces') == 'months' else 'date' }})
    {%- endif -%}
{% endmacro %}

{% macro spark__location_clause() %}
    {%- set folder = env_var('WATTLEDGER_SPARK_MARTS', '') -%}
    {%- if model.schema == 'marts' and folder %}
    location '{{ folder }}/{{ model.alias }}'
    {%- endif -%}
{% endmacro %}
