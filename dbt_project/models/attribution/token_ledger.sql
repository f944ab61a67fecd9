-- The book of tokens: what each engine moved per interval and class, at the places of its energy.
with token_intervals as (

    -- What came by transfer is a part of input.
    select * from {{ ref('int_token_intervals') }} where token_class <> 'transferred_input'

),

handed_over as (

    select * from {{ ref('int_handed_over_tokens') }}

),

engine_roles as (

    select * from {{ ref('int_engine_roles') }}

),

engine_days as (

    select * from {{ ref('int_engine_days') }}

),

claims as (

    select * from {{ ref('int_claims') }}

),

token_shares as (

    select * from {{ ref('int_token_shares') }}

),

matched_intervals as (

    select * from {{ ref('int_matched_intervals') }}

),

teams as (

    select * from {{ source('fleet', 'teams') }}

),

-- An engine that holds a device is described as its claim is, so that energy and tokens meet under the same names.
-- Behind a frontend that alone counts tokens, prefill and decode pods are one engine: its tokens are in the rows of the
-- decoders.
claimed_models as (

    select
        date,
        engine,
        model,
        min(deployment) as deployment,
        min(team) as team,
        min(role) as role
    from claims
    group by date, engine, model

),

-- For a model that no claim names: the names of its engine's claims, except a deployment that is only named after
-- another model.
claimed_engines as (

    select
        date,
        engine,
        min(case when deployment is distinct from coalesce(namespace || '/', '') || model then deployment end) as stated_deployment,
        min(deployment) as deployment,
        case when min(model) = max(model) then min(model) end as model,
        min(namespace) as namespace,
        min(team) as team,
        min(role) as role,
        max(case when is_unmetered then 0 else 1 end) = 1 as has_power
    from claims
    group by date, engine

),

-- Without what a prefill pool handed over, which counts where it was computed.
kept_tokens as (

    select
        token_intervals.*,
        token_intervals.tokens - coalesce(handed_over.handed_tokens, 0) as kept_tokens
    from token_intervals
    left join handed_over
        on {{ equal_keys('token_intervals', 'handed_over', ['date', 'engine', 'model', 'interval_number', 'token_class']) }}
    where not coalesce(handed_over.is_whole, false)

),

final as (

    select
        token_intervals.date,
        {{ from_epoch_us('token_intervals.interval_number * ' ~ grid_us()) }} as interval_start_at,
        cast({{ var('grid_seconds') }} as integer) as interval_seconds,
        cast({{ exact('token_intervals.covered_us / 1e6') }} as {{ exact_type() }}) as covered_seconds,
        coalesce(token_shares.site, engine_days.site, {{ unknown() }}) as site,
        case
            when token_shares.tokens_basis = 'shared' then token_shares.node
            else coalesce(token_shares.node, engine_days.node)
        end as node,
        coalesce(token_shares.device_type, 'none') as device_type,
        coalesce(token_shares.meter_scope, 'none') as meter_scope,
        token_intervals.engine,
        coalesce(
            claimed_models.deployment,
            claimed_engines.stated_deployment,
            engine_days.deployment,
            case
                when token_intervals.model <> {{ unknown() }} then coalesce(engine_days.namespace || '/', '') || token_intervals.model
                else claimed_engines.deployment
            end,
            {{ unknown() }}
        ) as deployment,
        -- Behind a service's address are pods of a namespace that the address does not name.
        coalesce(engine_days.namespace, claimed_engines.namespace) as namespace,
        coalesce(claimed_models.team, claimed_engines.team, engine_days.team, teams.team) as team,
        -- An engine whose labels name no model serves the one of its claims, if they name one alone.
        case
            when token_intervals.model = {{ unknown() }} then coalesce(claimed_engines.model, {{ unknown() }})
            else token_intervals.model
        end as model,
        coalesce(claimed_models.role, claimed_engines.role, engine_roles.role, engine_days.role, 'unified') as role,
        coalesce(engine_roles.role_basis, engine_days.role_basis, 'none') as role_basis,
        token_intervals.token_class,
        token_intervals.token_source,
        token_intervals.token_metric,
        coalesce(claimed_engines.has_power, false) as has_power,
        coalesce(matched_intervals.is_matched, false) as is_matched,
        matched_intervals.unmatched_reason,
        token_intervals.has_reset,
        coalesce(token_shares.tokens_basis, 'own') as tokens_basis,
        -- Differences of one rounded running total: the parts add up to the engine's tokens.
        cast(
            case when coalesce(token_shares.share_to, 1) = 1 then token_intervals.kept_tokens
                else {{ exact('cast(token_intervals.kept_tokens as double) * token_shares.share_to') }}
            end
            - {{ exact('cast(token_intervals.kept_tokens as double) * coalesce(token_shares.share_from, 0)') }} as {{ exact_type() }}
        ) as tokens
    from kept_tokens as token_intervals
    left join engine_days on token_intervals.date = engine_days.date and token_intervals.engine = engine_days.engine
    left join claimed_models on {{ equal_keys('token_intervals', 'claimed_models', ['date', 'engine', 'model']) }}
    left join claimed_engines on token_intervals.date = claimed_engines.date and token_intervals.engine = claimed_engines.engine
    left join token_shares on {{ equal_keys('token_intervals', 'token_shares', ['date', 'engine', 'interval_number']) }}
    left join matched_intervals on {{ equal_keys('token_intervals', 'matched_intervals', ['date', 'engine', 'interval_number']) }}
    left join teams on engine_days.namespace = teams.namespace
    left join engine_roles on token_intervals.date = engine_roles.date and token_intervals.engine = engine_roles.engine
    where {{ is_closed('token_intervals.interval_number * ' ~ grid_us()) }}

)

select * from final
