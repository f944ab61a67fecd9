-- Each month at a glance: how much of it is booked, what it cost, and what it will have cost.
with hours as (

    select * from {{ ref('site_power_hourly') }}

),

costs as (

    select * from {{ ref('cost_daily') }}

),

forecasts as (

    select * from {{ source('computed', 'cost_forecast') }} where scope = 'site' and basis = 'allocation'

),

model_months as (

    select * from {{ ref('model_monthly') }}

),

energy as (

    select
        month,
        {{ plain_name('site', 'site') }} as site,
        {{ exact_sum('facility_energy_kwh') }} as facility_energy_kwh,
        {{ exact('cast(sum(location_gco2e) as double) / 1000') }} as location_kgco2e,
        bool_and(is_booked_whole) as is_booked_whole
    from model_months
    group by 1, 2

),

doubts as (

    {{ doubts_by('model_months', ['month', 'site']) }}

),

money_doubts as (

    select
        month,
        {{ plain_name('site', 'site') }} as site,
        string_agg(reason, ',' order by reason) as reasons
    from ({{ money_doubts(true) }}) as doubted
    group by 1, 2

),

intervals as (

    {{ intervals_by(['known_cost_usd', 'facility_energy_kwh', 'location_kgco2e'], has_model=false) }}

),

booked as (

    select
        billing_month as month,
        {{ plain_name('site', 'site') }} as site,
        sum(hour_seconds) / 3600 as booked_hours,
        max(month_hours) as month_hours
    from hours
    group by 1, 2

),

cost_months as (

    select
        billing_month as month,
        {{ plain_name('site', 'site') }} as site,
        {{ on_basis('fully_loaded') }} as known_cost_usd,
        {{ known_idle_cost() }} as idle_cost_usd,
        bool_and(is_cost_complete) as is_cost_complete
    from costs
    group by 1, 2

),

closings as (

    {{ active_closings() }}

),

closed_months as (

    select
        closed.month,
        closed.site,
        {{ money_sum('closed.closed_cost_usd') }} as closed_cost_usd
    from {{ source('published', 'closed_costs') }} as closed
    inner join closings on closed.event = closings.event
    group by closed.month, closed.site

),

adjustments as (

    select * from {{ source('published', 'adjustments') }}

),

adjusted_in as (

    {{ adjusted_in('adjustments', ['site']) }}

),

-- Sites with a cost or a meter; hours alone are those of a site at which there is nothing.
site_months as (

    select month, site from cost_months
    union
    select month, site from energy
    union
    select month, site from adjusted_in

),

in_usd as (

    select
        site_months.month,
        site_months.site,
        case
            when closings.month is null then 'open'
            when (site_months.month, site_months.site) in (select (month, site) from adjustments) then 'adjusted'
            else 'closed'
        end as status,
        closings.closed_at,
        coalesce(booked.booked_hours, 0) as booked_hours,
        booked.month_hours,
        coalesce({{ ratio('booked.booked_hours', 'booked.month_hours') }}, 0) as booked_ratio,
        coalesce(energy.is_booked_whole, false) as is_booked_whole,
        cast(
            case
                when closings.month is not null then closed_months.closed_cost_usd
                else coalesce(cost_months.known_cost_usd + coalesce(adjusted_in.adjustment_usd, 0), adjusted_in.adjustment_usd)
            end as {{ money_type() }}
        ) as closed_cost_usd,
        cast(coalesce(adjusted_in.adjustment_usd, 0) as {{ money_type() }}) as adjustment_usd,
        cost_months.known_cost_usd,
        intervals.known_cost_usd_low,
        intervals.known_cost_usd_high,
        cost_months.idle_cost_usd,
        forecasts.forecast_usd,
        forecasts.forecast_low_usd,
        forecasts.forecast_high_usd,
        energy.facility_energy_kwh,
        intervals.facility_energy_kwh_low,
        intervals.facility_energy_kwh_high,
        intervals.metered_ratio,
        energy.location_kgco2e,
        intervals.location_kgco2e_low,
        intervals.location_kgco2e_high,
        coalesce(cost_months.is_cost_complete, true) as is_cost_complete,
        doubts.doubted_energy_ratio,
        doubts.doubted_tokens_ratio,
        {{ with_money_reasons('doubts.doubt_reasons', 'money_doubts.reasons') }} as doubt_reasons,
        closings.figures_hash
    from site_months
    left join booked on {{ equal_keys('site_months', 'booked', ['month', 'site']) }}
    left join cost_months on {{ equal_keys('site_months', 'cost_months', ['month', 'site']) }}
    left join energy on {{ equal_keys('site_months', 'energy', ['month', 'site']) }}
    left join doubts on site_months.month = doubts.month and site_months.site = {{ plain_name('doubts.site', 'site') }}
    left join money_doubts on {{ equal_keys('site_months', 'money_doubts', ['month', 'site']) }}
    left join intervals on {{ equal_keys('site_months', 'intervals', ['month', 'site']) }}
    left join closings on site_months.month = closings.month
    left join closed_months on {{ equal_keys('site_months', 'closed_months', ['month', 'site']) }}
    left join adjusted_in on {{ equal_keys('site_months', 'adjusted_in', ['month', 'site']) }}
    left join forecasts on site_months.month = forecasts.billing_month and site_months.site = forecasts.scope_name

),

final as (

    {{ with_currency(['closed_cost_usd', 'adjustment_usd', 'known_cost_usd', 'idle_cost_usd', 'forecast_usd'], has_key=false) }}

)

select * from final
