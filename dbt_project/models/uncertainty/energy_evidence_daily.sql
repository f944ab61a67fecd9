-- On which evidence the energy of a date rests: the joules of the book by the basis of their host, idle floor, share and
-- grid factor, beside what sampling adds. Each sum can be added over any dates.
{% set keys = ['date', 'billing_month', 'site', 'model', 'device_type', 'meter_scope'] %}
{% set evidence = ['host_basis', 'idle_basis', 'attribution_confidence', 'carbon_basis', 'is_matched'] %}

with costed_energy as (

    select * from {{ ref('int_costed_energy') }}

),

energy_intervals as (

    select * from {{ ref('int_energy_intervals') }} where purpose = 'booked'

),

-- Most meters are counters, which sampling leaves exact.
sampled_intervals as (

    select
        date,
        meter_scope,
        meter,
        {{ from_epoch_us('interval_start_us') }} as interval_start_at,
        {{ exact_sum('energy_joules') }} as interval_joules,
        {{ exact_sum('sampling_joules2') }} as interval_joules2
    from energy_intervals
    group by date, meter_scope, meter, interval_start_us
    having sum(sampling_joules2) > 0 and sum(energy_joules) > 0

),

-- Steps of a gauge err independently, so a part of an interval has that part of its variance.
rows_of_energy as (

    select
        costed_energy.*,
        coalesce(
            {{ exact_large(
                'cast(sampled_intervals.interval_joules2 as double) * '
                ~ ratio('costed_energy.energy_joules', 'sampled_intervals.interval_joules')
            ) }},
            {{ exact('0') }}
        ) as sampling_joules2
    from costed_energy
    left join sampled_intervals
        on {{ equal_keys('costed_energy', 'sampled_intervals', ['date', 'meter_scope', 'meter', 'interval_start_at']) }}

),

-- By the named basis: a row without a basis is of the same group as one whose basis is 'none'.
summed as (

    select
        {{ keys | join(', ') }},
        coalesce(host_basis, 'none') as host_basis,
        coalesce(idle_basis, 'none') as idle_basis,
        attribution_confidence,
        coalesce(carbon_basis, 'none') as carbon_basis,
        is_matched,
        {{ exact_sum('energy_joules') }} as energy_joules,
        {{ exact_sum('idle_joules') }} as idle_joules,
        {{ exact_sum('productive_joules') }} as productive_joules,
        {{ exact_sum('idle_floor_joules') }} as idle_floor_joules,
        {{ exact_sum('sampling_joules2') }} as sampling_joules2,
        {{ exact_sum('error_joules') }} as error_joules,
        {{ exact_sum('share_error_joules') }} as share_error_joules,
        {{ exact_sum(exact('device_kwh * pue')) }} as accelerator_facility_kwh,
        {{ exact_sum('facility_energy_kwh') }} as facility_energy_kwh,
        {{ exact_sum(exact('device_kwh')) }} as accelerator_kwh,
        {{ exact_sum(exact("case when host_basis in ('measured', 'measured_mean') then it_kwh - device_kwh else 0 end")) }}
        as metered_host_kwh,
        {{ exact_sum('location_gco2e') }} as location_gco2e,
        {{ money_sum('charged_energy_cost_usd') }} as charged_energy_cost_usd
    from rows_of_energy
    group by
        {{ keys | join(', ') }},
        coalesce(host_basis, 'none'),
        coalesce(idle_basis, 'none'),
        attribution_confidence,
        coalesce(carbon_basis, 'none'),
        is_matched

),

final as (

    select
        date,
        billing_month,
        site,
        model,
        coalesce(device_type, {{ unknown() }}) as device_type,
        meter_scope,
        {{ evidence | join(', ') }},
        energy_joules,
        idle_joules,
        productive_joules,
        idle_floor_joules,
        -- J² of a rack have more digits than a double: the last of them may differ between engines.
        cast(sampling_joules2 as double) as sampling_joules2,
        error_joules,
        share_error_joules,
        accelerator_facility_kwh,
        facility_energy_kwh,
        cast(accelerator_kwh + metered_host_kwh as {{ exact_type() }}) as metered_kwh,
        location_gco2e,
        charged_energy_cost_usd
    from summed

)

select * from final
