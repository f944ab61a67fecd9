-- The book: every metered joule once, with its claimant, state and accounts.
with attributed as (

    select * from {{ ref('int_attributed_energy') }}

),

host_energy as (

    select * from {{ ref('int_host_energy') }}

),

matched_intervals as (

    select * from {{ ref('int_matched_intervals') }}

),

baselines as (

    select * from {{ ref('int_idle_baselines') }}

),

device_types as (

    select * from {{ ref('device_types') }}

),

floored as (

    select
        attributed.*,
        case
            when attributed.state <> 'active' then null
            when baselines.baseline_watts is not null then 'parked_p10'
            when device_types.idle_watts_loaded is not null then 'device_type_reference'
            else 'none'
        end as idle_basis,
        coalesce(
            baselines.baseline_watts,
            device_types.idle_watts_loaded,
            0
        ) * cast(attributed.covered_seconds as double) as baseline_joules
    from attributed
    left join baselines
        on attributed.date = baselines.date
        and attributed.meter_scope = baselines.meter_scope
        and coalesce(attributed.device_type, {{ unknown() }}) = baselines.device_type
        and attributed.model = baselines.model
    left join device_types on attributed.device_type = device_types.device_type

),

accounts as (

    select
        *,
        case when state = 'active' then least({{ exact('baseline_joules') }}, energy_joules) else {{ exact('0') }} end as idle_floor_joules,
        case when state = 'parked' then energy_joules else {{ exact('0') }} end as parked_joules,
        case when state = 'asleep' then energy_joules else {{ exact('0') }} end as asleep_joules,
        case when state = 'unallocated' then energy_joules else {{ exact('0') }} end as unallocated_joules,
        case when state = 'unknown' then energy_joules else {{ exact('0') }} end as unknown_joules,
        state = 'active' and {{ exact('baseline_joules') }} > energy_joules as is_idle_clamped
    from floored

),

member_counts as (

    select
        *,
        count(*) over (partition by date, meter_scope, meter, interval_number) as rows_of_interval,
        row_number() over (
            partition by date, meter_scope, meter, interval_number order by coalesce(slice_start_us, 0), engine, deployment
        ) as row_of_interval,
        cast(sum(covered_seconds) over (partition by date, meter_scope, meter, interval_number) as double) as meter_covered_seconds,
        cast(sum(covered_seconds) over (
            partition by date, meter_scope, meter, interval_number
            order by coalesce(slice_start_us, 0), engine, deployment
            rows unbounded preceding
        ) as double) as covered_to_seconds
    from accounts

),

final as (

    select
        member_counts.date,
        {{ from_epoch_us('member_counts.interval_start_us') }} as interval_start_at,
        cast({{ var('grid_seconds') }} as integer) as interval_seconds,
        {{ from_epoch_us('greatest(coalesce(member_counts.slice_start_us, 0), member_counts.interval_start_us)') }} as claim_start_at,
        cast(member_counts.covered_seconds as {{ exact_type() }}) as covered_seconds,
        cast(member_counts.active_seconds as {{ exact_type() }}) as active_seconds,
        cast(member_counts.covered_seconds * member_counts.gpu_count as {{ exact_type() }}) as gpu_seconds,
        member_counts.site,
        member_counts.rack,
        member_counts.node,
        member_counts.meter,
        member_counts.meter_scope,
        member_counts.device_uuid,
        member_counts.device_type,
        member_counts.engine,
        member_counts.deployment,
        member_counts.namespace,
        member_counts.team,
        member_counts.model,
        member_counts.role,
        member_counts.state,
        member_counts.attribution_method,
        member_counts.energy_source,
        member_counts.idle_basis,
        host_energy.host_basis,
        member_counts.has_token_telemetry,
        matched_intervals.engine is not null as is_matched,
        member_counts.has_reset,
        member_counts.has_glitch,
        member_counts.has_gap,
        member_counts.is_idle_clamped,
        cast(member_counts.energy_joules as {{ exact_type() }}) as energy_joules,
        cast(
            member_counts.energy_joules - idle_floor_joules - parked_joules - asleep_joules - unallocated_joules - unknown_joules
            as {{ exact_type() }}
        ) as productive_joules,
        cast(member_counts.idle_floor_joules as {{ exact_type() }}) as idle_floor_joules,
        cast(member_counts.parked_joules as {{ exact_type() }}) as parked_joules,
        cast(member_counts.asleep_joules as {{ exact_type() }}) as asleep_joules,
        cast(member_counts.unallocated_joules as {{ exact_type() }}) as unallocated_joules,
        cast(
            idle_floor_joules + parked_joules + asleep_joules + unallocated_joules as {{ exact_type() }}
        ) as idle_joules,
        cast(member_counts.unknown_joules as {{ exact_type() }}) as unknown_joules,
        cast(case
            when rows_of_interval = 1 then host_energy.host_overhead_joules
            else {{ exact('cast(host_energy.host_overhead_joules as double) * (covered_to_seconds / meter_covered_seconds)') }}
                - {{ exact('cast(host_energy.host_overhead_joules as double) * ((covered_to_seconds - cast(covered_seconds as double)) / meter_covered_seconds)') }}
        end as {{ exact_type() }}) as host_overhead_joules
    from member_counts
    left join matched_intervals
        on member_counts.date = matched_intervals.date
        and member_counts.engine = matched_intervals.engine
        and member_counts.interval_number = matched_intervals.interval_number
    left join host_energy
        on member_counts.date = host_energy.date
        and member_counts.meter_scope = host_energy.meter_scope
        and member_counts.meter = host_energy.meter
        and member_counts.interval_number = host_energy.interval_number

)

select * from final
