-- Where receipts and balancing rows are not the book, or a logged request has no receipt or more than one: one row per
-- date, model and fact. A date with a row is not kept (pipelines/receipts).
{% set facts = receipt_facts() %}

with receipts as (

    select * from {{ ref('int_receipts') }}

),

balances as (

    select * from {{ ref('int_receipt_balances') }}

),

requests as (

    select * from {{ ref('int_requests') }} where {{ receipts_are_kept() }}

),

days as (

    select * from {{ ref('model_daily') }} where {{ in_run('date') }} and {{ receipts_are_kept() }}

),

amounts as (

    {% for fact in facts -%}
    select
        date,
        model,
        '{{ fact }}' as fact,
        cast(coalesce({{ fact }}, 0) + coalesce(idle_{{ fact }}, 0) as {{ money_type() }}) as found,
        cast(0 as {{ money_type() }}) as expected
    from (select *, own_energy_joules as energy_joules from receipts) as of_receipts
    union all
    select
        date,
        model,
        '{{ fact }}' as fact,
        cast(coalesce({{ fact }}, 0) as {{ money_type() }}) as found,
        cast(0 as {{ money_type() }}) as expected
    from balances
    union all
    select
        date,
        model,
        '{{ fact }}' as fact,
        cast(0 as {{ money_type() }}) as found,
        cast(coalesce({{ fact }}, 0) as {{ money_type() }}) as expected
    from days
    union all
    {% endfor -%}
    select
        date,
        model,
        'requests' as fact,
        cast(1 as {{ money_type() }}) as found,
        cast(0 as {{ money_type() }}) as expected
    from receipts
    union all
    select
        date,
        coalesce(model, {{ unknown() }}) as model,
        'requests' as fact,
        cast(0 as {{ money_type() }}) as found,
        cast(1 as {{ money_type() }}) as expected
    from requests

),

final as (

    select
        date,
        model,
        fact,
        cast(sum(found) as double) as found,
        cast(sum(expected) as double) as expected
    from amounts
    group by date, model, fact
    having sum(found) <> sum(expected)

)

select * from final
