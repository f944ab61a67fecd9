-- How DuckDB stores a model: in as few statements as it takes. dbt-duckdb's own materializations rename, describe and
-- comment with some fifteen statements per model, which cost more than the SQL of a usual day (docs/bench.md). Spark
-- keeps those of its adapter.

{% materialization table, adapter='duckdb' %}
    {{ return(made_anew('table', 'view')) }}
{% endmaterialization %}

{% materialization view, adapter='duckdb' %}
    {{ return(made_anew('view', 'table')) }}
{% endmaterialization %}

{# A model as a table or view, in place of what has its name: of the other type too, where the project has changed it.
   #}
{% macro made_anew(type, other_type) %}
    {%- set existing = load_cached_relation(this) -%}
    {%- set target = this.incorporate(type=type) -%}
    {{ run_hooks(pre_hooks) }}
    {%- call statement('main') %}
        {%- if existing and existing.type == other_type %}
        drop {{ other_type }} {{ existing }};
        {%- endif %}
        create or replace {{ type }} {{ target }} as (
            {{ compiled_code }}
        );
        {{ comments_on(target) }}
    {%- endcall %}
    {{ run_hooks(post_hooks) }}
    {%- do adapter.commit() -%}
    {{ return({'relations': [target]}) }}
{% endmacro %}

{# One transaction drops what the mart holds for the run and inserts what the run found, so a day that lost all its rows
   loses them in the mart too (delete+insert by key would keep them). `replaces` states what a run owns: its dates,
   months or windows, or all of the mart, where that is a function of all that is booked. With `made: if_inputs_changed`
   the mart keeps its rows where these would be the same (unchanged.sql). A date that no run has asked for gets no row:
   of it only the neighbours of other dates have landed.

   The contract is proven where the table is created: in every new warehouse, and once in each process of tests
   (tests/books.py). To a table that exists `on_schema_change` applies, unless a run of Wattledger has given it today's
   columns (pipelines/booking/upgrades.py). #}
{% materialization incremental, adapter='duckdb' %}
    {%- set existing = load_cached_relation(this) -%}
    {%- set target = this.incorporate(type='table') -%}
    {%- set columns = get_quoted_csv(model.columns) -%}
    {%- set is_seldom_made = config.get('made') == 'if_inputs_changed' -%}
    {%- if is_seldom_made and existing and var('keeps_unchanged') and not should_full_refresh() -%}
        {%- set unchanged = digest_if_unchanged() -%}
        {%- if unchanged -%}
            {%- do store_result('main', response='unchanged ' ~ unchanged) -%}
            {{ return({'relations': [target]}) }}
        {%- endif -%}
    {%- endif -%}
    {%- if not existing or should_full_refresh() -%}
        {%- do get_assert_columns_equivalent(compiled_code) -%}
    {%- elif not var('has_todays_columns') -%}
        {%- set new_columns = columns_that_lack(target) -%}
    {%- endif -%}
    {{ run_hooks(pre_hooks) }}
    {%- call statement('main') %}
        {%- for column in new_columns or [] %}
        alter table {{ target }} add column {{ adapter.quote(column.name) }} {{ column.data_type }};
        {%- endfor %}
        {%- if not existing or should_full_refresh() %}
        create or replace table {{ target }} {{ get_table_columns_and_constraints() }};
        {{ comments_on(target) }}
        {%- else %}
        delete from {{ target }} where {{ owned_by_run(config.get('replaces', 'dates')) }};
        {%- endif %}
        insert into {{ target }} ({{ columns }})
        select {{ columns }} from (
            {{ compiled_code }}
        ) as found
        {%- if var('unasked_dates') and config.get('replaces', 'dates') == 'dates' %}
        where date not in ({{ var('unasked_dates') }})
        {%- endif %};
        {%- if is_seldom_made %}
        {{ remember_inputs() }}
        {%- endif %}
    {%- endcall %}
    {{ run_hooks(post_hooks) }}
    {%- do adapter.commit() -%}
    {{ return({'relations': [target]}) }}
{% endmaterialization %}

{# The model's columns that its table does not have, by the model's `on_schema_change`: to be added
   (`append_new_columns`), else an error that names them. A column of the table that the model has no more stays, and
   new rows have no value in it. #}
{% macro columns_that_lack(target) %}
    {%- set query = "select name from pragma_table_info('" ~ target.schema ~ '.' ~ target.identifier ~ "')" -%}
    {%- set held = run_query(query).columns[0].values() -%}
    {%- set new = model.columns.values() | rejectattr('name', 'in', held) | list -%}
    {%- if new and config.get('on_schema_change') != 'append_new_columns' -%}
        {%- do exceptions.raise_compiler_error(
            target.schema ~ '.' ~ target.identifier ~ ' has no column ' ~ new | map(attribute='name') | join(', ')
            ~ ': build it anew with `dbt run --full-refresh --select ' ~ model.name
            ~ " --vars '{start_date: FIRST, end_date: END}'` (it loses all other dates), or set on_schema_change to append_new_columns"
        ) -%}
    {%- endif -%}
    {{ return(new) }}
{% endmacro %}

{% materialization seed, adapter='duckdb' %}
    {%- set target = this.incorporate(type='table') -%}
    {%- do store_result('agate_table', response='OK') -%}
    {%- set types = config.get('column_types') -%}
    {%- call statement('main') %}
        create or replace table {{ target }} as
        select * from read_csv(
            '{{ adapter.get_seed_file_path(model) | replace("'", "''") }}',
            header = true,
            delim = ',',
            quote = '"',
            escape = '"',
            nullstr = '',
            types = { {%- for name in types %}'{{ name }}': '{{ types[name] }}'{{ ', ' if not loop.last }}{% endfor -%} }
        );
        {{ comments_on(target) }}
    {%- endcall %}
    {%- do adapter.commit() -%}
    {{ return({'relations': [target]}) }}
{% endmaterialization %}

{# What a reader of the database sees of a table and its columns: their descriptions. #}
{% macro comments_on(target) %}
    {%- if model.description %}
        comment on {{ target.type }} {{ target }} is {{ duckdb_escape_comment(model.description) }};
    {%- endif %}
    {%- for name in model.columns if model.columns[name].description %}
        comment on column {{ target }}.{{ adapter.quote(name) }} is {{ duckdb_escape_comment(model.columns[name].description) }};
    {%- endfor %}
{% endmacro %}
