-- The logged requests of the run's dates, each once, under the names of who served it: what tenants and receipts are
-- summed from. One row per logged request; a request is in the hour in which it began. Answers from the gateway's cache
-- are no work of an engine. `site` and `deployment` are NULL where the log names no engine.
{# On Spark a view cannot read a temporary one, which raw tables are there. #}
{{ config(materialized='view' if target.type == 'duckdb' else 'table') }}
{% set source_keys = ['hour_start_at', 'model_key', 'source'] %}

with raw_requests as (

    select
        *,
        cast(started_at as date) as date,
        date_trunc('hour', started_at) as hour_start_at
    from {{ source('raw', 'requests') }}
    where started_at >= {{ run_start_at() }} and started_at < {{ run_end_at() }} and not coalesce(is_gateway_cached, false)

),

model_aliases as (

    select * from {{ source('fleet', 'model_aliases') }}

),

engine_hours as (

    select * from {{ ref('int_engine_hours') }}

),

engine_places as (

    {{ engine_places('engine_hours') }}

),

named as (

    select
        raw_requests.date,
        raw_requests.hour_start_at,
        raw_requests.source,
        raw_requests.request_id,
        raw_requests.started_at,
        raw_requests.ended_at,
        raw_requests.ttft_seconds,
        raw_requests.end_to_end_seconds,
        raw_requests.is_ok,
        engine_places.site,
        engine_places.deployment,
        coalesce(engine_places.model, model_aliases.model, {{ name_of_source('raw_requests.model') }}) as model,
        coalesce(engine_places.model, model_aliases.model, {{ name_of_source('raw_requests.model') }}, '') as model_key,
        {{ name_of_source('raw_requests.team') }} as request_team,
        coalesce({{ name_of_source('raw_requests.tenant') }}, {{ unknown() }}) as tenant,
        case when raw_requests.team is not null or raw_requests.tenant is not null then 1 else 0 end as names_who_asked,
        raw_requests.input_tokens,
        raw_requests.cached_input_tokens,
        raw_requests.output_tokens,
        case
            when raw_requests.tokens_basis = 'contradicted' then raw_requests.input_tokens + raw_requests.output_tokens
            else 0
        end as contradicted_tokens
    from raw_requests
    left join engine_places
        on raw_requests.hour_start_at = engine_places.hour_start_at and {{ name_of_source('raw_requests.engine') }} = engine_places.engine
    left join model_aliases on raw_requests.model = model_aliases.alias

),

source_hours as (

    select
        {{ source_keys | join(', ') }},
        max(names_who_asked) as names_who_asked
    from named
    group by {{ source_keys | join(', ') }}

),

-- A gateway and an engine may both have logged the same requests. So where one log of a model's hour names who asked,
-- those that do not are left out.
chosen_sources as (

    select *
    from source_hours
    qualify names_who_asked = max(names_who_asked) over (partition by hour_start_at, model_key)

),

final as (

    select
        {{ columns_of('named', [
            'date', 'hour_start_at', 'source', 'request_id', 'started_at', 'ended_at', 'ttft_seconds', 'end_to_end_seconds',
            'is_ok', 'site', 'deployment', 'model', 'request_team', 'tenant', 'names_who_asked', 'input_tokens',
            'cached_input_tokens', 'output_tokens', 'contradicted_tokens'
        ]) }}
    from named
    inner join chosen_sources on {{ equal_keys('named', 'chosen_sources', source_keys) }}

)

select * from final
