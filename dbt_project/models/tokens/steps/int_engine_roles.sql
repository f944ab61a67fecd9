-- Which engines serve prefill or decode alone, by what is known best: the fleet file, the engine's own labels, what the
-- cluster calls its pods, else by the counters of the date. One row per date and engine. A name that the cluster gives
-- counts only in pairs, and only if the counters do not contradict it. By the counters, the engines of a model are a
-- pair of pools if one writes a token per request, what another was given came by transfer, and in four fifths of the
-- hours with traffic the first one's prompts are what the second did not compute, within a tenth.
{% set group_keys = ['date', 'site', 'namespace', 'model'] %}

with engine_days as (

    select
        date,
        engine,
        coalesce(site, {{ unknown() }}) as site,
        coalesce(namespace, '') as namespace,
        model,
        role,
        role_basis,
        lower(coalesce(role_hint, '') || ' ' || coalesce(pod, '')) as cluster_names
    from {{ ref('int_engine_days') }}
    where level = 'engine'

),

token_intervals as (

    select * from {{ ref('int_token_intervals') }}

),

request_series as (

    select distinct series_id, engine from {{ ref('stg_series') }} where quantity = 'requests_finished'

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

request_days as (

    select
        cast(chunks.chunk_start_at as date) as date,
        coalesce(copies.engine, request_series.engine) as engine,
        sum(case when chunks.last_value > chunks.first_value then chunks.last_value - chunks.first_value else 0 end) as requests
    from {{ ref('stg_series_chunks') }} as chunks
    inner join request_series on chunks.series_id = request_series.series_id
    left join copies on chunks.series_id = copies.series_id and cast(chunks.chunk_start_at as date) = copies.date
    where chunks.chunk_start_at >= {{ run_start_at() }}
        and chunks.chunk_start_at < {{ run_end_at() }}
        and chunks.samples > 0
        and not coalesce(copies.is_redundant, false)
    group by 1, 2

),

token_days as (

    select
        date,
        engine,
        {{ exact_sum("case when token_class = 'input' then tokens end") }} as prompt_tokens,
        {{ exact_sum("case when token_class = 'computed_input' then tokens end") }} as computed_tokens,
        {{ exact_sum("case when token_class = 'transferred_input' then tokens end") }} as transferred_tokens,
        {{ exact_sum("case when token_class = 'output' then tokens end") }} as output_tokens
    from token_intervals
    group by date, engine

),

-- Where no source counts requests, a pool that writes one token per request writes at most one to twenty that it reads.
signs as (

    select
        engine_days.*,
        token_days.prompt_tokens,
        token_days.computed_tokens,
        token_days.transferred_tokens,
        case
            when coalesce(token_days.prompt_tokens, 0) = 0 then null
            when request_days.requests > 0 then token_days.output_tokens <= 1.05 * request_days.requests
            else coalesce(token_days.output_tokens, 0) <= 0.05 * token_days.prompt_tokens
        end as writes_one_token,
        case
            when request_days.requests > 0 then token_days.output_tokens > 2 * request_days.requests
            else token_days.output_tokens > 0.5 * token_days.prompt_tokens
        end as writes_answers,
        case
            when engine_days.role is not null then null
            -- Dynamo's vLLM workers that decode are its `backend`.
            when engine_days.cluster_names like 'backend %' then 'decode'
            when engine_days.cluster_names like '%prefill%' and engine_days.cluster_names not like '%decode%' then 'prefill'
            when engine_days.cluster_names like '%decode%' and engine_days.cluster_names not like '%prefill%' then 'decode'
        end as cluster_role
    from engine_days
    left join token_days on engine_days.date = token_days.date and engine_days.engine = token_days.engine
    left join request_days on engine_days.date = request_days.date and engine_days.engine = request_days.engine

),

-- An engine that shares its model with a prefill pool and receives what it computed decodes, whatever it is called.
named_groups as (

    select
        {{ group_keys | join(', ') }},
        max(case when coalesce(role, cluster_role) = 'prefill' then 1 else 0 end) = 1 as has_prefill,
        max(
            case
                when coalesce(role, cluster_role) = 'decode' or (role is null and transferred_tokens > 0) then 1
                else 0
            end
        ) = 1 as has_decode,
        max(
            case
                when coalesce(role, cluster_role) in ('prefill', 'decode') and coalesce(role_basis, '') <> 'fleet_file'
                    then 1
                else 0
            end
        ) = 1 as is_named_by_cluster,
        max(case when coalesce(role, cluster_role) = 'prefill' and writes_answers then 1 else 0 end) = 1 as has_prefill_that_answers,
        sum(case when coalesce(role, cluster_role) = 'prefill' then prompt_tokens end) as prefill_tokens,
        -- NULL: an engine that decodes does not report what it computed.
        case
            when count(case when coalesce(role, cluster_role) = 'decode' and computed_tokens is null then 1 end) = 0
                then sum(case when coalesce(role, cluster_role, '') <> 'prefill' then prompt_tokens - computed_tokens end)
        end as received_tokens
    from signs
    group by {{ group_keys | join(', ') }}

),

named_roles as (

    select
        signs.*,
        named_groups.has_prefill and named_groups.has_decode as is_pair,
        named_groups.has_prefill
        and named_groups.has_decode
        and named_groups.is_named_by_cluster
        and (named_groups.has_prefill_that_answers or coalesce(named_groups.received_tokens < 0.1 * named_groups.prefill_tokens, false))
        as is_contradicted
    from signs
    inner join named_groups on {{ equal_keys('signs', 'named_groups', group_keys) }}

),

-- Engines without a name for what they do: those that write one token per request, and those that may have received
-- what these computed.
candidates as (

    select
        *,
        case
            when writes_one_token then 'prefill'
            when transferred_tokens > 0 then 'decode'
            when prompt_tokens > 0 and computed_tokens is null and transferred_tokens is null then 'unsourced'
        end as part
    from named_roles
    where not is_pair and role is null

),

hours as (

    select
        candidates.date,
        candidates.site,
        candidates.namespace,
        candidates.model,
        {{ int_div('token_intervals.interval_number * ' ~ grid_us(), hour_us()) }} as hour_number,
        max(case when candidates.part = 'prefill' then 1 else 0 end) = 1 as has_prefill,
        max(case when candidates.part = 'decode' then 1 else 0 end) = 1 as has_decode,
        sum(
            case
                when candidates.part = 'prefill' and token_intervals.token_class = 'input' then token_intervals.tokens
                else 0
            end
        ) as prefill_tokens,
        sum(
            case
                when candidates.part = 'prefill' then 0
                when token_intervals.token_class = 'input' then token_intervals.tokens
                when token_intervals.token_class = 'computed_input' then -token_intervals.tokens
                else 0
            end
        ) as received_tokens
    from token_intervals
    inner join candidates
        on token_intervals.date = candidates.date and token_intervals.engine = candidates.engine and candidates.part is not null
    group by 1, 2, 3, 4, 5

),

pairs as (

    select
        {{ group_keys | join(', ') }},
        max(case when has_prefill then 1 else 0 end) = 1 as has_prefill,
        max(case when has_decode then 1 else 0 end) = 1 as has_decode,
        {{ ratio(
            'sum(case when abs(prefill_tokens - received_tokens) <= 0.1 * received_tokens then 1 else 0 end)',
            'count(*)'
        ) }} as agreeing_ratio
    from hours
    where prefill_tokens > 0 or received_tokens > 0
    group by {{ group_keys | join(', ') }}

),

assessed as (

    select
        named_roles.date,
        named_roles.engine,
        named_roles.site,
        named_roles.model,
        named_roles.role,
        named_roles.role_basis,
        named_roles.cluster_role,
        named_roles.is_pair,
        named_roles.is_contradicted and coalesce(named_roles.role_basis, '') <> 'fleet_file' as is_contradicted,
        named_roles.transferred_tokens,
        candidates.part,
        pairs.has_prefill and pairs.has_decode and pairs.agreeing_ratio >= 0.8 as is_counted_pair,
        -- Half of the hours agree, or the other pool does not report where its prompts came from: a pair, or not.
        pairs.has_prefill
        and (
            (pairs.has_decode and pairs.agreeing_ratio >= 0.5) or (not pairs.has_decode and pairs.agreeing_ratio >= 0.8)
        ) as is_perhaps_pair
    from named_roles
    left join candidates on named_roles.date = candidates.date and named_roles.engine = candidates.engine
    left join pairs on candidates.part is not null and {{ equal_keys('candidates', 'pairs', group_keys) }}

),

final as (

    select
        date,
        engine,
        site,
        model,
        case
            when is_contradicted then 'unified'
            when role is not null then role
            when is_pair then coalesce(cluster_role, case when transferred_tokens > 0 then 'decode' end, 'unified')
            when is_counted_pair and part in ('prefill', 'decode') then part
            else 'unified'
        end as role,
        case
            when is_contradicted then 'conflicting'
            when role is not null then role_basis
            when is_pair and cluster_role is not null then 'names'
            when is_pair and transferred_tokens > 0 then 'counters'
            when is_counted_pair and part in ('prefill', 'decode') then 'counters'
            when is_perhaps_pair and not coalesce(is_counted_pair, false) then 'conflicting'
            else 'none'
        end as role_basis
    from assessed

)

select * from final
