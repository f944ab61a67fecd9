-- What the cost of an hour is computed from: energy at its tariff, capacity at its price, claimed and active time.
-- cost_daily turns them into parts.
{% set facts = [
    'claimed_gpu_seconds', 'active_gpu_seconds', 'idle_gpu_seconds', 'unrated_gpu_seconds', 'facility_energy_kwh',
    'idle_facility_kwh', 'untariffed_kwh', 'energy_cost_usd', 'overhead_cost_usd', 'variable_cost_usd',
    'variable_overhead_cost_usd', 'idle_energy_cost_usd', 'idle_overhead_cost_usd', 'location_gco2e',
    'productive_location_gco2e', 'idle_location_gco2e', 'carbon_unknown_joules', 'capacity_cost_usd',
    'active_capacity_cost_usd', 'idle_capacity_cost_usd', 'cost_of_capital_usd', 'measured_cooling_cost_usd',
    'measured_variable_cooling_cost_usd', 'measured_idle_cooling_cost_usd'
] %}
with pieces as (

    select * from {{ ref('int_cost_pieces') }}

),

prices as (

    select * from {{ ref('int_capacity_prices') }}

),

cooling_hours as (

    select * from {{ ref('int_cooling_hours') }}

),

unmetered_hours as (

    select * from {{ ref('int_unmetered_hours') }}

),

driven as (

    select
        date,
        hour_start_at,
        coalesce(local_date, date) as local_date,
        coalesce(billing_month, cast(date_trunc('month', date) as date)) as billing_month,
        {% for key in model_keys() -%}
        {{ key }},
        {% endfor -%}
        is_held,
        compute_cost_usd is not null as is_priced,
        coalesce(claimed_gpu_seconds, 0) as claimed_gpu_seconds,
        coalesce(active_gpu_seconds, 0) as active_gpu_seconds,
        coalesce(idle_gpu_seconds, 0) as idle_gpu_seconds,
        unrated_gpu_seconds,
        facility_energy_kwh,
        idle_facility_kwh,
        coalesce(untariffed_kwh, 0) as untariffed_kwh,
        energy_cost_usd,
        overhead_cost_usd,
        variable_cost_usd,
        variable_cost_usd - variable_device_cost_usd as variable_overhead_cost_usd,
        idle_energy_cost_usd,
        idle_overhead_cost_usd,
        location_gco2e,
        productive_location_gco2e,
        idle_location_gco2e,
        coalesce(carbon_unknown_joules, 0) as carbon_unknown_joules,
        capacity_cost_usd,
        case when is_metered then active_capacity_cost_usd else 0 end as active_capacity_cost_usd,
        case when is_metered then idle_capacity_cost_usd else 0 end as idle_capacity_cost_usd,
        cost_of_capital_usd,
        tariff_usd_per_kwh,
        rate_usd_per_gpu_hour,
        capital_rate_usd_per_gpu_hour,
        coalesce(rate_includes, '') as rate_includes,
        rate_source,
        -- A hall's own meter has the cooling in it already.
        case when meter_scope = 'facility' then 0 else energy_joules + host_overhead_joules end as it_joules
    from pieces

),

it_hours as (

    select
        site,
        hour_start_at,
        local_date,
        {{ exact_sum('it_joules') }} as it_joules
    from driven
    group by site, hour_start_at, local_date

),

-- The measured kWh of cooling at what the hour's IT energy costs per kWh, shared by IT kWh: the row's IT energy is what
-- its energy costs without the PUE.
cooled as (

    select
        driven.*,
        {{ ratio('cooling_hours.cooling_kwh', 'it_hours.it_joules') }} * 3.6e6 as cooling_per_it_ratio
    from driven
    left join it_hours on {{ equal_keys('driven', 'it_hours', ['site', 'hour_start_at', 'local_date']) }}
    left join cooling_hours
        on {{ equal_keys('driven', 'cooling_hours', ['site', 'hour_start_at', 'local_date']) }}
        and driven.meter_scope <> 'facility'

),

-- Paid for, and no GPU there to use it.
unused as (

    select
        date,
        hour_start_at,
        local_date,
        billing_month,
        site,
        {{ unused_commitment() }} as deployment,
        device_type,
        {{ exact('0') }} as unrated_gpu_seconds,
        unused_cost_usd as capacity_cost_usd,
        unused_cost_usd as idle_capacity_cost_usd,
        {{ money('0') }} as cost_of_capital_usd,
        cast(null as double) as tariff_usd_per_kwh,
        committed_usd_per_gpu_hour as rate_usd_per_gpu_hour,
        cast(null as double) as capital_rate_usd_per_gpu_hour,
        '' as rate_includes,
        cast(null as {{ dbt.type_string() }}) as rate_source
    from prices
    where unused_gpu_seconds > 0

),

-- There, and no meter shows them: what they draw is unknown.
unmetered as (

    select
        unmetered_hours.date,
        unmetered_hours.hour_start_at,
        unmetered_hours.local_date,
        unmetered_hours.billing_month,
        unmetered_hours.site,
        {{ unmetered() }} as deployment,
        unmetered_hours.device_type,
        case when prices.usd_per_gpu_hour is null then unmetered_hours.unmetered_gpu_seconds else 0 end as unrated_gpu_seconds,
        {{ money('cast(unmetered_hours.unmetered_gpu_seconds as double) / 3600 * prices.usd_per_gpu_hour') }} as capacity_cost_usd,
        {{ money('0') }} as idle_capacity_cost_usd,
        {{ money(
            'cast(unmetered_hours.unmetered_gpu_seconds as double) / 3600 * prices.capital_usd_per_gpu_hour'
        ) }} as cost_of_capital_usd,
        cast(null as double) as tariff_usd_per_kwh,
        prices.rate_usd_per_gpu_hour,
        prices.capital_rate_usd_per_gpu_hour,
        coalesce(prices.includes, '') as rate_includes,
        prices.source as rate_source
    from unmetered_hours
    left join prices on {{ equal_keys('unmetered_hours', 'prices', ['site', 'device_type', 'hour_start_at', 'local_date']) }}

),

beside_the_models as (

    select * from unused
    union all
    select * from unmetered

),

{% set energy_facts = [
    'facility_energy_kwh', 'idle_facility_kwh', 'energy_cost_usd', 'overhead_cost_usd', 'variable_cost_usd',
    'variable_overhead_cost_usd', 'idle_energy_cost_usd', 'idle_overhead_cost_usd', 'location_gco2e',
    'productive_location_gco2e', 'idle_location_gco2e'
] %}
all_drivers as (

    select
        {{ (['date', 'hour_start_at', 'local_date', 'billing_month'] + model_keys() + ['is_held', 'is_priced']) | join(',\n        ') }},
        {% for fact in facts if not fact.startswith('measured_') -%}
        {{ fact }},
        {% endfor -%}
        {{ money('cast(energy_cost_usd - overhead_cost_usd as double) * cooling_per_it_ratio') }} as measured_cooling_cost_usd,
        {{ money(
            'cast(variable_cost_usd - variable_overhead_cost_usd as double) * cooling_per_it_ratio'
        ) }} as measured_variable_cooling_cost_usd,
        {{ money(
            'cast(idle_energy_cost_usd - idle_overhead_cost_usd as double) * cooling_per_it_ratio'
        ) }} as measured_idle_cooling_cost_usd,
        tariff_usd_per_kwh,
        rate_usd_per_gpu_hour,
        capital_rate_usd_per_gpu_hour,
        rate_includes,
        rate_source
    from cooled
    union all
    select
        date,
        hour_start_at,
        local_date,
        billing_month,
        {% for key in model_keys() -%}
        {% if key in ('site', 'deployment', 'device_type') -%}
        {{ key }},
        {% elif key == 'model' -%}
        deployment as {{ key }},
        {% elif key == 'meter_scope' -%}
        'none' as {{ key }},
        {% elif key == 'role' -%}
        'unified' as {{ key }},
        {% else -%}
        cast(null as {{ dbt.type_string() }}) as {{ key }},
        {% endif %}
        {%- endfor -%}
        false as is_held,
        capacity_cost_usd is not null as is_priced,
        {% for fact in facts -%}
        {% if fact in ('unrated_gpu_seconds', 'capacity_cost_usd', 'idle_capacity_cost_usd', 'cost_of_capital_usd') -%}
        {{ fact }},
        {% elif fact in energy_facts -%}
        case when deployment = {{ unused_commitment() }} then 0 end as {{ fact }},
        {% elif fact.startswith('measured_') -%}
        cast(null as {{ money_type() }}) as {{ fact }},
        {% else -%}
        0 as {{ fact }},
        {% endif %}
        {%- endfor -%}
        tariff_usd_per_kwh,
        rate_usd_per_gpu_hour,
        capital_rate_usd_per_gpu_hour,
        rate_includes,
        rate_source
    from beside_the_models

),

final as (

    select
        {{ (['date', 'hour_start_at', 'local_date', 'billing_month'] + model_keys()) | join(',\n        ') }},
        is_held,
        is_priced,
        {% for fact in facts -%}
        cast({{ fact }} as {{ fact_type(fact) }}) as {{ fact }},
        {% endfor -%}
        tariff_usd_per_kwh,
        rate_usd_per_gpu_hour,
        capital_rate_usd_per_gpu_hour,
        rate_includes,
        rate_source
    from all_drivers

)

select * from final
