-- How many requests of an hour were good and what failed ones had generated, one by one, from gateways, logs and load
-- tests: one row per hour and curve where a log covers what the engines counted. A request is in the hour in which it
-- began. Answers from the gateway's cache are no work of an engine.
{% set keys = curve_keys() %}
{% set counts = [
    'requests', 'failed_requests', 'good_requests_low', 'good_requests_high', 'output_tokens', 'good_output_tokens_low',
    'good_output_tokens_high', 'failed_output_tokens'
] %}

with raw_requests as (

    select
        *,
        cast(started_at as date) as date,
        date_trunc('hour', started_at) as hour_start_at
    from {{ source('raw', 'requests') }}
    where started_at >= {{ run_start_at() }} and started_at < {{ run_end_at() }} and not coalesce(is_gateway_cached, false)

),

models as (

    select * from {{ source('fleet', 'models') }}

),

model_aliases as (

    select * from {{ source('fleet', 'model_aliases') }}

),

engine_hours as (

    select * from {{ ref('int_engine_hours') }}

),

named as (

    select
        raw_requests.date,
        raw_requests.hour_start_at,
        raw_requests.source,
        engine_hours.engine,
        coalesce(engine_hours.model, model_aliases.model, {{ name_of_source('raw_requests.model') }}) as model,
        raw_requests.is_ok,
        raw_requests.ttft_seconds,
        raw_requests.end_to_end_seconds,
        raw_requests.output_tokens
    from raw_requests
    left join engine_hours
        on raw_requests.hour_start_at = engine_hours.hour_start_at and {{ name_of_source('raw_requests.engine') }} = engine_hours.engine
    left join model_aliases on raw_requests.model = model_aliases.alias

),

-- Where the log lacks a time and the other times do not decide, the result is NULL: neither good nor bad. A nanosecond
-- over an SLO is a rounding error of a double.
timed as (

    select
        named.*,
        case
            when models.ttft_slo_seconds is null then true
            when named.ttft_seconds is not null then named.ttft_seconds <= models.ttft_slo_seconds + 1e-9
            when named.end_to_end_seconds <= models.ttft_slo_seconds then true
        end as is_ttft_good,
        -- One token has no time per output token.
        case
            when models.tpot_slo_seconds is null or named.output_tokens <= 1 then true
            when named.ttft_seconds is not null
                then (named.end_to_end_seconds - named.ttft_seconds) / (named.output_tokens - 1) <= models.tpot_slo_seconds + 1e-9
            when named.end_to_end_seconds / (named.output_tokens - 1) <= models.tpot_slo_seconds then true
        end as is_tpot_good,
        case
            when named.ttft_seconds is null and named.output_tokens > 1
                then named.end_to_end_seconds <= models.ttft_slo_seconds + models.tpot_slo_seconds * (named.output_tokens - 1)
        end as is_end_to_end_possible
    from named
    left join models on named.model = models.model

),

assessed as (

    select
        *,
        is_ok and is_ttft_good and is_tpot_good and coalesce(is_end_to_end_possible, true) as is_good
    from timed

),

source_hours as (

    select
        date,
        hour_start_at,
        model,
        engine,
        source,
        {{ exact_sum('1') }} as requests,
        {{ exact_sum('case when is_ok then 0 when not is_ok then 1 end') }} as failed_requests,
        {{ exact_sum('case when is_good then 1 else 0 end') }} as good_requests_low,
        {{ exact_sum('case when coalesce(is_good, true) then 1 else 0 end') }} as good_requests_high,
        -- The tokens of a failed request are unknown.
        case
            when max(case when coalesce(is_ok, true) and output_tokens is null then 1 else 0 end) = 0
                then {{ exact_sum('coalesce(output_tokens, 0)') }}
        end as output_tokens,
        case
            when count(is_ok) > 0 and max(case when not is_ok and output_tokens is null then 1 else 0 end) = 0
                then {{ exact_sum('case when not is_ok then output_tokens else 0 end') }}
        end as failed_output_tokens,
        {{ exact_sum('case when is_good then coalesce(output_tokens, 0) else 0 end') }} as good_output_tokens_low,
        case
            when max(case when coalesce(is_good, true) and output_tokens is null then 1 else 0 end) = 0
                then {{ exact_sum('case when coalesce(is_good, true) then output_tokens else 0 end') }}
        end as good_output_tokens_high
    from assessed
    group by date, hour_start_at, model, engine, source

),

-- An answer counts where it was written. A model that two curves serve in one hour has no curve for requests that name
-- no engine.
served_models as (

    select *
    from (
        select distinct
            hour_start_at,
            {{ keys | join(', ') }}
        from engine_hours
        where role <> 'prefill'
    ) as served
    qualify count(*) over (partition by hour_start_at, model) = 1

),

placed as (

    {% for place, name in [('engine_hours', 'engine'), ('served_models', 'model')] -%}
    select
        source_hours.date,
        source_hours.hour_start_at,
        {{ columns_of(place, keys) }},
        source_hours.engine,
        source_hours.source,
        {{ columns_of('source_hours', counts) }}
    from source_hours
    inner join {{ place }} on {{ equal_keys('source_hours', place, ['hour_start_at', name]) }}
    {{ 'where source_hours.engine is null' if name == 'model' }}
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

),

-- A gateway and an engine may both have logged the same requests. So one source is used for an engine's hour, and for a
-- curve's hour either the logs of its engines or one that names none.
single_sources as (

    select *
    from placed
    qualify row_number() over (
        partition by hour_start_at, {{ keys | join(', ') }}, engine order by requests desc, source
    ) = 1

),

answers as (

    select
        date,
        hour_start_at,
        {{ keys | join(', ') }},
        {{ joined_in_order('source') }} as requests_source,
        {% for count in counts -%}
        case when count({{ count }}) = count(*) then {{ exact_sum(count) }} end as {{ count }},
        {% endfor -%}
        case when engine is null then 1 else 0 end as names_no_engine
    from single_sources
    group by date, hour_start_at, {{ keys | join(', ') }}, case when engine is null then 1 else 0 end

),

hours as (

    select *
    from answers
    qualify row_number() over (
        partition by hour_start_at, {{ keys | join(', ') }} order by requests desc, names_no_engine
    ) = 1

),

-- A log whose tokens differ by over 10 % from what the engines counted on the date is about other requests, or about
-- some of them only.
logged_dates as (

    select
        date,
        {{ keys | join(', ') }},
        case when count(output_tokens) = count(*) then sum(output_tokens) end as logged_tokens
    from hours
    group by date, {{ keys | join(', ') }}

),

counted_dates as (

    select
        date,
        {{ keys | join(', ') }},
        sum(output_tokens) as counted_tokens
    from engine_hours
    group by date, {{ keys | join(', ') }}

),

final as (

    select hours.*
    from hours
    inner join logged_dates on {{ equal_keys('hours', 'logged_dates', ['date'] + keys) }}
    inner join counted_dates on {{ equal_keys('hours', 'counted_dates', ['date'] + keys) }}
    where coalesce(
        least(logged_dates.logged_tokens, counted_dates.counted_tokens)
            >= 0.9 * greatest(logged_dates.logged_tokens, counted_dates.counted_tokens),
        true
    )

)

select * from final
