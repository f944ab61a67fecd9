-- Who pays for each month: the team of the requests, else of the deployment, with what it got for it.
with known as (

    {{ known_chargebacks() }}

),

closings as (

    {{ active_closings() }}

),

frozen as (

    {{ frozen_rows('closed_chargebacks', chargeback_names()) }}

),

adjusted as (

    {{ adjusted_in('chargeback_adjustments', chargeback_names()) }}

),

amounts as (

    {{ closed_and_known(chargeback_names()) }}

),

used as (

    select
        *,
        {{ chargeback_month() }} as month,
        {{ chargeback_key() }} as marts_key
    from {{ ref('tenant_daily') }}

),

days as (

    select * from {{ ref('model_daily') }}

),

hours as (

    select
        *,
        {{ chargeback_month() }} as month
    from {{ ref('model_hourly') }}

),

intervals as (

    {{ intervals_by(['facility_energy_kwh', 'location_kgco2e']) }}

),

drivers as (

    select * from {{ ref('cost_drivers_hourly') }}

),

scope2 as (

    select * from {{ ref('site_scope2_hourly') }}

),

-- A UTC date may have hours of two local months.
month_days as (

    select
        date,
        month,
        {% for key in model_keys() -%}
        {{ key }},
        {% endfor -%}
        {{ exact_sum('energy_joules') }} as energy_joules,
        {{ exact_sum('facility_energy_kwh') }} as facility_energy_kwh
    from hours
    group by all

),

cut_dates as (

    select date, site from month_days group by date, site having count(distinct month) > 1

),

-- Which part of such a date's market-based CO2 each month emitted: the site's of each hour, by kWh.
market_parts as (

    select
        drivers.date,
        drivers.billing_month as month,
        {% for key in model_keys() -%}
        drivers.{{ key }},
        {% endfor -%}
        sum(cast(drivers.facility_energy_kwh as double) * {{ ratio('scope2.scope2_market_gco2e', 'scope2.facility_energy_kwh') }})
            as month_gco2e
    from drivers
    inner join cut_dates on drivers.date = cut_dates.date and drivers.site = cut_dates.site
    inner join scope2 on {{ equal_keys('drivers', 'scope2', ['site', 'hour_start_at', 'local_date']) }}
    group by all

),

market_ratios as (

    select
        *,
        {{ ratio('month_gco2e', 'sum(month_gco2e) over (partition by date, ' ~ model_keys() | join(', ') ~ ')') }} as month_ratio
    from market_parts

),

-- Of a model's date, who has which part of the joules has it of what follows them.
followed as (

    select
        used.month,
        used.marts_key,
        used.site || ' | ' || used.model as model_key,
        {{ exact('cast(used.energy_joules as double) * ' ~ ratio('month_days.facility_energy_kwh', 'month_days.energy_joules')) }}
        as facility_energy_kwh,
        {% for end in ['low', 'high'] -%}
        cast(coalesce(used.energy_joules_at_{{ end }}_weight, used.energy_joules) as double)
            * {{ ratio('month_days.facility_energy_kwh', 'month_days.energy_joules') }} as {{ end }}_weight_kwh,
        {% endfor -%}
        {{ exact(
            'cast(used.energy_joules as double) * coalesce(market_ratios.month_ratio, 1) * '
                ~ ratio('days.market_gco2e', 'month_days.energy_joules')
        ) }} as market_gco2e
    from used
    left join month_days
        on used.date = month_days.date
        and used.month = month_days.month
        {% for key in model_keys() -%}
        and used.{{ key }} is not distinct from month_days.{{ key }}
        {% endfor -%}
    left join market_ratios
        on used.date = market_ratios.date
        and used.month = market_ratios.month
        {% for key in model_keys() -%}
        and used.{{ key }} is not distinct from market_ratios.{{ key }}
        {% endfor -%}
    left join days
        on used.date = days.date
        {% for key in model_keys() -%}
        and used.{{ key }} is not distinct from days.{{ key }}
        {% endfor -%}
    where used.energy_joules > 0

),

footprints as (

    select
        month,
        marts_key,
        max(model_key) as model_key,
        case when count(facility_energy_kwh) = count(*) then {{ exact_sum('facility_energy_kwh') }} end as facility_energy_kwh,
        {% for end in ['low', 'high'] -%}
        {{ ratio('sum(' ~ end ~ '_weight_kwh)', 'sum(facility_energy_kwh)') }} as {{ end }}_weight_ratio,
        {% endfor -%}
        case when count(market_gco2e) = count(*) then {{ exact('cast(sum(market_gco2e) as double) / 1000') }} end as market_kgco2e
    from followed
    group by month, marts_key

),

-- What the meters leave open, and what the weights do.
widened as (

    select
        footprints.*,
        {% for figure in ['facility_energy_kwh', 'location_kgco2e'] -%}
        case
            when intervals.{{ figure }}_low_ratio is not null then greatest(1 - sqrt(
                power(1 - intervals.{{ figure }}_low_ratio, 2)
                + power(1 - least(low_weight_ratio, high_weight_ratio, 1), 2)
            ), 0)
        end as {{ figure }}_low_ratio,
        1 + sqrt(
            power(intervals.{{ figure }}_high_ratio - 1, 2)
            + power(greatest(low_weight_ratio, high_weight_ratio, 1) - 1, 2)
        ) as {{ figure }}_high_ratio{{ ',' if not loop.last }}
        {% endfor %}
    from footprints
    left join intervals on footprints.month = intervals.month and footprints.model_key = intervals.marts_key

),

doubts as (

    {{ doubts_by('used', ['month', 'marts_key'], tokens=tenant_tokens()) }}

),

-- What a bill is about is in every row of its site; an unused commitment has a row of its own.
money_doubts as (

    select
        month,
        {{ plain_name('site', 'site') }} as site,
        reason
    from ({{ money_doubts() }}) as doubted

),

money_reasons as (

    select
        amounts.month,
        amounts.marts_key,
        string_agg(money_doubts.reason, ',' order by money_doubts.reason) as reasons
    from amounts
    inner join money_doubts
        on {{ equal_keys('amounts', 'money_doubts', ['month', 'site']) }}
        and (money_doubts.reason = 'bill_differs' or amounts.payer = {{ plain_name(unused_commitment(), 'deployment') }})
    group by amounts.month, amounts.marts_key

),

contract_prices as (

    select * from {{ source('fleet', 'contract_prices') }}

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

{{ tenant_sales(['month', 'marts_key']) }},

-- Known where each token has a price.
revenues as (

    select
        month,
        marts_key,
        case when count(revenue_usd) = count(*) and bool_or(has_contract) then {{ money_sum(money('revenue_usd')) }} end as revenue_usd
    from sold
    where tenant not in ({{ unattributed() }}, {{ no_requests() }})
    group by month, marts_key

),

tenant_names as (

    select * from {{ source('raw', 'tenant_names') }}

),

in_usd as (

    select
        amounts.month,
        amounts.site,
        amounts.payer,
        coalesce(tenant_names.tenant, amounts.tenant) as tenant,
        amounts.tenant as tenant_key,
        amounts.model,
        known.requests,
        known.input_tokens,
        known.cached_input_tokens,
        known.output_tokens,
        known.energy_kwh,
        widened.facility_energy_kwh,
        widened.facility_energy_kwh * widened.facility_energy_kwh_low_ratio as facility_energy_kwh_low,
        widened.facility_energy_kwh * widened.facility_energy_kwh_high_ratio as facility_energy_kwh_high,
        known.location_kgco2e,
        known.location_kgco2e * widened.location_kgco2e_low_ratio as location_kgco2e_low,
        known.location_kgco2e * widened.location_kgco2e_high_ratio as location_kgco2e_high,
        widened.market_kgco2e,
        cast(amounts.closed_cost_usd as {{ money_type() }}) as closed_cost_usd,
        cast(amounts.adjustment_usd as {{ money_type() }}) as adjustment_usd,
        cast(amounts.known_cost_usd as {{ money_type() }}) as known_cost_usd,
        known.allocation_cost_usd,
        known.usage_cost_usd,
        revenues.revenue_usd,
        cast(revenues.revenue_usd - amounts.known_cost_usd as {{ money_type() }}) as margin_usd,
        coalesce(known.is_cost_complete, true) as is_cost_complete,
        doubts.doubted_energy_ratio,
        doubts.doubted_tokens_ratio,
        {{ with_money_reasons('doubts.doubt_reasons', 'money_reasons.reasons') }} as doubt_reasons,
        amounts.marts_key
    from amounts
    left join known on {{ equal_keys('amounts', 'known', ['month'] + chargeback_names()) }}
    left join widened on amounts.month = widened.month and amounts.marts_key = widened.marts_key
    left join doubts on amounts.month = doubts.month and amounts.marts_key = doubts.marts_key
    left join money_reasons on {{ equal_keys('amounts', 'money_reasons', ['month', 'marts_key']) }}
    left join tenant_names on amounts.tenant = tenant_names.tenant_key
    left join revenues on amounts.month = revenues.month and amounts.marts_key = revenues.marts_key

),

final as (

    {{ with_currency([
        'closed_cost_usd', 'adjustment_usd', 'known_cost_usd', 'allocation_cost_usd', 'usage_cost_usd', 'revenue_usd', 'margin_usd'
    ]) }}

)

select * from final
