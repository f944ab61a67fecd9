-- Booked joules with whoever claims them, and what is known of his work: one row per date, meter, interval, slice and
-- member. How members share the joules comes after it, in int_attributed_energy.
{# int_attributed_energy alone reads it. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}

with energy as (

    select
        intervals.*,
        coalesce(choices.is_unplaced, false) as is_unplaced
    from {{ ref('int_energy_intervals') }} as intervals
    left join {{ ref('int_meter_choices') }} as choices
        on {{ equal_keys('intervals', 'choices', ['date', 'meter_scope', 'meter', 'purpose']) }}
        and choices.is_unplaced
    where intervals.purpose = 'booked'

),

claims as (

    select * from {{ ref('int_claims') }}

),

engine_intervals as (

    select * from {{ ref('int_engine_intervals') }}

),

model_intervals as (

    select * from {{ ref('int_model_tokens') }}

),

member_activity as (

    select * from {{ ref('int_member_activity') }}

),

mig_floors as (

    select * from {{ ref('int_mig_floors') }}

),

model_days as (

    select distinct
        date,
        engine,
        model,
        energy_tokens_of_date
    from model_intervals

),

token_weights as (

    select * from {{ ref('int_token_weights') }}

),

final as (

    select
        energy.date,
        energy.meter_scope,
        energy.meter,
        energy.interval_number,
        energy.interval_start_us,
        energy.slice_start_us,
        energy.energy_joules,
        energy.overspread_joules,
        energy.covered_us,
        energy.energy_source,
        energy.has_reset,
        energy.has_glitch,
        energy.has_gap,
        energy.is_unplaced,
        claims.engine,
        claims.model,
        claims.namespace,
        claims.deployment,
        claims.team,
        claims.role,
        claims.members,
        claims.place_node,
        claims.place_rack,
        claims.place_site,
        claims.claim_basis,
        claims.held_by,
        claims.is_tokens_complete,
        claims.models_of_engine,
        claims.claims_of_day,
        claims.mig_instance,
        claims.mig_share,
        coalesce(claims.is_mig_share_known, true) as is_mig_share_known,
        engine_intervals.engine is not null as has_token_telemetry,
        -- Work that serves no LLM has no tokens: whoever holds the board uses it.
        coalesce(engine_intervals.is_active, case when claims.work is not null then true end) as is_active,
        engine_intervals.is_asleep,
        case
            when engine_intervals.engine is null and claims.work is not null then energy.covered_us
            else engine_intervals.active_us
        end as active_us,
        engine_intervals.unknown_us as silent_us,
        case
            when claims.models_of_engine > 1 and engine_intervals.moved_tokens is not null
                then coalesce(model_intervals.moved_tokens, {{ exact('0') }})
            else engine_intervals.moved_tokens
        end as moved_tokens,
        {% for kind in ['energy_tokens_low', 'energy_tokens_middle', 'energy_tokens_high', 'time_tokens'] -%}
        coalesce(model_intervals.{{ kind }}, {{ exact('0') }}) as {{ kind }},
        {% endfor -%}
        coalesce(model_days.energy_tokens_of_date, {{ exact('0') }}) as energy_tokens_of_date,
        token_weights.model_size,
        token_weights.concurrency,
        -- An instance's activity is a part of itself: 3g.40gb is three slices. What no instance has does not work.
        case
            when claims.mig_share is null then {{ exact('member_activity.activity_ratio') }}
            else coalesce(
                {{ exact("member_activity.activity_ratio * claims.mig_slices") }},
                case when claims.engine = {{ unallocated() }} then {{ exact('0') }} end
            )
        end as activity,
        least(
            cast(energy.energy_joules as double),
            coalesce(mig_floors.floor_watts, 0) * energy.covered_us / 1e6
        ) as floor_joules
    from energy
    inner join claims
        on {{ equal_keys('energy', 'claims', ['date', 'meter_scope', 'meter']) }}
        and (energy.slice_start_us is null or energy.slice_start_us = claims.slice_start_us)
    left join engine_intervals
        on claims.engine = engine_intervals.engine
        and energy.interval_number = engine_intervals.interval_number
        -- What was drawn before and after the engine's samples of the interval is unknown.
        and claims.slice_start_us < engine_intervals.seen_to_us
        and claims.slice_end_us > engine_intervals.seen_from_us
    left join token_weights on energy.date = token_weights.date and claims.engine = token_weights.engine
    left join model_intervals
        on energy.date = model_intervals.date
        and claims.engine = model_intervals.engine
        and claims.model = coalesce(model_intervals.model, claims.model)
        and energy.interval_number = model_intervals.interval_number
    left join model_days
        on claims.models_of_engine > 1
        and energy.date = model_days.date
        and claims.engine = model_days.engine
        and claims.model = model_days.model
    left join member_activity
        on claims.members > 1
        and energy.date = member_activity.date
        and energy.meter = member_activity.meter
        and case when claims.mig_share is null then claims.pod else claims.mig_instance end = member_activity.member
        and energy.interval_number = member_activity.interval_number
    left join mig_floors
        on claims.mig_share is not null
        and {{ equal_keys('energy', 'mig_floors', ['date', 'meter_scope', 'meter']) }}

)

select * from final
