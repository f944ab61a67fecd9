-- Which platform serves a model cheapest at a speed for its users: the best published or own configuration of each,
-- under each selection of results, at each ownership's price.
{{ config(replaces='all') }}
{% set keys = work_keys() + ['selection', 'target_output_tokens_per_second_per_user'] %}

with assumptions as (

    select * from {{ ref('platform_assumptions') }}

),

platforms as (

    select * from {{ ref('platforms') }}

),

platform_prices as (

    select * from {{ ref('platform_prices') }}

),

results as (

    select
        *,
        row_number() over (order by source, result_id, run_url nulls last, measured_on nulls last, repetition) as result_number
    from {{ ref('platform_results') }}
    where is_comparable and is_latest

),

selections as (

    {{ selections(with_slo=true) }}

),

targets as (

    select distinct value as target_output_tokens_per_second_per_user
    from assumptions
    where assumption = 'target_output_tokens_per_second_per_user'

),

ownerships as (

    {% for ownership in ownerships() -%}
    select '{{ ownership }}' as ownership
    {{ 'union all' if not loop.last }}
    {% endfor %}

),

selected as (

    select
        selections.selection,
        {{ columns_of('results', work_keys()) }},
        results.platform,
        results.result_number,
        results.total_tokens_per_second_per_gpu,
        results.output_tokens_per_second_per_user,
        results.tpot_p99_seconds
    from results
    cross join selections
    where {{ is_selected('results', 'selections') }}

),

-- An SLO holds for 99 of 100 requests, not for the median: each token comes in the time that the target leaves.
candidates as (

    select
        targets.target_output_tokens_per_second_per_user,
        selected.*
    from selected
    cross join targets
    where selected.selection <> 'within_slo'
        or coalesce(selected.tpot_p99_seconds <= 1 / targets.target_output_tokens_per_second_per_user, false)

),

reached as (

    select
        {{ columns_of('candidates', keys) }},
        candidates.platform,
        max(candidates.output_tokens_per_second_per_user) as highest_output_tokens_per_second_per_user
    from candidates
    group by {{ columns_of('candidates', keys) }}, candidates.platform

),

chosen as (

    select
        {{ keys | join(', ') }},
        platform,
        result_number
    from candidates
    where output_tokens_per_second_per_user >= target_output_tokens_per_second_per_user
    qualify row_number() over (
        partition by {{ keys | join(', ') }}, platform
        order by total_tokens_per_second_per_gpu desc, output_tokens_per_second_per_user desc, result_number
    ) = 1

),

offered as (

    select
        works.*,
        selections.selection,
        targets.target_output_tokens_per_second_per_user,
        ownerships.ownership
    from (select distinct {{ work_keys() | join(', ') }}, platform, vendor from results) as works
    cross join selections
    cross join targets
    cross join ownerships

),

compared as (

    select
        {{ columns_of('offered', keys) }},
        offered.ownership,
        offered.platform,
        offered.vendor,
        reached.highest_output_tokens_per_second_per_user,
        best.source,
        best.benchmark,
        best.result_id,
        best.run_url,
        best.measured_on,
        best.architecture,
        best.framework,
        best.software,
        best.speculation,
        best.is_disaggregated,
        best.configuration,
        best.concurrency,
        best.gpus,
        best.output_tokens_per_second_per_user,
        best.ttft_p99_seconds,
        best.tpot_p99_seconds,
        best.total_tokens_per_second_per_gpu,
        best.provisioned_joules_per_token,
        best.measured_joules_per_token,
        best.power_basis,
        best.tokens_per_second_per_provisioned_mw,
        best.own_usd_per_mtok,
        platforms.provisioned_kw_per_gpu,
        prices.usd_per_gpu_hour,
        case when prices.usd_per_gpu_hour > 0
                then {{ ratio('prices.usd_per_gpu_hour', 'best.total_tokens_per_second_per_gpu * 3600') }} * 1e6
        end as usd_per_mtok,
        case
            when reached.platform is null then 'no_result_in_selection'
            when best.platform is null then 'target_not_reached'
            when prices.usd_per_gpu_hour is null then 'price_missing'
            when prices.usd_per_gpu_hour <= 0 then 'price_not_positive'
            else 'ok'
        end as reason
    from offered
    left join reached
        on {{ equal_keys('offered', 'reached', keys) }}
        and offered.platform = reached.platform
    left join chosen
        on {{ equal_keys('offered', 'chosen', keys) }}
        and offered.platform = chosen.platform
    left join results as best on chosen.result_number = best.result_number
    left join platforms on offered.platform = platforms.platform
    left join platform_prices as prices
        on offered.platform = prices.platform
        and offered.ownership = prices.ownership

),

final as (

    select
        {{ work_keys() | join(', ') }},
        selection,
        target_output_tokens_per_second_per_user,
        ownership,
        platform,
        vendor,
        reason,
        case when reason = 'ok' then cast(row_number() over (
            partition by {{ keys | join(', ') }}, ownership order by usd_per_mtok nulls last, platform
        ) as integer) end as cost_rank,
        usd_per_mtok,
        usd_per_gpu_hour,
        case when provisioned_joules_per_token is not null then cast(row_number() over (
            partition by {{ keys | join(', ') }}, ownership order by provisioned_joules_per_token nulls last, platform
        ) as integer) end as energy_rank,
        provisioned_joules_per_token,
        measured_joules_per_token,
        power_basis,
        tokens_per_second_per_provisioned_mw,
        total_tokens_per_second_per_gpu,
        output_tokens_per_second_per_user,
        highest_output_tokens_per_second_per_user,
        ttft_p99_seconds,
        tpot_p99_seconds,
        architecture,
        framework,
        software,
        speculation,
        is_disaggregated,
        configuration,
        concurrency,
        gpus,
        provisioned_kw_per_gpu,
        own_usd_per_mtok,
        measured_on,
        source,
        benchmark,
        result_id,
        run_url
    from compared

)

select * from final
