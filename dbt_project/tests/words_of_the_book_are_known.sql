-- One test checks all words, because a test for each column would cost a tenth of a second of dbt's own time.
{{ config(
    severity='warn',
    meta={
        'description':
            'Every word in a column that readers filter by is in the list of its mart\'s yml: a new word is a new '
            ~ 'meaning. The row with the word is still booked.',
        'dagster': {'ref': {'name': 'energy_ledger'}},
        'remedy': 'report this word; the row is booked all the same'
    }
) }}

{# dbt has to know the tables before it knows their columns. A test compares this list with the marts' yml files
   (tests/ledger/test_words.py). #}
{% set tables = [
    ref('energy_ledger'),
    ref('token_ledger'),
    ref('model_hourly'),
    ref('model_daily'),
    ref('model_monthly'),
    ref('fleet_daily'),
    ref('idle_power'),
    ref('reconciliation_daily'),
    ref('token_reconciliation_daily'),
    ref('series_daily'),
    ref('doubts'), ref('doubts_daily'),
    ref('run_windows'),
    ref('load_test_phases'),
    ref('model_intervals'),
    ref('efficiency_curve'), ref('efficiency_curve_daily'), ref('recoverable_energy'), ref('goodput_hourly'), ref('slo_capacity'),
    ref('partial_load_cost'),
    ref('deployment_usage'),
    ref('free_boards'),
    ref('pressure_hourly'), ref('failed_work_hourly'),
    ref('power_limits_daily'),
    ref('phase_fit'),
    ref('phase_energy'),
    ref('phase_pools_hourly'),
    ref('scrape_copies_daily'),
    ref('unmetered_devices'),
    ref('unplaced_meters'),
    ref('unreadable_values'),
    ref('model_footprints'),
    ref('benchmark_efficiency'),
    ref('capacity_sources_hourly'),
    ref('cost_drivers_hourly'), ref('cost_daily'), ref('token_class_cost_daily'), ref('tenant_usage_daily'), ref('tenant_daily'),
    ref('energy_contracts_daily'), ref('site_scope2_hourly'), ref('sci_daily'), ref('site_footprint_daily'),
    ref('focus_cost_and_usage'),
    ref('energy_evidence_daily'), ref('figure_intervals'),
    ref('cost_change_daily'),
    ref('cost_anomalies_daily'),
    ref('list_price_comparison'), ref('token_prices'),
    ref('phase_sums_daily'),
    ref('platform_results'), ref('scenario_results'), ref('accelerator_prices'), ref('platform_comparison'), ref('platform_crossover'),
    ref('rack_usage_daily'), ref('rack_economics_daily'), ref('configuration_history'), ref('platform_partial_load')
] %}

with strange_words as (

    {% for table in tables -%}
    {{ strange_words(table) }}
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

)

select
    table_name,
    column_name,
    word,
    expected,
    count(*) as found_rows,
    min(found_in) as first_found_in
from strange_words
group by table_name, column_name, word, expected
