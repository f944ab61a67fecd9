-- Columns with a closed set of words: what of a table is not among the words that its yml allows.

{# The columns of a table (a relation of the project) that have `words` in their yml -> the words; null among them
   allows NULL. #}
{% macro columns_with_words(table) %}
    {%- set found = {} -%}
    {%- for node in graph.nodes.values() if node.resource_type == 'model' and node.name == table.identifier -%}
        {%- for column in node.columns.values() if column.config.get('meta', {}).get('words') -%}
            {%- do found.update({column.name: column.config['meta']['words']}) -%}
        {%- endfor -%}
    {%- endfor -%}
    {{ return(found) }}
{% endmacro %}

{# The columns that identify a row, as far as the table has them: `date 2026-10-20, engine llm/big-0`. #}
{% macro row_keys(table) %}
    {%- set parts = [] -%}
    {%- for node in graph.nodes.values() if node.resource_type == 'model' and node.name == table.identifier -%}
        {%- set keys = [
            'date', 'month', 'interval_start_at', 'window_id', 'site', 'meter', 'engine', 'deployment', 'model',
            'result_id', 'scenario', 'varied_input', 'rack', 'platform', 'basis'
        ] -%}
        {%- for key in keys if key in node.columns -%}
            {%- do parts.append("'" ~ key ~ " ' || coalesce(cast(" ~ key ~ " as " ~ dbt.type_string() ~ "), '–')") -%}
        {%- endfor -%}
    {%- endfor -%}
    {{ return((parts or ["'–'"]) | join(" || ', ' || ")) }}
{% endmacro %}

{% macro is_strange(column, words) -%}
    {%- set quoted = [] -%}
    {%- for word in words if word is not none %}{% do quoted.append("'" ~ word ~ "'") %}{% endfor -%}
    ({{ column }} not in ({{ quoted | join(', ') }}){% if none not in words %} or {{ column }} is null{% endif %})
{%- endmacro %}

{# Rows of (table_name, column_name, word, expected, found_in), of what the run replaced alone. The table is read once:
   only what is strange is looked at column by column. #}
{% macro strange_words(table) %}
    {%- set columns = columns_with_words(table) if execute else {} -%}
    {%- if not columns %}
    select
        {%- for name in ['table_name', 'column_name', 'word', 'expected', 'found_in'] %}
        cast(null as {{ dbt.type_string() }}) as {{ name }}{{ ',' if not loop.last }}
        {%- endfor %}
    where false
    {%- else -%}
    {%- set tests = {} -%}
    {%- for column, words in columns.items() %}{% do tests.update({column: is_strange(column, words)}) %}{% endfor %}
    {%- set replaces = namespace(what='dates') -%}
    {%- for node in graph.nodes.values() if node.resource_type == 'model' and node.name == table.identifier -%}
        {%- set replaces.what = node.config.get('replaces', 'dates') -%}
    {%- endfor %}
    select
        '{{ table.identifier }}' as table_name,
        case column_number {% for column in columns %}when {{ loop.index }} then '{{ column }}' {% endfor %}end as column_name,
        coalesce(case column_number {% for column in columns %}when {{ loop.index }} then {{ column }} {% endfor %}end, 'NULL') as word,
        case column_number
            {%- for column, words in columns.items() %}
            when {{ loop.index }}
                then '{% for word in words %}{{ 'NULL' if word is none else word }}{{ ', ' if not loop.last }}{% endfor %}'
            {%- endfor %}
        end as expected,
        {{ row_keys(table) }} as found_in
    from (
        select * from {{ table }}
        where
            {{ owned_by_run(replaces.what) }}
            and ({{ tests.values() | join(' or ') }})
    ) as strange
    cross join (
        {%- for column in columns %}
        select {{ loop.index }} as column_number{{ ' union all' if not loop.last }}
        {%- endfor %}
    ) as numbered
    where case column_number {% for test in tests.values() %}when {{ loop.index }} then {{ test }} {% endfor %}end
    {%- endif %}
{% endmacro %}
