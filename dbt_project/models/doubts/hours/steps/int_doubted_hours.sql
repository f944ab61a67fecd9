-- How much of each model's hour rests on what is in doubt: joules and tokens of the books' rows that a doubt overlaps, each
-- once, tokens that are not booked at all, and the reasons. One row per hour and model with a doubt.
with spans as (

    select * from {{ ref('int_doubt_spans') }} where {{ marks_hours('reason') }}

),

energy_ledger as (

    select
        *,
        {{ epoch_us('interval_start_at') }} as start_us
    from {{ ref('energy_ledger') }}
    where {{ in_run('date') }}

),

token_ledger as (

    select
        *,
        {{ epoch_us('interval_start_at') }} as start_us
    from {{ ref('token_ledger') }}
    where {{ in_run('date') }}

),

-- What a refuted meter measured besides is right: its missing joules are in doubt.
energy_spans as (

    select * from spans where meter is not null and reason <> 'refuted_meter'

),

doubted_energy as (

    select
        energy_ledger.date,
        date_trunc('hour', energy_ledger.interval_start_at) as hour_start_at,
        {% for key in model_keys() -%}
        {{ "coalesce(energy_ledger.device_type, " ~ unknown() ~ ")" if key == 'device_type' else 'energy_ledger.' ~ key }} as {{ key }},
        {% endfor -%}
        energy_ledger.energy_joules,
        energy_spans.reason,
        -- Of the spans of a row the first one counts its joules.
        row_number() over (
            partition by energy_ledger.interval_start_at, energy_ledger.meter_scope, energy_ledger.meter,
            energy_ledger.claim_start_at, energy_ledger.engine, energy_ledger.deployment, energy_ledger.model
            order by energy_spans.reason, energy_spans.from_us
        ) as span_number
    from energy_ledger
    inner join energy_spans
        on {{ equal_keys('energy_ledger', 'energy_spans', ['date', 'meter_scope', 'meter']) }}
        and energy_spans.from_us < energy_ledger.start_us + {{ grid_us() }}
        and energy_spans.to_us > energy_ledger.start_us

),

engine_tokens as (

    select
        date,
        engine,
        token_class,
        sum(tokens) as tokens
    from token_ledger
    group by date, engine, token_class

),

token_spans as (

    select * from spans where engine is not null

),

doubted_tokens as (

    select
        token_ledger.date,
        date_trunc('hour', token_ledger.interval_start_at) as hour_start_at,
        {{ columns_of('token_ledger', model_keys()) }},
        case when token_spans.unbooked_tokens is null then token_ledger.tokens else 0 end as tokens,
        cast(token_spans.unbooked_tokens as double) * {{ ratio('token_ledger.tokens', 'engine_tokens.tokens') }} as unbooked_tokens,
        token_spans.reason,
        row_number() over (
            partition by token_ledger.interval_start_at, token_ledger.engine, token_ledger.model, token_ledger.site, token_ledger.node,
            token_ledger.device_type, token_ledger.meter_scope, token_ledger.token_class, token_spans.unbooked_tokens is null
            order by token_spans.reason
        ) as span_number
    from token_ledger
    inner join token_spans
        on {{ equal_keys('token_ledger', 'token_spans', ['date', 'engine']) }}
        and coalesce(token_spans.token_class, token_ledger.token_class) = token_ledger.token_class
        and token_spans.from_us < token_ledger.start_us + {{ grid_us() }}
        and token_spans.to_us > token_ledger.start_us
    inner join engine_tokens on {{ equal_keys('token_ledger', 'engine_tokens', ['date', 'engine', 'token_class']) }}
    where token_ledger.token_class in ('input', 'output')

),

-- Of an engine whose counters are not booked at all only its joules are there.
without_tokens as (

    select
        energy_ledger.date,
        date_trunc('hour', energy_ledger.interval_start_at) as hour_start_at,
        {% for key in model_keys() -%}
        {{ "coalesce(energy_ledger.device_type, " ~ unknown() ~ ")" if key == 'device_type' else 'energy_ledger.' ~ key }} as {{ key }},
        {% endfor -%}
        token_spans.reason
    from energy_ledger
    inner join token_spans on {{ equal_keys('energy_ledger', 'token_spans', ['date', 'engine']) }}
    left join engine_tokens
        on energy_ledger.date = engine_tokens.date
        and energy_ledger.engine = engine_tokens.engine
        and coalesce(token_spans.token_class, 'output') = engine_tokens.token_class
        and engine_tokens.tokens > 0
    where engine_tokens.engine is null and token_spans.reason in ('no_counter', 'unclear_falls')

),

refuted_claims as (

    select
        refuted.date,
        {{ from_epoch_us('refuted.interval_number * ' ~ grid_us()) }} as interval_start_at,
        case when claims.place_node is not null then claims.place_site else meters.site end as site,
        claims.deployment,
        claims.namespace,
        claims.team,
        claims.model,
        coalesce(meters.device_type, {{ unknown() }}) as device_type,
        claims.meter_scope,
        claims.role,
        claims.engine,
        refuted.missing_joules
        * coalesce(claims.mig_share / claims.models_of_engine, cast(1 as double) / claims.members)
        * (least(claims.slice_end_us, (refuted.interval_number + 1) * {{ grid_us() }})
            - greatest(claims.slice_start_us, refuted.interval_number * {{ grid_us() }})) / {{ grid_us() }} as missing_joules
    from {{ ref('int_refuted_intervals') }} as refuted
    inner join {{ ref('int_claims') }} as claims
        on {{ equal_keys('refuted', 'claims', ['date', 'meter_scope', 'meter']) }}
        and claims.slice_start_us < (refuted.interval_number + 1) * {{ grid_us() }}
        and claims.slice_end_us > refuted.interval_number * {{ grid_us() }}
    inner join (
        select date, meter_scope, meter, max(site) as site, max(device_type) as device_type
        from {{ ref('int_meter_choices') }}
        where purpose = 'booked'
        group by date, meter_scope, meter
    ) as meters
        on {{ equal_keys('refuted', 'meters', ['date', 'meter_scope', 'meter']) }}

),

-- Where no meter of an engine books, its tokens have a row without joules.
missing_energy as (

    select
        date,
        date_trunc('hour', interval_start_at) as hour_start_at,
        {{ model_keys() | join(', ') }},
        missing_joules
    from refuted_claims
    union all
    select
        token_ledger.date,
        date_trunc('hour', token_ledger.interval_start_at) as hour_start_at,
        {{ columns_of('token_ledger', model_keys()) }},
        cast(null as double) as missing_joules
    from token_ledger
    inner join refuted_claims
        on token_ledger.engine = refuted_claims.engine and token_ledger.interval_start_at = refuted_claims.interval_start_at
    where token_ledger.meter_scope = 'none'

),

pieces as (

    select
        date,
        hour_start_at,
        {{ model_keys() | join(', ') }},
        {{ exact('missing_joules') }} as doubted_joules,
        cast(null as {{ exact_type() }}) as doubted_tokens,
        cast(null as double) as unbooked_tokens,
        'refuted_meter' as reason
    from missing_energy
    union all
    select
        date,
        hour_start_at,
        {{ model_keys() | join(', ') }},
        case when span_number = 1 then energy_joules end as doubted_joules,
        cast(null as {{ exact_type() }}) as doubted_tokens,
        cast(null as double) as unbooked_tokens,
        reason
    from doubted_energy
    union all
    select
        date,
        hour_start_at,
        {{ model_keys() | join(', ') }},
        cast(null as {{ exact_type() }}) as doubted_joules,
        case when span_number = 1 then tokens end as doubted_tokens,
        unbooked_tokens,
        reason
    from doubted_tokens
    union all
    select distinct
        date,
        hour_start_at,
        {{ model_keys() | join(', ') }},
        cast(null as {{ exact_type() }}) as doubted_joules,
        cast(null as {{ exact_type() }}) as doubted_tokens,
        cast(null as double) as unbooked_tokens,
        reason
    from without_tokens

),

final as (

    select
        date,
        hour_start_at,
        {{ model_keys() | join(', ') }},
        {{ exact_sum('doubted_joules') }} as doubted_joules,
        {{ exact_sum('doubted_tokens') }} as doubted_tokens,
        {{ exact_sum(exact('unbooked_tokens')) }} as unbooked_tokens,
        {% for reason in doubt_reasons() -%}
        max(case when reason = '{{ reason }}' then 1 else 0 end) as has_{{ reason }}{{ ',' if not loop.last }}
        {% endfor %}
    from pieces
    group by date, hour_start_at, {{ model_keys() | join(', ') }}

)

select * from final
