-- Each month's invoices beside what is computed for the same hours.
with reconciled as (

    select * from {{ ref('cost_reconciliation_monthly') }}

),

in_usd as (

    select
        billing_month as month,
        {{ plain_name('site', 'site') }} as site,
        kind,
        billed_usd,
        computed_cost_usd as computed_usd,
        difference_usd,
        difference_ratio,
        billed_hours,
        booked_hours,
        month_hours,
        is_prorated,
        is_booked_whole
    from reconciled

),

final as (

    {{ with_currency(['billed_usd', 'computed_usd', 'difference_usd'], has_key=false) }}

)

select * from final
