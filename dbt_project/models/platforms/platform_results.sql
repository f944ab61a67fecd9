-- What accelerators were measured to do, by whoever published it and by the fleet's own load tests, in one vocabulary:
-- what a token cost there, and whether the row may be compared with others.
{{ config(replaces='all') }}

with assumptions as (

    select * from {{ ref('platform_assumptions') }}

),

platforms as (

    select * from {{ ref('platforms') }}

),

platform_prices as (

    select * from {{ ref('platform_prices') }}

),

benchmark_models as (

    select * from {{ ref('benchmark_models') }}

),

open_models as (

    select
        lower(model) as name,
        max(model) as model,
        max(case when active_parameters < parameters then 'mixture_of_experts' else 'dense' end) as architecture
    from {{ ref('models') }}
    group by lower(model)

),

model_aliases as (

    select
        alias,
        max(model) as model
    from {{ source('fleet', 'model_aliases') }}
    group by alias

),

footprints as (

    select * from {{ ref('model_footprints') }}

),

prices as (

    select
        platform,
        {%- for ownership in ownerships() %}
        max(case when ownership = '{{ ownership }}' then usd_per_gpu_hour end) as {{ ownership }}_usd_per_gpu_hour,
        {%- endfor %}
        min(usd_per_gpu_hour) as lowest_usd_per_gpu_hour,
        count(usd_per_gpu_hour) as ownerships
    from platform_prices
    group by platform

),

published as (

    select
        'published' as origin,
        benchmark in ('vllm_bench', 'sglang_bench', 'guidellm') as is_own,
        source,
        benchmark,
        result_id,
        run_url,
        measured_on,
        as_of,
        accelerator,
        accelerators as gpus,
        model as published_model,
        case
            when lower(architecture) like '%moe%' or lower(architecture) like '%mixture%' then 'mixture_of_experts'
            when lower(architecture) like 'dense%' then 'dense'
            when architecture is not null then 'other'
        end as published_architecture,
        precision,
        framework,
        software,
        scenario,
        speculation,
        is_disaggregated,
        configuration,
        concurrency,
        input_length_tokens,
        output_length_tokens,
        coalesce(
            total_tokens_per_second_per_gpu,
            {{ ratio('total_tokens_per_second', 'accelerators') }}
        ) as total_tokens_per_second_per_gpu,
        {{ ratio('output_tokens_per_second', 'accelerators') }} as output_tokens_per_second_per_gpu,
        output_tokens_per_second_per_user,
        ttft_p99_seconds,
        tpot_p99_seconds,
        end_to_end_seconds,
        {{ ratio('watts', 'accelerators') }} as watts_per_gpu,
        case when watts is not null then watts_basis end as measured_power_basis,
        cast(null as double) as own_usd_per_mtok,
        repetition,
        copies
    from {{ ref('int_benchmark_results') }}

),

-- A token that a cache served is no work: benchmarks have no such tokens.
own_phases as (

    select
        *,
        total_tokens - coalesce(cached_input_tokens, 0) as computed_tokens,
        {{ ratio('input_tokens - coalesce(cached_input_tokens, 0)', 'requests - coalesce(failed_requests, 0)') }} as mean_input_tokens,
        {{ ratio('output_tokens', 'requests - coalesce(failed_requests, 0)') }} as mean_output_tokens
    from {{ ref('load_test_phases') }}

),

own_windows as (

    select
        'own_window' as origin,
        true as is_own,
        phases.requests_source as source,
        'own_load_test' as benchmark,
        phases.window_id as result_id,
        cast(null as {{ dbt.type_string() }}) as run_url,
        phases.date as measured_on,
        phases.date as as_of,
        phases.device_type as accelerator,
        phases.gpus,
        phases.model as published_model,
        cast(null as {{ dbt.type_string() }}) as published_architecture,
        footprints.precision,
        cast(null as {{ dbt.type_string() }}) as framework,
        cast(null as {{ dbt.type_string() }}) as software,
        cast(null as {{ dbt.type_string() }}) as scenario,
        cast(null as {{ dbt.type_string() }}) as speculation,
        cast(null as boolean) as is_disaggregated,
        phases.engine as configuration,
        coalesce(phases.stated_concurrency, phases.mean_concurrency) as concurrency,
        phases.mean_input_tokens as input_length_tokens,
        phases.mean_output_tokens as output_length_tokens,
        {{ ratio('phases.computed_tokens', 'phases.duration_seconds * phases.gpus') }} as total_tokens_per_second_per_gpu,
        {{ ratio('phases.output_tokens', 'phases.duration_seconds * phases.gpus') }} as output_tokens_per_second_per_gpu,
        phases.output_tokens_per_second_per_user,
        phases.ttft_p99_seconds,
        phases.tpot_p99_seconds,
        phases.end_to_end_p50_seconds as end_to_end_seconds,
        {{ ratio('phases.mean_watts', 'phases.gpus') }} as watts_per_gpu,
        case
            when phases.mean_watts is null then null
            when phases.meter_scope = 'board' then 'measured_board'
            else 'measured_wall_node'
        end as measured_power_basis,
        {{ ratio('phases.compute_cost_usd', 'phases.computed_tokens') }} * 1e6 as own_usd_per_mtok,
        1 as repetition,
        1 as copies
    from own_phases as phases
    left join footprints on phases.model = footprints.model

),

gathered as (

    select * from published
    union all
    select * from own_windows

),

-- The platform whose name is a word of the accelerator's.
accelerators as (

    select
        names.accelerator,
        platforms.platform,
        platforms.vendor,
        platforms.provisioned_kw_per_gpu
    from (select distinct accelerator from gathered) as names
    inner join platforms on instr({{ as_words('names.accelerator') }}, ' ' || platforms.platform || ' ') > 0
    qualify row_number() over (partition by names.accelerator order by platforms.platform) = 1

),

named_models as (

    select
        names.published_model,
        coalesce(open_models.model, model_aliases.model, benchmark_models.model, names.published_model) as model,
        open_models.architecture
    from (select distinct published_model from gathered where published_model is not null) as names
    left join model_aliases on names.published_model = model_aliases.alias
    left join benchmark_models on lower(names.published_model) = lower(benchmark_models.name)
    left join open_models
        on {{ name_behind_prefixes('coalesce(model_aliases.model, benchmark_models.model, names.published_model)') }} = open_models.name

),

described as (

    select
        gathered.*,
        accelerators.platform,
        accelerators.vendor,
        accelerators.provisioned_kw_per_gpu,
        named_models.model,
        coalesce(gathered.published_architecture, named_models.architecture) as architecture,
        {{ ratio('gathered.concurrency * (gathered.input_length_tokens + gathered.output_length_tokens)', 'gathered.end_to_end_seconds') }}
        / nullif(gathered.total_tokens_per_second_per_gpu, 0) as implied_gpus
    from gathered
    left join accelerators on gathered.accelerator = accelerators.accelerator
    left join named_models on gathered.published_model = named_models.published_model

),

published_work as (

    select distinct
        model,
        precision,
        input_length_tokens,
        output_length_tokens
    from described
    where not is_own and input_length_tokens is not null and output_length_tokens is not null

),

-- Own requests have other lengths each time: they are compared with the published work whose lengths are near theirs.
near_work as (

    select
        own.model,
        own.precision,
        own.input_length_tokens,
        own.output_length_tokens,
        published_work.input_length_tokens as compared_input_length_tokens,
        published_work.output_length_tokens as compared_output_length_tokens
    from (select distinct model, precision, input_length_tokens, output_length_tokens from described where is_own) as own
    inner join published_work
        on own.model = published_work.model
        and own.precision = published_work.precision
        and abs(own.input_length_tokens - published_work.input_length_tokens)
        <= published_work.input_length_tokens * {{ assumed('length_tolerance_ratio') }}
        and abs(own.output_length_tokens - published_work.output_length_tokens)
        <= published_work.output_length_tokens * {{ assumed('length_tolerance_ratio') }}
    qualify row_number() over (
        partition by own.model, own.precision, own.input_length_tokens, own.output_length_tokens
        order by
            abs(own.input_length_tokens / published_work.input_length_tokens - 1)
            + abs(own.output_length_tokens / published_work.output_length_tokens - 1),
            published_work.input_length_tokens, published_work.output_length_tokens
    ) = 1

),

assessed as (

    select
        described.*,
        case
            when described.is_own then near_work.compared_input_length_tokens
            else described.input_length_tokens
        end as compared_input_length_tokens,
        case
            when described.is_own then near_work.compared_output_length_tokens
            else described.output_length_tokens
        end as compared_output_length_tokens,
        case
            when described.platform is null then 'unknown_platform'
            when described.gpus is null or described.gpus <= 0 then 'gpus_unknown'
            when greatest(described.implied_gpus / described.gpus, described.gpus / described.implied_gpus)
                > {{ assumed('gpus_misfit_ratio') }}
                then 'gpus_do_not_fit'
            when described.total_tokens_per_second_per_gpu is null or described.total_tokens_per_second_per_gpu <= 0
                then 'no_total_throughput'
            when described.output_tokens_per_second_per_user is null then 'no_interactivity'
            when described.model is null or described.precision is null then 'model_or_precision_unknown'
            when described.input_length_tokens is null or described.output_length_tokens is null then 'lengths_unknown'
            when described.is_own and near_work.model is null then 'lengths_differ'
        end as not_comparable_reason
    from described
    left join near_work
        on described.is_own
        and described.model = near_work.model
        and described.precision = near_work.precision
        and described.input_length_tokens = near_work.input_length_tokens
        and described.output_length_tokens = near_work.output_length_tokens

),

dated as (

    select
        *,
        row_number() over (
            partition by
                {{ configuration_keys() | join(', ') }}, coalesce(compared_input_length_tokens, input_length_tokens),
                coalesce(compared_output_length_tokens, output_length_tokens)
            order by measured_on desc nulls last, as_of desc, run_url desc nulls last, source, result_id, repetition
        ) = 1 as is_latest
    from assessed

),

-- A row is on the frontier if no other of the same work is as fast for a user and gives more tokens per accelerator.
fronted as (

    select
        *,
        not_comparable_reason is null and is_latest as is_ranked,
        max(case when not_comparable_reason is null and is_latest then total_tokens_per_second_per_gpu end) over (
            partition by {{ work_keys() | join(', ') }}
            order by
                output_tokens_per_second_per_user desc nulls last,
                total_tokens_per_second_per_gpu desc nulls last,
                result_id,
                run_url nulls last
            rows between unbounded preceding and 1 preceding
        ) as faster_tokens_per_second_per_gpu,
        max(case when not_comparable_reason is null and is_latest then total_tokens_per_second_per_gpu end) over (
            partition by platform, {{ work_keys() | join(', ') }}
            order by
                output_tokens_per_second_per_user desc nulls last,
                total_tokens_per_second_per_gpu desc nulls last,
                result_id,
                run_url nulls last
            rows between unbounded preceding and 1 preceding
        ) as faster_tokens_per_second_per_gpu_of_platform
    from dated

),

final as (

    select
        fronted.origin,
        fronted.source,
        fronted.benchmark,
        fronted.result_id,
        fronted.repetition,
        fronted.copies,
        fronted.run_url,
        fronted.measured_on,
        fronted.as_of,
        fronted.platform,
        fronted.vendor,
        fronted.accelerator,
        fronted.model,
        fronted.published_model,
        fronted.architecture,
        fronted.precision,
        fronted.framework,
        fronted.software,
        fronted.scenario,
        fronted.speculation,
        fronted.is_disaggregated,
        fronted.configuration,
        fronted.concurrency,
        fronted.input_length_tokens,
        fronted.output_length_tokens,
        fronted.compared_input_length_tokens,
        fronted.compared_output_length_tokens,
        fronted.gpus,
        fronted.implied_gpus,
        fronted.total_tokens_per_second_per_gpu,
        fronted.output_tokens_per_second_per_gpu,
        fronted.output_tokens_per_second_per_user,
        fronted.ttft_p99_seconds,
        fronted.tpot_p99_seconds,
        {{ ratio('fronted.provisioned_kw_per_gpu * 1000', 'fronted.total_tokens_per_second_per_gpu') }} as provisioned_joules_per_token,
        {{ ratio('fronted.watts_per_gpu', 'fronted.total_tokens_per_second_per_gpu') }} as measured_joules_per_token,
        {{ ratio('fronted.watts_per_gpu', 'fronted.output_tokens_per_second_per_gpu') }} as measured_joules_per_output_token,
        fronted.measured_power_basis as power_basis,
        {{ ratio(
            'fronted.total_tokens_per_second_per_gpu * 1000',
            'fronted.provisioned_kw_per_gpu'
        ) }} as tokens_per_second_per_provisioned_mw,
        {%- for ownership in ownerships() %}
        case when prices.{{ ownership }}_usd_per_gpu_hour > 0
                then {{ ratio('prices.' ~ ownership ~ '_usd_per_gpu_hour', 'fronted.total_tokens_per_second_per_gpu * 3600') }} * 1e6
        end as {{ ownership }}_usd_per_mtok,
        {%- endfor %}
        fronted.own_usd_per_mtok,
        case
            when fronted.platform is null then 'unknown_platform'
            when coalesce(prices.ownerships, 0) < {{ ownerships() | length }} then 'price_missing'
            when prices.lowest_usd_per_gpu_hour <= 0 then 'price_not_positive'
            when fronted.total_tokens_per_second_per_gpu is null or fronted.total_tokens_per_second_per_gpu <= 0 then 'no_total_throughput'
            else 'ok'
        end as cost_reason,
        fronted.is_latest,
        fronted.not_comparable_reason is null as is_comparable,
        coalesce(fronted.not_comparable_reason, 'ok') as comparable_reason,
        case
            when fronted.is_ranked
                then fronted.total_tokens_per_second_per_gpu
                    > coalesce(fronted.faster_tokens_per_second_per_gpu_of_platform, 0)
        end as is_on_platform_frontier,
        case when fronted.is_ranked then fronted.total_tokens_per_second_per_gpu > coalesce(fronted.faster_tokens_per_second_per_gpu, 0) end
        as is_on_frontier
    from fronted
    left join prices on fronted.platform = prices.platform

)

select * from final
