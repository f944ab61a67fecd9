{{ config(
    severity='warn',
    meta={
        'description':
            'The bill of a whole month and what is computed for it differ by at most 2 %. Otherwise cost_usd '
            ~ 'stays what is computed, and billed_cost_usd what was billed.',
        'expected': 'at most 2 % between the bill and the computed cost of a complete month',
        'remedy':
            'compare the prices of the fleet file (tariff, demand_charges, cost_rates, …) and the PUE with the '
            ~ 'invoice; if the invoice is wrong, claim the difference'
    }
) }}

{{ in_doubt_for('bill_differs', of_months=true) }}
