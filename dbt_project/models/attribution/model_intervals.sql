-- Load and energy in the book's own intervals: the source of the curves, and of every question of how hard a model
-- worked and when.
with ledger as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }} and is_matched

),

tokens as (

    select * from {{ ref('token_ledger') }} where {{ in_run('date') }} and is_matched

),

-- An engine that spans two types of device, sites or meter scopes has one load and no type to book it under: it has no
-- point.
engine_types as (

    select
        interval_start_at,
        engine,
        min(coalesce(device_type, {{ unknown() }})) as device_type
    from ledger
    group by interval_start_at, engine
    having min(coalesce(device_type, {{ unknown() }})) = max(coalesce(device_type, {{ unknown() }})) and min(meter_scope) = max(meter_scope)
        and min(site) = max(site)

),

engine_energy as (

    select
        ledger.date,
        ledger.interval_start_at,
        {{ columns_of('ledger', curve_keys() | reject('equalto', 'device_type')) }},
        engine_types.device_type,
        ledger.engine,
        {{ exact_sum('ledger.productive_joules + ledger.idle_joules') }} as matched_joules,
        {{ exact_sum('ledger.productive_joules') }} as matched_productive_joules,
        {{ exact_sum('ledger.gpu_seconds') }} as matched_gpu_seconds
    from ledger
    inner join engine_types
        on ledger.interval_start_at = engine_types.interval_start_at and ledger.engine = engine_types.engine
    group by all

),

engine_tokens as (

    select
        interval_start_at,
        engine,
        model,
        role,
        {{ exact_sum("case when token_class = 'input' then tokens end") }} as input_tokens,
        {{ exact_sum("case when token_class = 'cached_input' then tokens end") }} as cached_input_tokens,
        {{ exact_sum("case when token_class = 'computed_input' then tokens end") }} as computed_input_tokens,
        {{ exact_sum("case when token_class = 'output' then tokens end") }} as output_tokens,
        {{ exact_sum("case when token_class in ('input', 'output') then tokens end") }} as total_tokens,
        -- A decoder's input tokens are in the row of its prefill engine.
        -- Where the signs of its role conflict, an engine may count prompts that another one counts too.
        case
            when max(case when role_basis = 'conflicting' then 1 else 0 end) = 1 then 0
            else max(case when token_class = 'input' or role = 'decode' then 1 else 0 end)
        end as has_input
    from tokens
    group by interval_start_at, engine, model, role

),

-- Some engines report what they computed, some what they took from the cache; a decoder computes no input, and what a
-- prefill engine generates is counted by the decoder.
completed_tokens as (

    select
        *,
        coalesce(output_tokens, case when role = 'prefill' and total_tokens is not null then {{ exact('0') }} end) as known_output_tokens,
        coalesce(
            computed_input_tokens,
            case
                when input_tokens >= cached_input_tokens then input_tokens - cached_input_tokens
                when input_tokens < cached_input_tokens then {{ exact('0') }}
            end,
            case when role = 'decode' then {{ exact('0') }} end
        ) as known_computed_tokens
    from engine_tokens

),

final as (

    select
        engine_energy.date,
        engine_energy.interval_start_at,
        cast({{ var('grid_seconds') }} as integer) as interval_seconds,
        {{ columns_of('engine_energy', curve_keys()) }},
        cast(count(*) as integer) as engines,
        {{ exact_sum('engine_energy.matched_gpu_seconds') }} as matched_gpu_seconds,
        {{ exact_sum('engine_energy.matched_joules') }} as matched_joules,
        {{ exact_sum('engine_energy.matched_productive_joules') }} as matched_productive_joules,
        case when count(engine_tokens.known_computed_tokens) = count(*) then {{ exact_sum('engine_tokens.known_computed_tokens') }} end
        as matched_computed_input_tokens,
        {{ exact_sum('engine_tokens.known_output_tokens') }} as matched_output_tokens,
        case when min(engine_tokens.has_input) = 1 then {{ exact_sum('engine_tokens.total_tokens') }} end as matched_total_tokens
    from engine_energy
    inner join completed_tokens as engine_tokens
        on {{ equal_keys('engine_energy', 'engine_tokens', ['interval_start_at', 'engine', 'model', 'role']) }}
    where engine_tokens.known_output_tokens is not null
    group by all

)

select * from final
