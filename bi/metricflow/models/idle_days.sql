-- Idle energy and its cost by account.
select
    date,
    site,
    deployment,
    namespace,
    team,
    model,
    device_type,
    meter_scope,
    role,
    account,
    idle_joules,
    idle_energy_cost_usd,
    idle_capacity_cost_usd
from {{ source('marts', 'idle_power') }}
