-- What is in doubt, of which entity, how much rests on it, and what to do: the doubts of each date, those of whole months,
-- and costs that are unusual. A month's doubt has the last date of the month.
{{ config(replaces='all') }}
{# By name: Spark has a table's date as its last column. #}
{% set columns %}
        date,
        reason,
        figure,
        direction,
        entity_kind,
        entity,
        since_at,
        until_at,
        doubted_joules,
        doubted_tokens,
        unbooked_tokens,
        doubted_usd,
        token_classes,
        meaning,
        evidence,
        remedy
{% endset %}

with dates as (

    select * from {{ ref('doubts_daily') }}

),

reasons as (

    select * from {{ ref('doubt_reasons') }}

),

sites as (

    select site, time_zone from {{ source('fleet', 'sites') }}

),

-- Only a whole month and a whole bill can be compared.
differing_bills as (

    select
        bills.billing_month,
        bills.site,
        abs(bills.difference_usd) as difference_usd,
        bills.kind || ': ' || {{ rounded_text('bills.billed_usd', 2) }} || ' USD billed, '
            || {{ rounded_text('bills.computed_cost_usd', 2) }} || ' computed' as evidence
    from {{ ref('cost_reconciliation_monthly') }} as bills
    where bills.is_booked_whole
        and bills.billed_hours = bills.month_hours
        and not bills.is_prorated
        and abs(bills.difference_ratio) > 0.02

),

unusual_costs as (

    select * from {{ ref('cost_anomalies_daily') }} where is_anomaly

),

of_money as (

    select
        cast(bills.billing_month + interval 1 month - interval 1 day as date) as date,
        'bill_differs' as reason,
        'site' as entity_kind,
        bills.site as entity,
        {{ utc_us_of_local('bills.billing_month', "coalesce(sites.time_zone, 'UTC')") }} as from_us,
        {{ utc_us_of_local('bills.billing_month + interval 1 month', "coalesce(sites.time_zone, 'UTC')") }} as to_us,
        {{ money_sum('bills.difference_usd') }} as doubted_usd,
        {{ joined_in_order('bills.evidence') }} as evidence
    from differing_bills as bills
    left join sites on bills.site = sites.site
    group by bills.billing_month, bills.site, sites.time_zone
    union all
    select
        date,
        'unusual_cost' as reason,
        'cost' as entity_kind,
        site || ' | ' || model || ' | ' || part as entity,
        {{ epoch_us('cast(date as ' ~ timestamp_type() ~ ')') }} as from_us,
        {{ epoch_us('cast(date as ' ~ timestamp_type() ~ ')') }} + {{ day_us() }} as to_us,
        cast({{ money('abs(difference_usd)') }} as {{ money_type() }}) as doubted_usd,
        {{ rounded_text('cost_usd', 2) }} || ' USD instead of ' || {{ rounded_text('usual_usd', 2) }} as evidence
    from unusual_costs

),

late as (

    select
        of_money.date,
        of_money.reason,
        reasons.figure,
        reasons.direction,
        of_money.entity_kind,
        of_money.entity,
        {{ from_epoch_us('of_money.from_us') }} as since_at,
        {{ from_epoch_us('of_money.to_us') }} as until_at,
        cast(null as {{ exact_type() }}) as doubted_joules,
        cast(null as {{ exact_type() }}) as doubted_tokens,
        cast(null as {{ exact_type() }}) as unbooked_tokens,
        of_money.doubted_usd,
        cast(null as {{ dbt.type_string() }}) as token_classes,
        reasons.meaning,
        of_money.evidence,
        reasons.remedy
    from of_money
    inner join reasons on of_money.reason = reasons.reason

),

final as (

    select
{{ columns }}
    from dates
    union all
    select
{{ columns }}
    from late

)

select * from final
