-- Where DuckDB and Spark differ about holding rows back.

{# Move the rows of these dates (texts) from a mart to schema held_back, and put those that were published last in their
   place: none where nothing was published or where another method made it. What schema held_back had of the run's other
   dates goes. The rows of `opening` dates are those that were published, whatever made them. #}
{% macro hold_back_rows(mart, dates, opening) -%}
    {{ return(adapter.dispatch('hold_back_rows', 'wattledger')(mart, dates, opening)) }}
{%- endmacro %}

{% macro default__hold_back_rows(mart, dates, opening) %}
    {%- set held = 'held_back.' ~ mart -%}
    {%- set is_held = has_column(current_database(), 'held_back', mart, 'date') -%}
    {%- if dates -%}
        {%- do run_query('create schema if not exists held_back') -%}
        {%- set others = 'select * from ' ~ held ~ ' where not ' ~ in_run('date') ~ ' union all by name ' if is_held else '' -%}
        {%- do run_query(
            'create or replace table ' ~ held ~ ' as ' ~ others ~ 'select * from marts.' ~ mart ~ ' where '
                ~ of_dates(dates)
        ) -%}
        {%- do run_query('delete from marts.' ~ mart ~ ' where ' ~ of_dates(dates)) -%}
        {%- do restore_rows(
            mart,
            of_dates(dates)
                ~ " and date in (select date from last_published.marts.model_daily where method_version = '"
                ~ var('method_version') ~ "')"
        ) -%}
    {%- elif is_held -%}
        {%- do run_query('delete from ' ~ held ~ ' where ' ~ in_run('date')) -%}
    {%- endif -%}
    {%- if opening -%}
        {%- do run_query('delete from marts.' ~ mart ~ ' where ' ~ of_dates(opening)) -%}
        {%- do restore_rows(mart, of_dates(opening)) -%}
        {%- if has_column(current_database(), 'marts', mart, 'is_opening_balance') -%}
            {%- do run_query('update marts.' ~ mart ~ ' set is_opening_balance = true where ' ~ of_dates(opening)) -%}
        {%- endif -%}
    {%- endif -%}
{% endmacro %}

{# A failing date is in a folder that this run alone writes; the folders of the last commit are never written again. Its
   own rows go to the lake's folder held_back, because no schema outlives the session. #}
{% macro spark__hold_back_rows(mart, dates, opening) %}
    {%- for date in dates -%}
        {%- set partition = "partition (date = date '" ~ date ~ "')" -%}
        {%- set folder = env_var('WATTLEDGER_SPARK_HELD_BACK') ~ '/' ~ mart ~ '/date=' ~ date -%}
        {%- do run_query(
            "insert overwrite directory '" ~ folder ~ "' using parquet select * from marts." ~ mart
                ~ " where date = date '" ~ date ~ "'"
        ) -%}
        {%- set known = run_query("show tables in last_committed like '" ~ mart ~ "'") | length > 0 -%}
        {%- set old = adapter.get_columns_in_relation(
            api.Relation.create(schema='last_committed', identifier=mart)
        ) | map(attribute='name') | list if known else [] -%}
        {%- set listed = [] -%}
        {%- set columns = adapter.get_columns_in_relation(
            api.Relation.create(schema='marts', identifier=mart)
        ) -%}
        {%- for column in columns if column.name != 'date' and '#' not in column.name -%}
            {%- do listed.append(
                '`' ~ column.name ~ '`' if column.name in old else 'cast(null as ' ~ column.dtype ~ ') as `'
                    ~ column.name ~ '`'
            ) -%}
        {%- endfor -%}
        {%- set same_method = run_query(
            "select count(*) from last_committed.model_daily where date = date '" ~ date
                ~ "' and method_version = '" ~ var('method_version') ~ "'"
        )[0][0] > 0 if known else false -%}
        {%- if same_method -%}
            {%- do run_query(
                'insert overwrite table marts.' ~ mart ~ ' ' ~ partition ~ ' select ' ~ listed | unique | join(', ')
                ~ ' from last_committed.' ~ mart ~ " where date = date '" ~ date ~ "'"
            ) -%}
        {%- else -%}
            {%- do run_query('alter table marts.' ~ mart ~ ' drop if exists ' ~ partition) -%}
        {%- endif -%}
    {%- endfor -%}
{% endmacro %}

{# Drop what the dated marts have of dates that no run has asked for. DuckDB never inserts it (materializations.sql). #}
{% macro drop_unasked_dates() %}{{ return(adapter.dispatch('drop_unasked_dates', 'wattledger')()) }}{% endmacro %}
{% macro default__drop_unasked_dates() %}{% endmacro %}
{% macro spark__drop_unasked_dates() %}
    {%- for mart in dated_marts() + [this.identifier] if var('unasked_dates') -%}
        {%- for date in var('unasked_dates').split(', ') -%}
            {%- do run_query('alter table marts.' ~ mart ~ ' drop if exists partition (date = ' ~ date ~ ')') -%}
        {%- endfor -%}
    {%- endfor -%}
{% endmacro %}

{# Whether earlier runs have put rows there, which this run's dates may have to leave. #}
{% macro has_held_rows() %}{{ return(adapter.dispatch('has_held_rows', 'wattledger')()) }}{% endmacro %}
{% macro default__has_held_rows() %}
    {{ return(
        run_query(
            "select count(*) from duckdb_tables() where schema_name = 'held_back' and database_name = current_database()"
        )[0][0] > 0
    ) }}
{% endmacro %}
{% macro spark__has_held_rows() %}{{ return(false) }}{% endmacro %}

{# The same with a whole table. #}
{% macro hold_back_table(mart) %}{{ return(adapter.dispatch('hold_back_table', 'wattledger')(mart)) }}{% endmacro %}

{% macro default__hold_back_table(mart) %}
    {%- do run_query('create schema if not exists held_back') -%}
    {%- do run_query('create or replace table held_back.' ~ mart ~ ' as select * from marts.' ~ mart) -%}
    {%- do run_query('delete from marts.' ~ mart) -%}
    {%- do run_query(forget_inputs(mart)) -%}
    {%- do restore_rows(mart, 'true') -%}
{% endmacro %}

{# Which folders are committed is decided after the build (pipelines/spark/driver.py). #}
{% macro spark__hold_back_table(mart) %}{% endmacro %}

{# The run's dates (texts) that are to be kept as published where the sources have less of them: `run --adopt` names
   them. #}
{% macro opening_dates() %}{{ return(adapter.dispatch('opening_dates', 'wattledger')()) }}{% endmacro %}

{% macro default__opening_dates() %}
    {%- if not attach_last_publication()
        or not has_column(current_database(), 'raw', 'opening_balance', 'date') -%}
        {{ return([]) }}
    {%- endif -%}
    {%- set found = run_query(
        "with published as (select date, sum(covered_seconds) as seconds from last_published.marts.fleet_daily group by date),"
        " booked as (select date, sum(covered_seconds) as seconds from marts.fleet_daily group by date)"
        " select distinct cast(opening.date as varchar) from raw.opening_balance as opening"
        " join published using (date) left join booked using (date)"
        " where " ~ in_run('opening.date') ~ " and (booked.date is null or coalesce(booked.seconds, 0) < 0.999 * published.seconds)"
    ) -%}
    {{ return(found.columns[0].values() | sort) }}
{% endmacro %}

{# If the lake is lost, Spark's marts are lost as well. #}
{% macro spark__opening_dates() %}{{ return([]) }}{% endmacro %}

{# Insert what the last publication has of these rows, by the columns that both know. #}
{% macro restore_rows(mart, chosen) %}
    {%- if attach_last_publication() and has_column('last_published', 'marts', mart) -%}
        {%- set columns = run_query(
            "select column_name from duckdb_columns() where database_name = 'last_published' and schema_name = 'marts' and table_name = '"
                ~ mart
                ~ "'"
            " and column_name in (select column_name from duckdb_columns() where schema_name = 'marts' and table_name = '" ~ mart ~ "'"
            " and database_name = current_database()) order by column_index"
        ).columns[0].values() -%}
        {%- set listed = '"' ~ columns | join('", "') ~ '"' -%}
        {%- do run_query(
            'insert into marts.' ~ mart ~ ' (' ~ listed ~ ') select ' ~ listed ~ ' from last_published.marts.'
                ~ mart ~ ' where ' ~ chosen
        ) -%}
    {%- endif -%}
{% endmacro %}

{# Whether there is a publication; it is attached as last_published then. #}
{% macro attach_last_publication() %}
    {%- set file = env_var('WATTLEDGER_LAST_PUBLICATION', '') -%}
    {%- if file -%}
        {%- do run_query(
            "attach if not exists '" ~ file | replace("'", "''") ~ "' as last_published (read_only)"
        ) -%}
    {%- endif -%}
    {{ return(file != '') }}
{% endmacro %}

{% macro current_database() %}{{ return(run_query('select current_database()')[0][0]) }}{% endmacro %}

{% macro has_column(database, schema, table, column=none) %}
    {{ return(run_query(
        "select count(*) from duckdb_columns() where database_name = '" ~ database ~ "' and schema_name = '"
            ~ schema ~ "' and table_name = '" ~ table ~ "'"
        ~ (" and column_name = '" ~ column ~ "'" if column else '')
    )[0][0] > 0) }}
{% endmacro %}
