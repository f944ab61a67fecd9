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

floored as (

    select
        attributed.*,
        baselines.idle_basis,
        coalesce(baselines.baseline_watts, 0) * cast(attributed.covered_seconds as double) as baseline_joules
    from attributed
    left join baselines
        on attributed.state = 'active'
        and {{ equal_keys('attributed', 'baselines', ['date', 'meter_scope', 'meter', 'model']) }}
        and coalesce(attributed.node, '') = coalesce(baselines.node, '')

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

final as (

    select
        accounts.date,
        {{ from_epoch_us('accounts.interval_start_us') }} as interval_start_at,
        cast({{ var('grid_seconds') }} as integer) as interval_seconds,
        {{ from_epoch_us('greatest(coalesce(accounts.slice_start_us, 0), accounts.interval_start_us)') }} as claim_start_at,
        cast(accounts.covered_seconds as {{ exact_type() }}) as covered_seconds,
        cast(accounts.active_seconds as {{ exact_type() }}) as active_seconds,
        -- Rounded apart, the parts of a share may exceed it by a millionth.
        cast(
            case
                when accounts.state = 'unknown' then accounts.covered_seconds
                else least(accounts.silent_seconds, accounts.covered_seconds - accounts.active_seconds)
            end as {{ exact_type() }}
        ) as unknown_seconds,
        cast(accounts.covered_seconds * accounts.gpu_count as {{ exact_type() }}) as gpu_seconds,
        accounts.site,
        accounts.rack,
        accounts.node,
        accounts.meter,
        accounts.meter_scope,
        accounts.device_uuid,
        accounts.device_type,
        accounts.engine,
        accounts.deployment,
        accounts.namespace,
        accounts.team,
        accounts.model,
        accounts.role,
        accounts.state,
        accounts.unknown_reason,
        accounts.held_by,
        accounts.attribution_method,
        accounts.attribution_confidence,
        accounts.energy_source,
        accounts.idle_basis,
        host_energy.host_basis,
        accounts.has_token_telemetry,
        coalesce(matched_intervals.is_matched and accounts.state <> 'unknown', false) as is_matched,
        case when accounts.state <> 'unknown' then matched_intervals.unmatched_reason end as unmatched_reason,
        accounts.has_reset,
        accounts.has_glitch,
        accounts.has_gap,
        accounts.is_idle_clamped,
        coalesce(host_energy.is_host_refuted, false) as is_host_refuted,
        cast(accounts.energy_joules as {{ exact_type() }}) as energy_joules,
        cast(
            accounts.energy_joules - idle_floor_joules - parked_joules - asleep_joules - unallocated_joules - unknown_joules
            as {{ exact_type() }}
        ) as productive_joules,
        cast(accounts.idle_floor_joules as {{ exact_type() }}) as idle_floor_joules,
        cast(accounts.parked_joules as {{ exact_type() }}) as parked_joules,
        cast(accounts.asleep_joules as {{ exact_type() }}) as asleep_joules,
        cast(accounts.unallocated_joules as {{ exact_type() }}) as unallocated_joules,
        cast(
            idle_floor_joules + parked_joules + asleep_joules + unallocated_joules as {{ exact_type() }}
        ) as idle_joules,
        cast(accounts.unknown_joules as {{ exact_type() }}) as unknown_joules,
        cast(accounts.share_error_joules as {{ exact_type() }}) as share_error_joules,
        cast(
            {{ exact('cast(host_energy.host_overhead_joules as double) * interval_share_to') }}
            - {{ exact('cast(host_energy.host_overhead_joules as double) * interval_share_from') }} as {{ exact_type() }}
        ) as host_overhead_joules
    from accounts
    left join matched_intervals on {{ equal_keys('accounts', 'matched_intervals', ['date', 'engine', 'interval_number']) }}
    left join host_energy on {{ equal_keys('accounts', 'host_energy', ['date', 'meter_scope', 'meter', 'interval_number']) }}
    where {{ is_closed('accounts.interval_start_us') }}

)

select * from final
