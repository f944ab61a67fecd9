-- Does the cost add up to the invoice: per billing month, site and kind of bill, what was billed beside what is
-- computed of the parts that it pays for.
{{ config(replaces='billing_months') }}

with bill_months as (

    select * from {{ ref('int_bill_months') }}

),

kinds as (

    select * from {{ ref('bill_kinds') }}

),

costs as (

    select * from {{ ref('cost_daily') }} where {{ in_run_months('billing_month') }} and basis = 'allocation' and is_cash

),

computed as (

    select
        costs.billing_month,
        costs.site,
        kinds.kind,
        {{ money_sum('costs.cost_usd') }} as computed_cost_usd
    from costs
    inner join kinds on costs.part = kinds.part
    group by costs.billing_month, costs.site, kinds.kind

),

-- A difference of other hours than those of the bill would mean nothing.
compared as (

    select
        bill_months.*,
        computed.computed_cost_usd,
        case
            when bill_months.billed_hours = bill_months.booked_hours then bill_months.billed_usd - computed.computed_cost_usd
        end as difference_usd
    from bill_months
    left join computed on {{ equal_keys('bill_months', 'computed', ['billing_month', 'site', 'kind']) }}
    where bill_months.billed_usd is not null or computed.computed_cost_usd is not null

),

final as (

    select
        billing_month,
        site,
        kind,
        cast(billed_usd as {{ money_type() }}) as billed_usd,
        cast(computed_cost_usd as {{ money_type() }}) as computed_cost_usd,
        cast(difference_usd as {{ money_type() }}) as difference_usd,
        {{ ratio('difference_usd', 'computed_cost_usd') }} as difference_ratio,
        cast(billed_hours as double) as billed_hours,
        cast(booked_hours as double) as booked_hours,
        cast(month_hours as double) as month_hours,
        is_prorated,
        is_booked_whole,
        cast('{{ var("method_version") }}' as {{ dbt.type_string() }}) as method_version
    from compared

)

select * from final
