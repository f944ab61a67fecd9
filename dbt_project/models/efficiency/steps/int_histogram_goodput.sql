-- How many of an engine's requests of an hour were good, by its histograms: how many met each SLO, not which. How many
-- met both is known only within Fréchet's bounds, max(0, a + b - 1) and min(a, b).
with readings as (

    select * from {{ ref('int_bucket_readings') }}

),

choices as (

    select * from {{ ref('int_bucket_choices') }}

),

engine_hours as (

    select * from {{ ref('int_engine_hours') }}

),

models as (

    select * from {{ source('fleet', 'models') }}

),

{{ counter_step_ctes('readings') }},

{{ counter_cell_ctes(hour_us()) }},

counts as (

    select
        choices.date,
        choices.engine,
        counter_cells.cell_number,
        choices.criterion,
        max(choices.level) as level,
        max(choices.latency_basis) as latency_basis,
        {{ exact_sum('case when choices.is_all then counter_cells.risen end') }} as counted,
        {{ exact_sum('case when choices.is_below then counter_cells.risen else 0 end') }} as within_low,
        {{ exact_sum('case when choices.is_above then counter_cells.risen else 0 end') }} as within_high
    from counter_cells
    inner join choices
        on counter_cells.reading_id = choices.reading_id
        and {{ int_div('counter_cells.cell_number * ' ~ hour_us(), day_us()) }}
            = {{ int_div(epoch_us('cast(choices.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
    group by choices.date, choices.engine, counter_cells.cell_number, choices.criterion

),

-- Without a request in the hour it is unknown.
shares as (

    select
        *,
        case when counted > 0 then least({{ ratio('within_low', 'counted') }}, 1) else 0 end as share_low,
        case when counted > 0 then least({{ ratio('within_high', 'counted') }}, 1) else 1 end as share_high
    from counts

),

-- The first token of an answer is the prefill's work, the others the decoder's; a frontend before both sees what the
-- user sees.
assessed as (

    select
        engine_hours.*,
        models.context_tokens,
        ttft.counted as ttft_counted,
        tpot.counted as tpot_counted,
        tpot.latency_basis as tpot_basis,
        models.ttft_slo_seconds is not null
            and (engine_hours.role <> 'decode' or coalesce(ttft.level, tpot.level) = 'frontend') as needs_ttft,
        models.tpot_slo_seconds is not null and engine_hours.role <> 'prefill' as needs_tpot,
        ttft.share_low as ttft_share_low,
        ttft.share_high as ttft_share_high,
        tpot.share_low as tpot_share_low,
        tpot.share_high as tpot_share_high
    from engine_hours
    inner join models on engine_hours.model = models.model
    left join shares as ttft
        on ttft.criterion = 'ttft'
        and engine_hours.engine = ttft.engine
        and {{ epoch_us('engine_hours.hour_start_at') }} = ttft.cell_number * {{ hour_us() }}
    left join shares as tpot
        on tpot.criterion = 'tpot'
        and engine_hours.engine = tpot.engine
        and {{ epoch_us('engine_hours.hour_start_at') }} = tpot.cell_number * {{ hour_us() }}

),

-- Requests are counted at their end. An engine that reports only gaps between tokens has them counted at their first
-- token.
joined as (

    select
        *,
        case when needs_tpot and tpot_basis = 'request_means' then tpot_counted else ttft_counted end as requests,
        greatest(
            case when needs_ttft then ttft_share_low else 1 end + case when needs_tpot then tpot_share_low else 1 end - 1, 0
        ) as good_share_low,
        least(case when needs_ttft then ttft_share_high else 1 end, case when needs_tpot then tpot_share_high else 1 end) as good_share_high
    from assessed
    where (needs_ttft or needs_tpot)
        and (not needs_ttft or ttft_counted is not null)
        and (not needs_tpot or tpot_counted is not null)

),

bounded as (

    select
        *,
        {{ exact('cast(requests as double) * good_share_low') }} as good_requests_low,
        {{ exact('cast(requests as double) * good_share_high') }} as good_requests_high
    from joined
    where requests is not null

),

-- A histogram does not show how many tokens a good request had. The bounds assume at least one and at most the model's
-- context.
final as (

    select
        date,
        hour_start_at,
        engine,
        case when needs_tpot then tpot_basis end as tpot_basis,
        requests,
        good_requests_low,
        good_requests_high,
        case
            when role = 'prefill' or output_tokens is null then null
            when requests = 0 then 0
            when good_requests_low = requests then output_tokens
            else least(output_tokens, greatest(good_requests_low, {{ exact(
                'coalesce(cast(output_tokens as double) - cast(requests - good_requests_low as double) * context_tokens, 0)'
            ) }}))
        end as good_output_tokens_low,
        case
            when role = 'prefill' or output_tokens is null then null
            when requests = 0 then output_tokens
            else least(greatest(output_tokens - (requests - good_requests_high), 0), coalesce({{ exact(
                'cast(good_requests_high as double) * context_tokens'
            ) }}, output_tokens))
        end as good_output_tokens_high
    from bounded

)

select * from final
