-- The budget of each billing month that has a cost: one row per billing month and budget. Of the entries of one name,
-- the newest that is valid counts.

with budgets as (

    select * from {{ source('fleet', 'budgets') }}

),

months as (

    select distinct billing_month from {{ ref('int_advised_months') }}

),

valid as (

    select
        months.billing_month,
        budgets.*
    from months
    inner join budgets on months.billing_month >= budgets.valid_from
    qualify row_number() over (partition by months.billing_month, budgets.budget order by budgets.valid_from desc) = 1

),

final as (

    select
        billing_month,
        budget,
        scope,
        scope_name,
        basis,
        usd_per_month as budget_usd
    from valid
    where valid_to is null or billing_month < valid_to

)

select * from final
