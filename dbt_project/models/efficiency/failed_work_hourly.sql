-- What requests without an answer cost: their share of the tokens of an hour, of its compute cost. Where only counts are
-- known there is no dollar.
{% set keys = ['date', 'hour_start_at', 'site', 'deployment', 'model', 'role'] %}
{% set of_log = ['requests', 'failed_requests', 'output_tokens', 'failed_output_tokens'] %}

with pressure as (

    select * from {{ ref('pressure_hourly') }} where {{ in_run('date') }}

),

request_goodput as (

    select * from {{ ref('int_request_goodput') }}

),

model_hours as (

    select * from {{ ref('model_hourly') }} where {{ in_run('date') }}

),

-- One log may name several device types of a deployment: only if it answers for each is it of the whole.
logs as (

    select
        {{ keys | join(', ') }},
        {{ joined_in_order('requests_source') }} as requests_source,
        {% for count in of_log -%}
        case when count({{ count }}) = count(*) then {{ exact_sum(count) }} end as {{ count }}{{ ',' if not loop.last }}
        {% endfor %}
    from request_goodput
    group by {{ keys | join(', ') }}

),

costs as (

    select
        {{ keys | join(', ') }},
        {{ exact_sum('output_tokens') }} as output_tokens,
        case when count(compute_cost_usd) = count(*) then {{ money_sum('compute_cost_usd') }} end as compute_cost_usd
    from model_hours
    group by {{ keys | join(', ') }}

),

joined as (

    select
        {{ columns_of('pressure', keys) }},
        logs.requests_source,
        logs.requests,
        logs.failed_requests,
        logs.output_tokens as logged_output_tokens,
        logs.failed_output_tokens,
        pressure.finished_requests,
        pressure.aborted_requests,
        pressure.preemptions,
        costs.output_tokens,
        costs.compute_cost_usd,
        -- A request is in the hour in which it began, and its tokens may be counted in the next one: a share is at most
        -- the whole.
        case
            when logs.failed_output_tokens = 0 then cast(0 as double)
            when logs.failed_output_tokens >= greatest(costs.output_tokens, logs.output_tokens) then cast(1 as double)
            else {{ ratio('logs.failed_output_tokens', 'greatest(costs.output_tokens, logs.output_tokens)') }}
        end as failed_token_ratio
    from pressure
    left join logs on {{ equal_keys('pressure', 'logs', keys) }}
    left join costs on {{ equal_keys('pressure', 'costs', keys) }}

),

final as (

    select
        {{ keys | join(', ') }},
        requests_source,
        requests,
        failed_requests,
        {{ ratio('failed_requests', 'requests') }} as failed_request_ratio,
        logged_output_tokens,
        failed_output_tokens,
        output_tokens,
        failed_token_ratio,
        finished_requests,
        aborted_requests,
        {{ ratio('aborted_requests', 'finished_requests') }} as aborted_request_ratio,
        preemptions,
        compute_cost_usd,
        {{ money('failed_token_ratio * cast(compute_cost_usd as double)') }} as failed_compute_cost_usd,
        case when failed_token_ratio * cast(compute_cost_usd as double) is not null then 'request_tokens' end as failed_cost_basis,
        case
            when failed_token_ratio is not null and compute_cost_usd is null then 'cost_not_known'
            when failed_token_ratio is not null then 'ok'
            when coalesce(failed_requests, aborted_requests, preemptions) is not null then 'only_counts'
            else 'not_reported'
        end as reason_code
    from joined

)

select * from final
