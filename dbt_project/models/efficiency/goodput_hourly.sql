-- How much of each hour's work kept its model's SLO, beside what it took: one by one where requests are known, else as
-- bounds from histograms.
{% set good = ['good_requests', 'good_output_tokens'] %}

with engine_hours as (

    select * from {{ ref('int_engine_hours') }}

),

histograms as (

    select * from {{ ref('int_histogram_goodput') }}

),

requests as (

    select * from {{ ref('int_request_goodput') }}

),

models as (

    select * from {{ source('fleet', 'models') }}

),

promises as (

    select * from models where ttft_slo_seconds is not null or tpot_slo_seconds is not null

),

assessed_requests as (

    select requests.*
    from requests
    inner join promises on requests.model = promises.model

),

-- Histograms answer for an hour if every engine that moved a token in it has them.
hours as (

    select
        engine_hours.date,
        engine_hours.hour_start_at,
        {{ columns_of('engine_hours', curve_keys()) }},
        {{ exact_sum('engine_hours.output_tokens') }} as output_tokens,
        {{ exact_sum('engine_hours.matched_gpu_seconds') }} as matched_gpu_seconds,
        {{ exact_sum('engine_hours.matched_joules') }} as matched_joules,
        {{ exact_sum('engine_hours.matched_output_tokens') }} as matched_output_tokens,
        case
            when count(engine_hours.matched_total_tokens) = count(engine_hours.matched_output_tokens)
                then {{ exact_sum('engine_hours.matched_total_tokens') }}
        end as matched_total_tokens,
        {{ exact_sum('engine_hours.busy_gpu_seconds') }} as busy_gpu_seconds,
        {{ exact_sum('engine_hours.observed_gpu_seconds') }} as observed_gpu_seconds,
        count(histograms.engine) > 0
        and max(case when histograms.engine is null and coalesce(engine_hours.output_tokens, 1) > 0 then 1 else 0 end)
            = 0 as has_histograms,
        max(histograms.tpot_basis) as tpot_basis,
        {%- for sum in ['requests', 'good_requests_low', 'good_requests_high', 'good_output_tokens_low', 'good_output_tokens_high'] %}
        {{ exact_sum('histograms.' ~ sum) }} as {{ sum }}{{ ',' if not loop.last }}
        {%- endfor %}
    from engine_hours
    left join histograms
        on engine_hours.hour_start_at = histograms.hour_start_at and engine_hours.engine = histograms.engine
    group by engine_hours.date, engine_hours.hour_start_at, {{ columns_of('engine_hours', curve_keys()) }}

),

assessed as (

    select
        hours.date,
        hours.hour_start_at,
        {{ columns_of('hours', curve_keys()) }},
        models.ttft_slo_seconds,
        models.tpot_slo_seconds,
        case when requests.date is not null then 'requests' when hours.has_histograms then 'histograms' end as goodput_basis,
        case
            when requests.date is not null and models.tpot_slo_seconds is not null then 'request_means'
            when hours.has_histograms then hours.tpot_basis
        end as tpot_basis,
        requests.requests_source,
        requests.failed_requests,
        requests.output_tokens as logged_output_tokens,
        {%- for sum in ['requests', 'good_requests_low', 'good_requests_high', 'good_output_tokens_low', 'good_output_tokens_high'] %}
        case
            when requests.date is not null then requests.{{ sum }}
            when hours.has_histograms then hours.{{ sum }}
        end as {{ sum }},
        {%- endfor %}
        hours.output_tokens,
        hours.matched_gpu_seconds,
        hours.matched_joules,
        hours.matched_output_tokens,
        hours.matched_total_tokens,
        hours.busy_gpu_seconds,
        hours.observed_gpu_seconds
    from hours
    left join models on hours.model = models.model
    left join assessed_requests as requests on {{ equal_keys('hours', 'requests', ['hour_start_at'] + curve_keys()) }}

),

-- Good tokens of the matched part of an hour: as many of them as of all its tokens.
matched as (

    select
        *,
        {%- for bound in ['low', 'high'] %}
        {{ exact('cast(good_output_tokens_' ~ bound ~ ' as double) * ' ~ ratio('matched_output_tokens', 'output_tokens')) }}
        as matched_good_output_tokens_{{ bound }}{{ ',' if not loop.last }}
        {%- endfor %}
    from assessed

),

final as (

    select
        date,
        hour_start_at,
        {{ curve_keys() | join(', ') }},
        ttft_slo_seconds,
        tpot_slo_seconds,
        goodput_basis,
        tpot_basis,
        requests_source,
        requests,
        failed_requests,
        good_requests_low,
        good_requests_high,
        logged_output_tokens,
        good_output_tokens_low,
        good_output_tokens_high,
        output_tokens,
        matched_gpu_seconds,
        matched_joules,
        matched_output_tokens,
        matched_total_tokens,
        matched_good_output_tokens_low,
        matched_good_output_tokens_high,
        busy_gpu_seconds,
        observed_gpu_seconds,
        {{ ratio('good_requests_low', 'requests') }} as good_request_ratio_low,
        {{ ratio('good_requests_high', 'requests') }} as good_request_ratio_high,
        {{ ratio('matched_output_tokens', 'matched_joules') }} as output_tokens_per_joule,
        {{ ratio('matched_good_output_tokens_low', 'matched_joules') }} as good_output_tokens_per_joule_low,
        {{ ratio('matched_good_output_tokens_high', 'matched_joules') }} as good_output_tokens_per_joule_high,
        {{ ratio('matched_joules', 'matched_good_output_tokens_high') }} as joules_per_good_output_token_low,
        {{ ratio('matched_joules', 'matched_good_output_tokens_low') }} as joules_per_good_output_token_high,
        {{ ratio('busy_gpu_seconds', 'observed_gpu_seconds') }} as gpu_utilization_ratio
    from matched

)

select * from final
