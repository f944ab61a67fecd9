-- Shares of a whole are 0–1 (a millionth above is rounding). idle_static_ratio is not one: a bare board draws less than its loaded reference.
-- A warning: the row of one model shows what is wrong with it.
{{ config(severity='warn', meta={'dagster': {'ref': {'name': 'model_daily'}}}) }}

{% set ratios = ['matched_ratio', 'idle_energy_ratio', 'idle_time_ratio', 'hourly_carbon_ratio', 'energy_error_ratio'] %}

with rows_of_models as (

    {% for table in ['model_hourly', 'model_daily', 'fleet_daily'] -%}
    select
        '{{ table }}' as table_name,
        date,
        site,
        {{ "'fleet'" if table == 'fleet_daily' else 'deployment' }} as deployment,
        {{ 'coverage_ratio' if table == 'model_daily' else 'cast(null as double)' }} as coverage_ratio,
        {{ ratios | join(',\n        ') }},
        idle_static_ratio
    from {{ ref(table) }}
    where {{ in_run('date') }}
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

)

select * from rows_of_models
where coverage_ratio < 0 or coverage_ratio > 1.000001
    {%- for ratio in ratios %}
    or {{ ratio }} < 0 or {{ ratio }} > 1.000001
    {%- endfor %}
    or idle_static_ratio < 0
