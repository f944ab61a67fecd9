{{ config(
    severity='warn',
    meta={
        'description':
            'J/token uses intervals with power and tokens only: its parts never exceed the whole, and without a '
            ~ 'token it is NULL, not 0.',
        'expected': 'matched parts at most the whole, and no quotient without a token',
        'remedy': 'report this row to the maintainers; its joules are still booked exactly once'
    }
) }}

select
    date,
    site,
    deployment,
    energy_joules,
    matched_joules,
    output_tokens,
    matched_output_tokens,
    joules_per_output_token
from {{ ref('model_daily') }}
where {{ in_run('date') }}
    and not (
        coalesce(matched_joules, 0) <= coalesce(productive_joules + idle_joules, 0)
        and coalesce(matched_productive_joules, 0) <= coalesce(productive_joules, 0)
        and coalesce(matched_output_tokens, 0) <= coalesce(output_tokens, 0)
        and coalesce(matched_total_tokens, 0) <= coalesce(total_tokens, 0)
        and (joules_per_output_token is null) = (matched_joules is null or coalesce(matched_output_tokens, 0) = 0)
        and (joules_per_total_token is null) = (matched_joules is null or coalesce(matched_total_tokens, 0) = 0)
        and (compute_cost_usd_per_output_mtok is null)
        = (matched_compute_cost_usd is null or coalesce(priced_output_tokens, 0) = 0 or coalesce(shared_tokens, 0) > 0)
    )
