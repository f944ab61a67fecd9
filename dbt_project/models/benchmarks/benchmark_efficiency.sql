-- The curves of other people's benchmarks: what a token took in each published configuration, which one was the
-- cheapest, and which at its speed.
{{ config(replaces='all') }}

with results as (

    select * from {{ ref('int_benchmark_results') }} where watts > 0 and output_tokens_per_second > 0

),

configurations as (

    select
        source,
        benchmark,
        result_id,
        run_url,
        measured_on,
        repetition,
        model,
        scenario,
        accelerator,
        watts_basis,
        cast(accelerators as double) as accelerators,
        concurrency,
        output_tokens_per_second,
        output_tokens_per_second / accelerators as output_tokens_per_second_per_gpu,
        watts / accelerators as watts_per_gpu,
        watts / output_tokens_per_second as joules_per_output_token,
        {{ ratio('1', 'output_tokens_per_second_per_user') }} as inter_token_latency_seconds
    from results

),

compared as (

    select
        *,
        row_number() over (
            partition by source, model, scenario, accelerator, watts_basis
            order by
                joules_per_output_token,
                output_tokens_per_second desc,
                result_id,
                run_url nulls last,
                measured_on nulls last,
                repetition
        ) as cost_rank,
        min(joules_per_output_token) over (
            partition by source, model, scenario, accelerator, watts_basis, inter_token_latency_seconds is null
            order by inter_token_latency_seconds, joules_per_output_token, result_id, run_url nulls last, measured_on nulls last, repetition
            rows between unbounded preceding and 1 preceding
        ) as faster_joules_per_output_token
    from configurations

),

final as (

    select
        source,
        benchmark,
        result_id,
        run_url,
        measured_on,
        repetition,
        model,
        scenario,
        accelerator,
        watts_basis,
        accelerators,
        concurrency,
        inter_token_latency_seconds,
        output_tokens_per_second_per_gpu,
        watts_per_gpu,
        joules_per_output_token,
        cost_rank = 1 as is_cheapest,
        case
            when inter_token_latency_seconds is not null
                then faster_joules_per_output_token is null or joules_per_output_token < faster_joules_per_output_token
        end as is_cheapest_as_fast
    from compared

)

select * from final
