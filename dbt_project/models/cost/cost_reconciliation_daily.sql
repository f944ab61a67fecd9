-- The same by date: a bill is spread evenly over its time, so a day of low load costs less than its share and a busy
-- one more.
{{ config(replaces='billing_months') }}

with site_power as (

    select * from {{ ref('site_power_hourly') }} where {{ in_run_months('billing_month') }}

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

bills as (

    select * from {{ ref('stg_bills') }}

),

kinds as (

    select * from {{ ref('bill_kinds') }}

),

costs as (

    select * from {{ ref('cost_daily') }} where {{ in_run_months('billing_month') }} and basis = 'allocation' and is_cash

),

booked as (

    select
        date,
        billing_month,
        site,
        sum(hour_seconds) / 3600 as booked_hours
    from site_power
    group by date, billing_month, site

),

-- A UTC date of two local months is two spans.
spans as (

    select
        booked.*,
        greatest(
            {{ utc_us_of_local("booked.date", "'UTC'") }}, {{ utc_us_of_local("booked.billing_month", "coalesce(sites.time_zone, 'UTC')") }}
        ) as start_us,
        least(
            {{ utc_us_of_local("booked.date", "'UTC'") }} + {{ day_us() }},
            {{ utc_us_of_local("booked.billing_month + interval 1 month", "coalesce(sites.time_zone, 'UTC')") }}
        ) as end_us
    from booked
    left join sites on booked.site = sites.site

),

billed as (
    {{ billed_in('spans', ['date', 'billing_month', 'site']) }}
),

computed as (

    select
        costs.date,
        costs.billing_month,
        costs.site,
        kinds.kind,
        {{ money_sum('costs.cost_usd') }} as computed_cost_usd
    from costs
    inner join kinds on costs.part = kinds.part
    group by costs.date, costs.billing_month, costs.site, kinds.kind

),

final as (

    select
        spans.date,
        spans.billing_month,
        spans.site,
        all_kinds.kind,
        cast(billed.billed_usd as {{ money_type() }}) as billed_usd,
        cast(computed.computed_cost_usd as {{ money_type() }}) as computed_cost_usd,
        cast(
            case
                when billed.billed_us = spans.end_us - spans.start_us
                    then billed.billed_usd - computed.computed_cost_usd
            end as {{ money_type() }}
        ) as difference_usd,
        cast(billed.billed_us / 3.6e9 as double) as billed_hours,
        cast(spans.booked_hours as double) as booked_hours,
        cast('{{ var("method_version") }}' as {{ dbt.type_string() }}) as method_version
    from spans
    cross join (select distinct kind from kinds) as all_kinds
    left join billed on {{ equal_keys('spans', 'billed', ['date', 'billing_month', 'site']) }} and all_kinds.kind = billed.kind
    left join computed on {{ equal_keys('spans', 'computed', ['date', 'billing_month', 'site']) }} and all_kinds.kind = computed.kind
    where billed.billed_usd is not null or computed.computed_cost_usd is not null

)

select * from final
