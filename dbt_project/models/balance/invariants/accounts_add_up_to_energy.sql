-- energy = productive + idle + unknown and idle = floor + parked + asleep + unallocated at every grain, none of them
-- negative; and in the book only an active row has two accounts. Exact: not a millionth of a joule may be missing. A
-- row without a meter has no accounts.
select
    date,
    'energy_ledger' as table_name,
    {{ row_key(['meter', 'interval_start_at', 'engine', 'state']) }} as row_key,
    cast(productive_joules + idle_joules + unknown_joules as double) as found,
    'J in accounts' as unit,
    coalesce(cast(energy_joules as {{ dbt.type_string() }}), 'energy') || ', no account negative, those of the state alone' as expected
from {{ ref('energy_ledger') }}
where {{ in_run('date') }}
    and not coalesce(
        energy_joules = productive_joules + idle_joules + unknown_joules
        and idle_joules = idle_floor_joules + parked_joules + asleep_joules + unallocated_joules
        and least(
            energy_joules,
            productive_joules,
            idle_floor_joules,
            parked_joules,
            asleep_joules,
            unallocated_joules,
            unknown_joules,
            host_overhead_joules
        ) >= 0
        and case state
            when 'active' then productive_joules + idle_floor_joules
            when 'parked' then parked_joules
            when 'asleep' then asleep_joules
            when 'unallocated' then unallocated_joules
            when 'unknown' then unknown_joules
        end = energy_joules,
        false
    )
{%- for table, keys in {
    'model_hourly': ['hour_start_at'] + model_keys(), 'model_daily': model_keys(), 'fleet_daily': ['site', 'meter_scope']
}.items() %}
union all
select
    date,
    '{{ table }}' as table_name,
    {{ row_key(keys) }} as row_key,
    cast(productive_joules + idle_joules + unknown_joules as double) as found,
    'J in accounts' as unit,
    cast(energy_joules as {{ dbt.type_string() }}) || ', no account negative' as expected
from {{ ref(table) }}
where {{ in_run('date') }}
    and energy_joules is not null
    and not coalesce(
        energy_joules = productive_joules + idle_joules + unknown_joules
        and idle_joules = idle_floor_joules + parked_joules + asleep_joules + unallocated_joules
        and least(
            energy_joules,
            productive_joules,
            idle_floor_joules,
            parked_joules,
            asleep_joules,
            unallocated_joules,
            unknown_joules,
            host_overhead_joules
        ) >= 0,
        false
    )
{%- endfor %}
