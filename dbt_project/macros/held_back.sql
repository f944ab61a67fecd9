-- What must hold for every date and every table. A date or table for which it does not hold is held back: its rows go
-- to schema held_back, and the rows that were published last take their place. So no sum over dates includes a wrong
-- date.

{# Marts whose rows belong to one date each, which a run replaces by date. A test compares this list with the marts' own
   `replaces`. #}
{% macro dated_marts() %}
    {{ return([
        'capacity_sources_hourly', 'cost_drivers_hourly', 'doubts_daily', 'energy_contracts_daily',
        'energy_evidence_daily', 'energy_ledger', 'failed_work_hourly', 'fleet_daily', 'goodput_hourly', 'idle_power',
        'mig_instances_daily', 'model_daily', 'model_hourly', 'model_intervals', 'model_list_prices',
        'phase_sums_daily', 'power_limits_daily', 'pressure_hourly', 'rack_usage_daily', 'reconciliation_daily',
        'sci_daily', 'scrape_copies_daily', 'series_daily', 'site_carbon_hourly', 'site_footprint_daily',
        'site_power_hourly', 'site_scope2_hourly', 'tenant_usage_daily', 'token_ledger', 'token_reconciliation_daily',
        'unmetered_devices', 'unplaced_meters', 'unreadable_values'
    ]) }}
{% endmacro %}

{# Marts that a run makes from several dates: months, windows, and all that is read from the lookback or has no dates.
   #}
{% macro undated_marts() %}
    {{ return([
        'accelerator_prices', 'benchmark_efficiency', 'configuration_history', 'cost_anomalies_daily',
        'cost_change_daily', 'cost_daily', 'cost_reconciliation_daily',
        'cost_reconciliation_monthly', 'deployment_usage', 'doubts', 'efficiency_curve',
        'efficiency_curve_daily', 'figure_intervals', 'focus_cost_and_usage', 'free_boards', 'list_price_comparison', 'load_test_phases',
        'model_footprints', 'model_monthly', 'partial_load_cost', 'phase_energy',
        'phase_fit', 'phase_pools_hourly', 'platform_comparison', 'platform_crossover', 'platform_partial_load', 'platform_results',
        'rack_economics_daily', 'recoverable_energy', 'run_windows', 'scenario_results', 'slo_capacity', 'tenant_daily',
        'token_class_cost_daily', 'token_prices'
    ]) }}
{% endmacro %}

{# The columns of a broken row by name and value, as one text: `meter GPU-1, interval_start_at …`. #}
{% macro row_key(columns) %}
    {%- for column in columns -%}
    '{{ column.split('.') | last }} '
        || coalesce(cast({{ column }} as {{ dbt.type_string() }}), 'NULL'){{ " || ', ' || " if not loop.last }}
    {%- endfor -%}
{% endmacro %}

{# Rows of these marts that break the grain in the mart's own YAML entry: `grain` names its columns, `never_null` those
   that must not be NULL. #}
{% macro rows_off_their_grain(marts) %}
    {%- for mart in marts %}
    {%- set node = graph.nodes['model.wattledger.' ~ mart] if execute else none %}
    {%- set grain = node.config.meta.grain if node else ['date'] %}
    {%- set known = node.config.meta.get('never_null', grain) if node else ['date'] %}
    {%- set replaces = node.config.get('replaces', 'dates') if node else 'dates' %}
    select
        {{ 'date' if replaces == 'dates' else 'cast(null as date)' }} as date,
        '{{ mart }}' as table_name,
        {{ row_key(grain) }} as row_key,
        cast(count(*) as double) as found,
        'rows' as unit,
        '1, with {{ known | join(", ") | replace("'", "''") }} known' as expected
    from {{ ref(mart) }}
    where {{ owned_by_run(replaces) }}
    group by {{ ((['date'] if replaces == 'dates' else []) + grain) | unique | join(', ') }}
    having count(*) > 1
        {%- for column in known %}
        or {{ column }} is null
        {%- endfor %}
    {{ 'union all' if not loop.last }}
    {%- endfor %}
{% endmacro %}

{# The rows that break one of several invariants. Those of one date, invariant and table are counted, and numbered in
   the order of their keys. `invariants` has the name of a model in models/balance/invariants -> what a person should
   do. #}
{% macro broken_rows(invariants) %}
    select
        *,
        cast(count(*) over (partition by date, invariant, table_name) as bigint) as broken_rows,
        cast(row_number() over (partition by date, invariant, table_name order by row_key, found) as integer) as row_number
    from (
        {%- for name, remedy in invariants.items() %}
        select
            date,
            '{{ name }}' as invariant,
            table_name,
            row_key,
            found,
            unit,
            expected,
            '{{ remedy | replace("'", "''") }}' as remedy
        from {{ ref(name) }}
        {{ 'union all' if not loop.last }}
        {%- endfor %}
    ) as gathered
{% endmacro %}

{# Runs after held_back_dates is made: in the dated marts, replaces the rows of its dates by those that were published
   last. The dates of an opening balance, of which the sources have less than was published, also get their published
   rows. They are not held back, because no source will have better ones. #}
{% macro hold_back_dates() %}
    {%- if execute -%}
    {{ drop_unasked_dates() }}
    {%- set opening = opening_dates() -%}
    {%- if opening -%}
        {%- for made in [this, ref('int_failed_entities')] -%}
            {%- do run_query('delete from ' ~ made ~ ' where ' ~ of_dates(opening)) -%}
        {%- endfor -%}
    {%- endif -%}
    {%- set found = run_query('select distinct cast(date as ' ~ dbt.type_string() ~ ') from ' ~ this ~ ' where ' ~ in_run('date')) -%}
    {%- set dates = found.columns[0].values() | sort -%}
    {%- if dates or opening or has_held_rows() -%}
        {%- for mart in dated_marts() -%}{{ hold_back_rows(mart, dates, opening) }}{%- endfor -%}
    {%- endif -%}
    {%- endif -%}
{% endmacro %}

{% macro of_dates(dates) %}date in (date '{{ dates | join("', date '") }}'){% endmacro %}

{# Runs after held_back_tables is made: replaces the tables in it, and all tables computed from these, by what was
   published last, and adds the computed ones to held_back_tables. #}
{% macro hold_back_tables() %}
    {%- if execute -%}
    {%- set broken = run_query('select distinct table_name from ' ~ this).columns[0].values() | list -%}
    {%- for mart in undated_marts() -%}
        {%- if mart in broken -%}{{ hold_back_table(mart) }}
        {%- elif stands_on(mart, broken) -%}
            {{ hold_back_table(mart) }}
            {%- do run_query(
                'insert into ' ~ this ~ " select 'is_computed_from_another', '" ~ mart ~ "', 1, '"
                    ~ broken | join(', ') ~ "', cast(null as double), 'rows',"
                ~ " 'a table that holds', 'See the rows of that table.', cast(1 as bigint)"
            ) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- endif -%}
{% endmacro %}

{# Whether a mart is computed from one of these marts, directly or through other models. #}
{% macro stands_on(mart, others) %}
    {%- set waiting, seen = ['model.wattledger.' ~ mart], [] -%}
    {%- for _ in range(500) -%}
        {%- set node = graph.nodes.get(waiting.pop()) if waiting else none -%}
        {%- for parent in (node.depends_on.nodes if node else []) if parent not in seen -%}
            {%- do seen.append(parent) -%}{%- do waiting.append(parent) -%}
        {%- endfor -%}
    {%- endfor -%}
    {%- set found = [] -%}
    {%- for other in others if 'model.wattledger.' ~ other in seen -%}{%- do found.append(other) -%}{%- endfor -%}
    {{ return(found | length > 0) }}
{% endmacro %}
