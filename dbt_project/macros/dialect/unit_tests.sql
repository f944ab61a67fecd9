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
        {%- if this.identifier in types_without_a_table() -%}
            {%- do types.update(types_without_a_table()[this.identifier]) -%}
        {%- else -%}
            {%- for column in adapter.get_columns_in_relation(this) -%}
                {%- do types.update({column.name | lower: column.data_type}) -%}
            {%- endfor -%}
        {%- endif -%}
        {%- for name in types -%}
            {%- do nulls.update({name: 'null'}) -%}
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

{# The columns of models that Spark does not store: raw as the book reads it. #}
{% macro types_without_a_table() %}
    {{ return({
        'stg_token_samples': {'series_id': 'bigint', 'observed_at': 'timestamp', 'value': 'double'},
        'stg_raw_series': {
            'series_id': 'bigint', 'landed_series_id': 'bigint', 'source': 'string', 'source_kind': 'string', 'metric': 'string',
            'labels': 'string', 'first_seen_at': 'timestamp', 'last_seen_at': 'timestamp'
        },
        'stg_series_chunks': {
            'series_id': 'bigint', 'source': 'string', 'chunk_start_at': 'timestamp', 'chunk_end_at': 'timestamp',
            'samples': 'bigint', 'first_at': 'timestamp', 'first_value': 'double', 'last_at': 'timestamp', 'last_value': 'double',
            'falls': 'bigint', 'duplicates': 'bigint', 'out_of_order': 'bigint', 'rejects': 'bigint',
            'longest_gap_seconds': 'double', 'typical_interval_seconds': 'double', 'steepest_rise_per_second': 'double'
        }
    }) }}
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
