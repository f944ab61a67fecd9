{{ config(
    severity='warn',
    meta={
        'description':
            'Good requests and tokens are between none and all, and the low bound is not above the high one. From'
            ~ ' a log, the tokens are those of the log.',
        'dagster': {'ref': {'name': 'goodput_hourly'}},
        'expected': '0 <= good <= all, the low bound at most the high one',
        'remedy': 'look at the SLO histograms and request logs of this deployment in that hour'
    }
) }}

select
    date,
    hour_start_at,
    deployment,
    model,
    requests,
    good_requests_low,
    good_requests_high,
    good_output_tokens_low,
    good_output_tokens_high,
    coalesce(logged_output_tokens, output_tokens) as output_tokens,
    gpu_utilization_ratio
from {{ ref('goodput_hourly') }}
where {{ in_run('date') }}
    and not (
        coalesce(0 <= good_requests_low and good_requests_low <= good_requests_high and good_requests_high <= requests, true)
        and coalesce(0 <= good_output_tokens_low and good_output_tokens_low <= good_output_tokens_high, true)
        and coalesce(good_output_tokens_high <= coalesce(logged_output_tokens, output_tokens), true)
        and coalesce(0 <= gpu_utilization_ratio and gpu_utilization_ratio <= 1, true)
    )
