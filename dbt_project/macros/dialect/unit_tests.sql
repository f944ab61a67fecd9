-- Where DuckDB and Spark differ about the rows of a unit test.

{# dbt writes a SELECT for each row, and joins them by UNION ALL. Spark's analyzer then looks for repeated columns in all
   of them (DeduplicateRelations), which was half of a unit test's time; a list of values is one relation. #}
{% macro get_fixture_sql(rows, column_name_to_data_types) %}
    {%- if target.type != 'spark' or not rows -%}
        {{ dbt.get_fixture_sql(rows, column_name_to_data_types) }}
    {%- else -%}
        {%- set types = {} -%}
        {%- set nulls = {} -%}
        {%- set cells_of_rows = [] -%}
        {%- for column in adapter.get_columns_in_relation(this) -%}
            {%- do types.update({column.name | lower: column.data_type}) -%}
            {%- do nulls.update({column.name | lower: 'null'}) -%}
        {%- endfor -%}
        {%- for row in rows -%}
            {%- set cells = nulls.copy() -%}
            {%- do cells.update(format_row(row, types)) -%}
            {%- do cells_of_rows.append(cells) -%}
        {%- endfor -%}
        {{ rows_as_values(cells_of_rows, types) }}
    {%- endif -%}
{% endmacro %}

{% macro get_expected_sql(rows, column_name_to_data_types, column_name_to_quoted) %}
    {%- if target.type != 'spark' or not rows -%}
        {{ dbt.get_expected_sql(rows, column_name_to_data_types, column_name_to_quoted) }}
    {%- else -%}
        {%- set cells_of_rows = [] -%}
        {%- for row in rows -%}
            {%- do cells_of_rows.append(format_row(row, column_name_to_data_types)) -%}
        {%- endfor -%}
        {{ rows_as_values(cells_of_rows, column_name_to_data_types) }}
    {%- endif -%}
{% endmacro %}

{% macro rows_as_values(cells_of_rows, types) %}
    {%- set names = cells_of_rows[0].keys() | list -%}
    select
        {%- for name in names %}
        cast({{ adapter.quote(name) }} as {{ types[name] }}) as {{ adapter.quote(name) }}{{ ',' if not loop.last }}
        {%- endfor %}
    from values
        {%- for cells in cells_of_rows %}
        ({{ cells.values() | join(', ') }}){{ ',' if not loop.last }}
        {%- endfor %}
        as given_rows ({% for name in names %}{{ adapter.quote(name) }}{{ ', ' if not loop.last }}{% endfor %})
{% endmacro %}
