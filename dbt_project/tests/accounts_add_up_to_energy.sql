-- energy = productive + idle + unknown, idle = floor + parked + asleep + unallocated, none of them negative, and only an active row has two
-- accounts. Exact: not a millionth of a joule may be missing. A reader's sum of a day's accounts then holds as well.
select
    date,
    meter,
    interval_start_at,
    engine,
    state,
    energy_joules,
    productive_joules,
    idle_joules,
    unknown_joules
from {{ ref('energy_ledger') }}
where {{ in_run('date') }}
    and not coalesce(
        energy_joules = productive_joules + idle_joules + unknown_joules
        and idle_joules = idle_floor_joules + parked_joules + asleep_joules + unallocated_joules
        and least(
            energy_joules, productive_joules, idle_floor_joules, parked_joules, asleep_joules, unallocated_joules, unknown_joules, host_overhead_joules
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
