-- Where DuckDB and Spark differ about loading seeds.

{# dbt-spark's session method binds NULL as the text 'None' and does not escape quotes; literals written here do both.
   #}
{% macro spark__load_csv_rows(model, agate_table) %}
    {%- set types = model['config'].get('column_types', {}) -%}
    {%- for chunk in agate_table.rows | batch(get_batch_size()) %}
        {%- set sql %}
            insert into {{ this.render() }} values
            {%- for row in chunk %}
            (
                {%- for column_name in agate_table.column_names -%}
                    {%- set type = types.get(column_name, adapter.convert_type(agate_table, loop.index0)) -%}
                    {%- if row[column_name] is none -%}
                        cast(null as {{ type }})
                    {%- else -%}
                        cast('{{ (row[column_name] | string).replace("\\", "\\\\").replace("'", "\\'") }}' as {{ type }})
                    {%- endif -%}
                    {{ ', ' if not loop.last }}
                {%- endfor -%}
            ){{ ',' if not loop.last }}
            {%- endfor %}
        {%- endset %}
        {%- do adapter.add_query(sql, abridge_sql_log=True) %}
    {%- endfor %}
    {{ return('select 1') }}
{% endmacro %}
