{{ config(
    severity='warn',
    meta={
        'description':
            'The bill of a whole month and what is computed for it differ by at most 2 %. Otherwise cost_usd '
            ~ 'stays what is computed, and billed_cost_usd what was billed.',
        'dagster': {'ref': {'name': 'cost_reconciliation_monthly'}},
        'expected': 'at most 2 % between the bill and the computed cost of a complete month',
        'remedy':
            'compare the prices of the fleet file (tariff, demand_charges, cost_rates, …) and the PUE with the '
            ~ 'invoice; if the invoice is wrong, claim the difference'
    }
) }}

select
    billing_month,
    site,
    kind,
    billed_usd,
    computed_cost_usd,
    difference_ratio
from {{ ref('cost_reconciliation_monthly') }}
where {{ in_run_months('billing_month') }}
    and is_booked_whole
    and billed_hours = month_hours
    and not is_prorated
    and abs(difference_ratio) > 0.02
