-- Booked joules with their claimants and states: one row per date, meter, interval, slice and member. Members of a
-- slice share it by the activity of their processes, else by the tokens they moved, else evenly. MIG instances share
-- time, and the board's idle floor, by their parts of it; what it draws above the floor they share by activity ×
-- slices, else by tokens. Tokens weigh what they take of the board (macros of token_weights); what the weights leave open
-- of a share is `share_error_joules`. Shares are differences of a rounded running total, so they add up. How far to trust
-- a share is `attribution_confidence`.
{% set claimed_columns = [
    'date', 'meter_scope', 'meter', 'interval_number', 'interval_start_us', 'slice_start_us', 'energy_joules',
    'overspread_joules', 'covered_us', 'energy_source', 'has_reset', 'has_glitch', 'has_gap', 'is_unplaced', 'engine',
    'model', 'namespace', 'deployment', 'team', 'role', 'members', 'place_node', 'place_rack', 'place_site',
    'claim_basis', 'held_by', 'is_tokens_complete', 'has_token_telemetry', 'is_active', 'is_asleep', 'active_us',
    'silent_us'
] %}
{% set row_columns = [
    'date', 'meter_scope', 'meter', 'interval_number', 'interval_start_us', 'slice_start_us', 'energy_source',
    'has_reset', 'has_glitch', 'has_gap', 'place_node', 'place_rack', 'place_site'
] %}
{% set claimant_columns = row_columns + [
    'engine', 'model', 'deployment', 'namespace', 'team', 'role', 'attribution_method', 'attribution_confidence',
    'has_token_telemetry', 'state'
] %}
{% set ends = ['low', 'middle', 'high'] %}

with claimed as (

    select * from {{ ref('int_claimed_energy') }}

),

meters as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked'

),

-- Nearly every board has one claimant all day; only the others are weighed.
lone as (

    select
        {{ claimed_columns | join(',\n        ') }},
        'alone' as split_basis,
        is_mig_share_known,
        cast(0 as double) as share_error_joules,
        cast(0 as double) as share_from,
        cast(1 as double) as share_to,
        cast(0 as double) as energy_share_from,
        cast(1 as double) as energy_share_to,
        cast(0 as double) as interval_share_from,
        cast(1 as double) as interval_share_to
    from claimed
    where claims_of_day = 1

),

-- A model's part of what its engine has of the slice: by the interval's tokens, else by the date's, else evenly.
modelled as (

    select
        *,
        case
            when coalesce(models_of_engine, 1) = 1 then 1
            else coalesce(
                {{ ratio('energy_tokens_middle', 'sum(energy_tokens_middle) over engine_window') }},
                {{ ratio('energy_tokens_of_date', 'sum(energy_tokens_of_date) over engine_window') }},
                cast(1 as double) / models_of_engine
            )
        end as model_share
    from claimed
    where claims_of_day > 1
    window engine_window as (
        partition by
            date,
            meter_scope,
            meter,
            interval_number,
            slice_start_us,
            engine,
            coalesce(namespace, ''),
            coalesce(mig_instance, '')
    )

),

-- What the members of a slice report together.
compared as (

    select
        *,
        sum(energy_tokens_middle) over slice_window as energy_tokens_of_all,
        {% for known in ['moved_tokens', 'model_size', 'concurrency'] -%}
        count(case when engine <> {{ unallocated() }} then {{ known }} end) over slice_window
            = count(case when engine <> {{ unallocated() }} then 1 end) over slice_window as is_{{ known }}_known,
        {% endfor -%}
        min(engine) over slice_window = max(engine) over slice_window as is_one_engine,
        min(model) over slice_window = max(model) over slice_window as is_one_model,
        sum(activity) over slice_window > 0 and count(activity) over slice_window = members as is_by_activity,
        count(activity) over slice_window = members as is_activity_known,
        -- Whoever is not known to wait.
        engine <> {{ unallocated() }}
            and coalesce(is_active, not (has_token_telemetry or is_tokens_complete)) as may_work
    from modelled
    window slice_window as (partition by date, meter_scope, meter, interval_number, slice_start_us)

),

scaled as (

    select
        *,
        coalesce(energy_tokens_of_all > 0, false) and not is_by_activity as is_by_tokens,
        {{ token_scale('case when is_model_size_known then model_size end', 'case when is_concurrency_known then concurrency end') }}
        as token_scale,
        {{ token_scale_error('is_one_engine', 'is_one_model', 'is_model_size_known', 'is_concurrency_known') }} as scale_error,
        case
            when mig_share is null then cast(energy_joules as double)
            else cast(energy_joules as double) - floor_joules
        end as work_joules
    from compared

),

-- Of the board's time, and of what work draws: of a board in instances above its floor.
weighed as (

    select
        *,
        case
            when members = 1 then {{ exact('1') }}
            when mig_share is not null then {{ exact('1e6 * mig_share * model_share') }}
            when is_by_activity then {{ exact('1e6 * cast(activity as double) * model_share') }}
            when is_by_tokens then {{ exact('time_tokens * token_scale') }}
            else {{ exact('model_share') }}
        end as weight,
        {% for end in ends -%}
        case
            when members = 1 then {{ exact('1') }}
            when is_by_activity then {{ exact('1e6 * cast(activity as double) * model_share') }}
            when is_by_tokens then {{ exact('energy_tokens_' ~ end ~ ' * token_scale') }}
            when mig_share is null then {{ exact('model_share') }}
            when may_work or max(case when may_work then 1 else 0 end) over slice_window = 0
                then {{ exact('1e6 * mig_share * model_share') }}
            else {{ exact('0') }}
        end as work_weight_{{ end }},
        {% endfor -%}
        case
            when members = 1 then 'alone'
            when mig_share is not null
                and is_activity_known
                and not is_by_tokens
                then 'mig_activity'
            when mig_share is null and is_by_activity then 'process_activity'
            -- Tokens of all members are known, and some moved; else the split is even or favours whoever reports.
            when is_moved_tokens_known and (is_by_tokens or mig_share is not null) then 'tokens_of_all'
            else 'tokens_of_some'
        end as split_basis
    from scaled
    window slice_window as (partition by date, meter_scope, meter, interval_number, slice_start_us)

),

-- The largest and smallest part that a member may have: its engine's tokens against those of the others.
bounded as (

    select
        *,
        {{ ratio('work_weight_middle', 'sum(work_weight_middle) over slice_window') }} as work_share,
        {% for bound, by in [('most', '/'), ('least', '*')] -%}
        {{ bound | replace('most', 'greatest') }}(
            {% for end in ends -%}
            {{ ratio(
                'work_weight_' ~ end,
                'sum(work_weight_' ~ end ~ ') over engine_window + (sum(work_weight_' ~ end ~ ') over slice_window'
                ~ ' - sum(work_weight_' ~ end ~ ') over engine_window) ' ~ by ~ ' scale_error'
            ) }}{{ ',' if not loop.last }}
            {% endfor -%}
        ) as {{ bound }}_work_share,
        {% endfor -%}
        split_basis = 'tokens_of_all' and is_by_tokens as is_share_estimated
    from weighed
    window
        slice_window as (partition by date, meter_scope, meter, interval_number, slice_start_us),
        engine_window as (partition by date, meter_scope, meter, interval_number, slice_start_us, engine, coalesce(namespace, ''))

),

worked as (

    select
        *,
        case
            when is_share_estimated
                then work_joules * greatest(most_work_share - work_share, work_share - least_work_share, 0)
            else 0
        end as share_error_joules,
        case
            when mig_share is null then work_weight_middle
            when energy_joules = 0 then weight
            else {{ exact(
                'floor_joules * ' ~ ratio('weight', 'sum(weight) over slice_window')
                ~ ' + (cast(energy_joules as double) - floor_joules) * '
                ~ ratio('work_weight_middle', 'sum(work_weight_middle) over slice_window')
            ) }}
        end as energy_weight
    from bounded
    window slice_window as (partition by date, meter_scope, meter, interval_number, slice_start_us)

),

shares as (

    select
        *,
        {{ ratio(
            '(sum(weight) over member_window) - weight',
            'sum(weight) over slice_window'
        ) }} as share_from,
        {{ ratio('sum(weight) over member_window', 'sum(weight) over slice_window') }} as share_to,
        {{ ratio(
            '(sum(energy_weight) over member_window) - energy_weight',
            'sum(energy_weight) over slice_window'
        ) }} as energy_share_from,
        {{ ratio(
            'sum(energy_weight) over member_window',
            'sum(energy_weight) over slice_window'
        ) }} as energy_share_to
    from worked
    window
        slice_window as (partition by date, meter_scope, meter, interval_number, slice_start_us),
        member_window as (
            partition by date, meter_scope, meter, interval_number, slice_start_us
            order by
                engine,
                deployment,
                coalesce(namespace, ''),
                coalesce(team, ''),
                role,
                model,
                coalesce(mig_instance, '')
            rows unbounded preceding
        )

),

covered_shares as (

    select
        *,
        {{ exact('covered_us * (share_to - share_from)') }} as covered_share
    from shares

),

-- A row's position in the covered time of its meter and interval: what belongs to the whole interval (its host) is
-- shared along that time.
contended as (

    select
        {{ claimed_columns | join(',\n        ') }},
        split_basis,
        is_mig_share_known,
        share_error_joules,
        share_from,
        share_to,
        energy_share_from,
        energy_share_to,
        {{ ratio(
            '(sum(covered_share) over row_window) - covered_share',
            'sum(covered_share) over interval_window'
        ) }} as interval_share_from,
        {{ ratio(
            'sum(covered_share) over row_window',
            'sum(covered_share) over interval_window'
        ) }} as interval_share_to
    from covered_shares
    window
        interval_window as (partition by date, meter_scope, meter, interval_number),
        row_window as (
            partition by date, meter_scope, meter, interval_number
            order by
                coalesce(slice_start_us, 0),
                engine,
                deployment,
                coalesce(namespace, ''),
                coalesce(team, ''),
                role,
                model,
                coalesce(mig_instance, '')
            rows unbounded preceding
        )

),

shared as (

    select * from lone
    union all
    select * from contended

),

rows_of_members as (

    select
        {{ columns_of('shared', row_columns) }},
        case when overspread_joules > 0 or is_unplaced then {{ unknown() }} else engine end as engine,
        case when overspread_joules > 0 or is_unplaced then {{ unknown() }} else model end as model,
        case when overspread_joules > 0 or is_unplaced then {{ unknown() }} else deployment end as deployment,
        namespace,
        team,
        role,
        case
            when overspread_joules > 0
                or is_unplaced
                or engine in ({{ unallocated() }}, {{ unknown() }})
                then 'unattributed'
            when claim_basis = 'node' then 'node_share'
            when split_basis = 'alone' then 'exclusive'
            when split_basis in ('mig_activity', 'process_activity') then split_basis
            else 'token_share'
        end as attribution_method,
        case
            when overspread_joules > 0
                or is_unplaced
                or engine in ({{ unallocated() }}, {{ unknown() }})
                then 'none'
            when claim_basis in ('node', 'group_name') then 'low'
            when not is_mig_share_known then 'low'
            when split_basis = 'alone' then 'high'
            when split_basis in ('mig_activity', 'process_activity') then 'medium'
            when split_basis = 'tokens_of_all'
                and share_error_joules
                    <= {{ medium_share_error() }} * cast(energy_joules as double) * (energy_share_to - energy_share_from)
                then 'medium'
            else 'low'
        end as attribution_confidence,
        has_token_telemetry or is_tokens_complete as has_token_telemetry,
        case
            when overspread_joules > 0 or is_unplaced then 'unknown'
            when engine = {{ unallocated() }} then 'unallocated'
            when engine = {{ unknown() }} then 'unknown'
            when is_active then 'active'
            when is_asleep then 'asleep'
            when has_token_telemetry or is_tokens_complete then 'parked'
            else 'unknown'
        end as state,
        -- Why the claimant is unknown; where it is not, its tokens are.
        case
            when is_unplaced then 'unplaced_meter'
            when overspread_joules > 0 then 'over_max_spread'
            when claim_basis = 'silence' then 'claimant_changed_in_silence'
            when engine = {{ unknown() }} and held_by is not null then 'no_engine_for_pod'
            when engine = {{ unknown() }} then 'no_claimant'
            else 'token_telemetry_missing'
        end as possible_reason,
        held_by,
        case
            when members = 1 then energy_joules
            else
                {{ exact('cast(energy_joules as double) * energy_share_to') }}
                - {{ exact('cast(energy_joules as double) * energy_share_from') }}
        end as energy_joules,
        case
            when overspread_joules > 0 or is_unplaced or engine in ({{ unallocated() }}, {{ unknown() }}) then {{ exact('0') }}
            else {{ exact('share_error_joules') }}
        end as share_error_joules,
        case
            when members = 1 then {{ exact('covered_us / 1e6') }}
            else {{ exact('covered_us / 1e6 * share_to') }} - {{ exact('covered_us / 1e6 * share_from') }}
        end as covered_seconds,
        -- The claimant was active, but which of these joules it used is unknown.
        case
            when overspread_joules > 0 or is_unplaced then {{ exact('0') }}
            else {{ exact('least(coalesce(active_us, 0), covered_us) / 1e6 * (share_to - share_from)') }}
        end as active_seconds,
        case
            when overspread_joules > 0 or is_unplaced then {{ exact('0') }}
            else {{ exact(
                'least(coalesce(silent_us, 0), covered_us - least(coalesce(active_us, 0), covered_us))'
                ~ ' / 1e6 * (share_to - share_from)'
            ) }}
        end as silent_seconds,
        interval_share_from,
        interval_share_to,
        {{ exact('covered_us / 1e6') }} as slice_covered_seconds,
        -- The claimant is known; the time at which the joules were drawn is not.
        overspread_joules > 0 and not (model = {{ unknown() }} and deployment = {{ unknown() }}) as is_undated,
        members
    from shared

),

-- A claimant with several members of one board (MIG slices, unknown pods) has one row.
rows_of_claimants as (

    select
        {{ claimant_columns | join(',\n        ') }},
        case when state = 'unknown' then possible_reason end as unknown_reason,
        case when state = 'unknown' then held_by end as held_by,
        energy_joules,
        share_error_joules,
        covered_seconds,
        active_seconds,
        silent_seconds,
        interval_share_from,
        interval_share_to,
        slice_covered_seconds,
        case when is_undated then covered_seconds else {{ exact('0') }} end as undated_seconds
    from rows_of_members
    where members = 1
    union all
    select
        {{ claimant_columns | join(',\n        ') }},
        min(case when state = 'unknown' then possible_reason end) as unknown_reason,
        {{ joined_in_order("case when state = 'unknown' then held_by end") }} as held_by,
        {{ exact_sum('energy_joules') }} as energy_joules,
        {{ exact_sum('share_error_joules') }} as share_error_joules,
        {{ exact_sum('covered_seconds') }} as covered_seconds,
        {{ exact_sum('active_seconds') }} as active_seconds,
        {{ exact_sum('silent_seconds') }} as silent_seconds,
        min(interval_share_from) as interval_share_from,
        max(interval_share_to) as interval_share_to,
        max(slice_covered_seconds) as slice_covered_seconds,
        {{ exact_sum('case when is_undated then covered_seconds else 0 end') }} as undated_seconds
    from rows_of_members
    where members > 1
    group by {{ claimant_columns | join(', ') }}

),

final as (

    select
        rows_of_claimants.*,
        case when place_node is not null then place_site else meters.site end as site,
        case when place_node is not null then place_rack else meters.rack end as rack,
        coalesce(place_node, meters.node) as node,
        meters.device_uuid,
        meters.device_type,
        meters.gpu_count
    from rows_of_claimants
    inner join meters on {{ equal_keys('rows_of_claimants', 'meters', ['date', 'meter_scope', 'meter']) }}

)

select * from final
