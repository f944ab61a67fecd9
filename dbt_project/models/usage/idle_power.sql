-- Whose idle joules: per day, holder and account (floor under active time, parked, asleep, unallocated), with their CO2
-- and money.
with costed_energy as (

    select * from {{ ref('int_costed_energy') }}

),

by_account as (

    {% for account in ['idle_floor', 'parked', 'asleep', 'unallocated'] -%}
    select
        date,
        {% for key in model_keys() -%}
        {{ "coalesce(device_type, " ~ unknown() ~ ") as device_type" if key == 'device_type' else key }},
        {% endfor -%}
        '{{ account }}' as account,
        {{ account }}_joules as idle_joules,
        {{ ratio(account ~ '_joules', 'energy_joules') }} as account_ratio,
        {% if account == 'idle_floor' -%}
        {{ exact('0') }} as idle_gpu_seconds,
        {%- else -%}
        gpu_seconds as idle_gpu_seconds,
        {%- endif %}
        covered_seconds,
        facility_energy_kwh,
        location_gco2e,
        energy_cost_usd,
        idle_capacity_cost_usd
    from costed_energy
    where {{ "state = 'active'" if account == 'idle_floor' else account ~ '_joules > 0' }}
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

),

weighed as (

    select
        *,
        {{ exact('cast(facility_energy_kwh as double) * account_ratio') }} as idle_facility_kwh,
        {{ exact('cast(location_gco2e as double) * account_ratio') }} as idle_location_gco2e,
        {{ money('cast(energy_cost_usd as double) * account_ratio') }} as idle_energy_cost_usd
    from by_account

),

summed as (

    select
        date,
        {{ model_keys() | join(', ') }},
        account,
        {{ exact_sum('idle_joules') }} as idle_joules,
        {{ exact_sum('idle_gpu_seconds') }} as idle_gpu_seconds,
        {{ exact_sum('covered_seconds') }} as covered_seconds,
        {{ exact_sum('idle_facility_kwh') }} as idle_facility_kwh,
        {{ exact_sum('idle_location_gco2e') }} as idle_location_gco2e,
        {{ money_sum('idle_energy_cost_usd') }} as idle_energy_cost_usd,
        {{ money_sum('idle_capacity_cost_usd') }} as idle_capacity_cost_usd
    from weighed
    group by date, {{ model_keys() | join(', ') }}, account

),

final as (

    select
        date,
        {{ model_keys() | join(', ') }},
        account,
        idle_joules,
        idle_gpu_seconds,
        idle_facility_kwh,
        idle_location_gco2e,
        idle_energy_cost_usd,
        idle_capacity_cost_usd,
        {{ ratio('idle_joules', 'covered_seconds') }} as idle_watts
    from summed

)

select * from final
