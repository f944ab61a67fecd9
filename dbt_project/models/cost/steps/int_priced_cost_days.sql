-- Each part of the cost per date, model and price, as its row owns it, uses it and carries it of what is not held: one
-- row per UTC date, billing month, model_hourly's keys, is_held and the prices that hold. Whole billing months that the
-- run touched: a demand charge follows the highest load of its month.
-- depends_on: {{ ref('held_back_dates') }}
{% set keys = ['date', 'billing_month'] + model_keys() + ['is_held'] %}

with drivers as (

    select * from {{ ref('cost_drivers_hourly') }} where {{ in_run_months('billing_month') }}

),

fees as (

    select * from {{ ref('int_site_fees') }}

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

charges as (

    select * from {{ source('fleet', 'site_charges') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

weighed as (

    select
        drivers.*,
        fees.usd_per_tonne,
        fees.demand_usd,
        fees.hosting_usd,
        fees.operations_usd,
        fees.usd_per_kw_month,
        fees.hosting_usd_per_kw_month,
        fees.operations_usd_per_month,
        {{ ratio('drivers.claimed_gpu_seconds', 'fees.site_claimed_gpu_seconds') }} as gpu_share,
        {{ ratio(
            exact('cast(drivers.claimed_gpu_seconds as double) * device_types.power_limit_watts'),
            'fees.site_limit_joules'
        ) }} as watts_share,
        {{ ratio('drivers.facility_energy_kwh', 'fees.site_facility_energy_kwh') }} as kwh_share,
        {{ ratio('drivers.active_gpu_seconds', 'drivers.claimed_gpu_seconds') }} as active_share,
        case
            when drivers.claimed_gpu_seconds = 0 then 0 else {{ ratio('drivers.idle_gpu_seconds', 'drivers.claimed_gpu_seconds') }}
        end as idle_share,
        case
            when drivers.facility_energy_kwh = 0 then 0 else {{ ratio('drivers.idle_facility_kwh', 'drivers.facility_energy_kwh') }}
        end as idle_energy_share,
        sites.cooling_share_of_overhead as cooling_share,
        licences.usd as licence_usd_per_gpu_hour,
        case
            when drivers.is_held and drivers.is_priced and drivers.claimed_gpu_seconds > 0
                then drivers.claimed_gpu_seconds
        end as own_gpu_seconds
    from drivers
    left join fees
        on drivers.site = fees.site and drivers.hour_start_at = fees.hour_start_at and drivers.local_date = fees.local_date
    left join sites on drivers.site = sites.site
    left join device_types on drivers.device_type = device_types.device_type
    left join charges as licences
        on drivers.site = licences.site
        and licences.part = 'licences'
        and coalesce(licences.device_type, drivers.device_type) = drivers.device_type
        and drivers.local_date >= licences.valid_from
        and (licences.valid_to is null or drivers.local_date < licences.valid_to)

),

cooled as (

    select
        *,
        coalesce(measured_cooling_cost_usd, {{ money('cast(overhead_cost_usd as double) * cooling_share') }}) as cooling_cost_usd,
        coalesce(
            measured_variable_cooling_cost_usd,
            {{ money('cast(variable_overhead_cost_usd as double) * cooling_share') }}
        ) as variable_cooling_cost_usd,
        coalesce(
            measured_idle_cooling_cost_usd,
            {{ money('cast(idle_overhead_cost_usd as double) * cooling_share') }}
        ) as idle_cooling_cost_usd,
        case
            when abs(measured_cooling_cost_usd) > abs(overhead_cost_usd) then 'measured_over_pue'
            when measured_cooling_cost_usd is not null then 'measured'
            when overhead_cost_usd * cooling_share is not null then 'stated'
        end as cooling_basis
    from weighed

),

-- What a rate holds already costs nothing beside it; what it would cost is kept apart.
owned as (

    select
        {{ keys | join(',\n        ') }},
        hour_start_at,
        local_date,
        own_gpu_seconds,
        claimed_gpu_seconds,
        facility_energy_kwh,
        energy_cost_usd,
        location_gco2e,
        rate_includes,
        rate_source,
        cooling_basis,
        {%- for price in focus_prices() %}
        {{ price }},
        {%- endfor %}
        {%- for part in cost_parts() %}
        {{ beside_the_rate(part, part.usd) }} as {{ part.name }}_usd,
        {{ idle_of(part) }} as {{ part.name }}_idle_usd,
        case
            when rate_includes like '% {{ part.name }} %' then {{ money('cast(' ~ part.usd ~ ' as double)') }}
        end as {{ part.name }}_memo_usd,
        {%- if part.by == 'energy' %}
        {{ beside_the_rate(part, part.variable) }} as {{ part.name }}_variable_usd,
        {%- elif part.by == 'time' %}
        {% if part.active -%}
        {{ beside_the_rate(part, part.active) }} as {{ part.name }}_usage_usd,
        {%- else -%}
        {{ beside_the_rate({'name': part.name}, part.usd ~ ' * active_share') }} as {{ part.name }}_usage_usd,
        {%- endif %}
        {%- endif %}
        {{ part_is_missing(part) }} as {{ part.name }}_missing,
        {%- endfor %}
        sum(own_gpu_seconds) over site_window as site_gpu_seconds,
        sum(own_gpu_seconds) over running_window as gpu_seconds_to
    from cooled
    window
        site_window as (partition by site, hour_start_at, local_date),
        running_window as (
            partition by site, hour_start_at, local_date
            order by deployment, namespace nulls last, team nulls last, model, device_type, meter_scope, role
            rows unbounded preceding
        )

),

-- What is not held. An unused commitment is not there to be held, and who holds what is unmetered is unknown.
unheld as (

    select
        *,
        {%- for part in cost_parts() %}
        sum(case when not is_held and deployment not in ({{ beside_the_models() }}) then {{ part.name }}_usd end)
            over (partition by site, hour_start_at, local_date) as {{ part.name }}_unheld_usd,
        sum(case when not is_held and deployment not in ({{ beside_the_models() }}) then {{ part.name }}_idle_usd end)
            over (partition by site, hour_start_at, local_date) as {{ part.name }}_unheld_idle_usd{{ ',' if not loop.last }}
        {%- endfor %}
    from owned

),

carried as (

    select
        *,
        {%- for part in cost_parts() %}
        {%- set is_last_part = loop.last %}
        {%- for amount in ['', 'idle_'] %}
        {%- set unheld = part.name ~ '_unheld_' ~ amount ~ 'usd' %}
        case
            when own_gpu_seconds > 0 and {{ unheld }} is not null
                then {{ carried_up_to(unheld, 'gpu_seconds_to') }}
                    - {{ carried_up_to(unheld, '(gpu_seconds_to - own_gpu_seconds)') }}
        end as {{ part.name }}_carried_{{ amount }}usd{{ ',' if not (is_last_part and loop.last) }}
        {%- endfor %}
        {%- endfor %}
    from unheld

),

final as (

    select
        {{ keys | join(',\n        ') }},
        rate_includes,
        {%- for price in focus_prices() %}
        {{ to_a_billionth(price) }} as {{ price }},
        {%- endfor %}
        max(rate_source) as rate_source,
        case
            when min(cooling_basis) = max(cooling_basis) then min(cooling_basis)
            when min(cooling_basis) is not null then 'mixed'
        end as cooling_basis,
        {{ exact_sum('claimed_gpu_seconds') }} as claimed_gpu_seconds,
        {{ exact_sum('facility_energy_kwh') }} as facility_energy_kwh,
        {{ money_sum('energy_cost_usd') }} as energy_cost_usd,
        {{ exact_sum('location_gco2e') }} as location_gco2e,
        {%- for part in cost_parts() %}
        {{ part_sums(part) }},
        max({{ part.name }}_missing) = 0 as {{ part.name }}_is_complete{{ ',' if not loop.last }}
        {%- endfor %}
    from carried
    group by {{ keys | join(', ') }}, rate_includes{% for price in focus_prices() %}, {{ to_a_billionth(price) }}{% endfor %}

)

select * from final
