-- What each rack held, drew and served: accelerators and energy of the ledger by the rack of their node, and each
-- engine's tokens by the racks of its accelerators.
{% set keys = ['billing_month', 'site', 'rack', 'deployment', 'namespace', 'team', 'model', 'device_type', 'meter_scope', 'role'] %}
{% set amounts = ['gpu_seconds', 'energy_joules', 'cached_input_tokens', 'computed_input_tokens', 'output_tokens'] %}

with ledger as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }}

),

unmetered as (

    select * from {{ ref('unmetered_devices') }} where {{ in_run('date') }}

),

tokens as (

    select * from {{ ref('token_ledger') }} where {{ in_run('date') }}

),

site_intervals as (

    select
        site,
        interval_start_at,
        billing_month
    from {{ ref('int_site_intervals') }}

),

held as (

    select
        date,
        interval_start_at,
        site,
        coalesce(rack, {{ unknown() }}) as rack,
        engine,
        deployment,
        namespace,
        team,
        model,
        coalesce(device_type, {{ unknown() }}) as device_type,
        meter_scope,
        role,
        gpu_seconds,
        energy_joules
    from ledger
    union all
    select
        date,
        interval_start_at,
        site,
        coalesce(rack, {{ unknown() }}) as rack,
        engine,
        deployment,
        namespace,
        team,
        model,
        coalesce(device_type, {{ unknown() }}) as device_type,
        'none' as meter_scope,
        role,
        gpu_seconds,
        cast(null as {{ exact_type() }}) as energy_joules
    from unmetered

),

engine_racks as (

    select
        date,
        engine,
        site,
        rack,
        min(device_type) as device_type,
        min(meter_scope) as meter_scope,
        {{ exact_sum('gpu_seconds') }} as gpu_seconds
    from held
    group by date, engine, site, rack

),

-- An engine over several racks serves from each by its accelerators' time.
engine_shares as (

    select
        *,
        coalesce(
            {{ ratio('gpu_seconds', 'sum(gpu_seconds) over (partition by date, engine)') }},
            1.0 / count(*) over (partition by date, engine)
        ) as rack_share
    from engine_racks

),

engine_tokens as (

    select
        tokens.date,
        {{ chargeback_month() }} as billing_month,
        tokens.site,
        tokens.engine,
        tokens.deployment,
        tokens.namespace,
        tokens.team,
        tokens.model,
        tokens.role,
        {{ exact_sum("case when token_class = 'input' then tokens end") }} as input_tokens,
        {{ exact_sum("case when token_class = 'cached_input' then tokens end") }} as cached_input_tokens,
        {{ exact_sum("case when token_class = 'computed_input' then tokens end") }} as computed_input_tokens,
        {{ exact_sum("case when token_class = 'output' then tokens end") }} as output_tokens
    from tokens
    left join site_intervals
        on tokens.site = site_intervals.site and tokens.interval_start_at = site_intervals.interval_start_at
    group by 1, 2, 3, 4, 5, 6, 7, 8, 9

),

-- A request of separate engines has its input at the prefill engine and its output at the decode engine.
served as (

    select
        engine_tokens.date,
        engine_tokens.billing_month,
        coalesce(engine_shares.site, engine_tokens.site) as site,
        coalesce(engine_shares.rack, {{ unknown() }}) as rack,
        engine_tokens.deployment,
        engine_tokens.namespace,
        engine_tokens.team,
        engine_tokens.model,
        coalesce(engine_shares.device_type, 'none') as device_type,
        coalesce(engine_shares.meter_scope, 'none') as meter_scope,
        engine_tokens.role,
        coalesce(engine_shares.rack_share, 1) as rack_share,
        case when engine_tokens.role <> 'decode' then engine_tokens.cached_input_tokens end as cached_input_tokens,
        case
            when engine_tokens.role <> 'decode'
                then coalesce(
                    engine_tokens.computed_input_tokens,
                    engine_tokens.input_tokens - coalesce(engine_tokens.cached_input_tokens, 0)
                )
        end as computed_input_tokens,
        case when engine_tokens.role <> 'prefill' then engine_tokens.output_tokens end as output_tokens
    from engine_tokens
    left join engine_shares on engine_tokens.date = engine_shares.date and engine_tokens.engine = engine_shares.engine

),

pieces as (

    select
        held.date,
        {{ chargeback_month() }} as billing_month,
        {{ columns_of('held', keys[1:]) }},
        held.gpu_seconds,
        held.energy_joules,
        cast(null as {{ exact_type() }}) as cached_input_tokens,
        cast(null as {{ exact_type() }}) as computed_input_tokens,
        cast(null as {{ exact_type() }}) as output_tokens
    from held
    left join site_intervals on held.site = site_intervals.site and held.interval_start_at = site_intervals.interval_start_at
    union all
    select
        date,
        {{ keys | join(', ') }},
        cast(null as {{ exact_type() }}) as gpu_seconds,
        cast(null as {{ exact_type() }}) as energy_joules,
        {{ exact('cast(cached_input_tokens as double) * rack_share') }} as cached_input_tokens,
        {{ exact('cast(computed_input_tokens as double) * rack_share') }} as computed_input_tokens,
        {{ exact('cast(output_tokens as double) * rack_share') }} as output_tokens
    from served

),

final as (

    select
        date,
        {{ keys | join(', ') }},
        {% for amount in amounts -%}
        {{ exact_sum(amount) }} as {{ amount }}{{ ',' if not loop.last }}
        {% endfor %}
    from pieces
    group by date, {{ keys | join(', ') }}

)

select * from final
