-- Which cost is unusual: each date of the lookback against the 28 dates before it, the fleet's and that of each model
-- and part, with the model and part that moved most. A cost is compared with its own weekday, so a dip of every weekend
-- is usual. It warns; no date is held back for it.
{{ config(replaces='all') }}
{% set keys = ['scope', 'site', 'model', 'part'] %}

with days as (

    select * from {{ ref('int_model_cost_days') }} where cost_usd is not null

),

lookback as (

    select as_of_date from {{ ref('int_lookback') }}

),

lookback_dates as (

    select * from {{ ref('int_lookback_dates') }}

),

series as (

    select
        'model_part' as scope,
        site,
        model,
        part,
        date,
        day_number,
        cost_usd
    from days
    union all
    select
        'fleet' as scope,
        {{ whole_fleet() }} as site,
        {{ whole_fleet() }} as model,
        {{ whole_fleet() }} as part,
        date,
        day_number,
        {{ money_sum('cost_usd') }} as cost_usd
    from days
    group by date, day_number

),

dates as (

    select distinct
        days.date,
        days.day_number
    from days
    inner join lookback_dates on days.date = lookback_dates.date

),

trailing_days as (

    select
        {{ columns_of('series', keys) }},
        dates.date,
        dates.day_number,
        (dates.day_number - series.day_number) % 7 as weekdays_apart,
        cast(series.cost_usd as double) as usd
    from dates
    inner join series
        on series.day_number < dates.day_number and series.day_number >= dates.day_number - {{ var('curve_lookback_days') }}

),

weekday_medians as (

    select
        {{ keys | join(', ') }},
        date,
        weekdays_apart,
        percentile_cont(0.5) within group (order by usd) as usual_usd
    from trailing_days
    group by {{ keys | join(', ') }}, date, weekdays_apart

),

-- Each weekday has its own median, which follows its few dates: n dates less the number of weekdays are free to
-- deviate.
histories as (

    select
        {{ columns_of('trailing_days', keys) }},
        trailing_days.date,
        count(*) as history_days,
        max(case when trailing_days.weekdays_apart = 0 then weekday_medians.usual_usd end) as usual_usd,
        {{ spreads_per_deviation() }} * percentile_cont(0.5) within group (order by abs(trailing_days.usd - weekday_medians.usual_usd))
        * sqrt({{ ratio('count(*)', 'count(*) - count(distinct trailing_days.weekdays_apart)') }}) as spread_usd
    from trailing_days
    inner join weekday_medians on {{ equal_keys('trailing_days', 'weekday_medians', keys + ['date', 'weekdays_apart']) }}
    group by {{ columns_of('trailing_days', keys) }}, trailing_days.date

),

-- What had a cost and has none any more has no row, and may still be what moved most.
compared as (

    select
        dates.date,
        {% for key in keys -%}
        all_keys.{{ key }},
        {% endfor -%}
        series.cost_usd,
        coalesce(histories.history_days, 0) as history_days,
        case when histories.history_days >= {{ least_history_days() }} then histories.usual_usd end as usual_usd,
        case when histories.history_days >= {{ least_history_days() }} then histories.spread_usd end as spread_usd,
        coalesce(cast(series.cost_usd as double), 0) - coalesce(histories.usual_usd, 0) as moved_usd
    from dates
    inner join (
        select {{ keys | join(', ') }}, date from histories
        union
        select {{ keys | join(', ') }}, date from series
    ) as all_keys on dates.date = all_keys.date
    left join series on {{ equal_keys('all_keys', 'series', keys + ['date']) }}
    left join histories on {{ equal_keys('all_keys', 'histories', keys + ['date']) }}

),

-- What a difference is to the fleet: a part of few dollars may double without anything to look at.
fleet_days as (

    select
        date,
        usual_usd
    from compared
    where scope = 'fleet'

),

movers as (

    select
        date,
        site,
        model,
        part,
        moved_usd,
        row_number() over (partition by date order by abs(moved_usd) desc, site, model, part) as place
    from compared
    where scope = 'model_part'

),

final as (

    select
        lookback.as_of_date,
        compared.date,
        compared.scope,
        compared.site,
        compared.model,
        compared.part,
        cast(compared.cost_usd as {{ money_type() }}) as cost_usd,
        cast(compared.usual_usd as double) as usual_usd,
        cast(cast(compared.cost_usd as double) - compared.usual_usd as double) as difference_usd,
        {{ ratio('cast(compared.cost_usd as double) - compared.usual_usd', 'compared.usual_usd') }} as difference_ratio,
        {{ ratio('cast(compared.cost_usd as double) - compared.usual_usd', 'fleet_days.usual_usd') }} as fleet_difference_ratio,
        {{ ratio('cast(compared.cost_usd as double) - compared.usual_usd', 'compared.spread_usd') }} as robust_z,
        cast(compared.history_days as integer) as history_days,
        case
            when compared.usual_usd is null then null
            else
                abs(cast(compared.cost_usd as double) - compared.usual_usd) > {{ least_difference_ratio() }} * abs(compared.usual_usd)
                and abs(cast(compared.cost_usd as double) - compared.usual_usd) > {{ least_robust_z() }} * coalesce(compared.spread_usd, 0)
                and abs(cast(compared.cost_usd as double) - compared.usual_usd)
                    >= {{ least_fleet_ratio() }} * coalesce(abs(fleet_days.usual_usd), 0)
        end as is_anomaly,
        case when compared.scope = 'fleet' then movers.site end as moved_site,
        case when compared.scope = 'fleet' then movers.model end as moved_model,
        case when compared.scope = 'fleet' then movers.part end as moved_part,
        cast(case when compared.scope = 'fleet' then movers.moved_usd end as double) as moved_usd,
        cast('{{ var("method_version") }}' as {{ dbt.type_string() }}) as method_version
    from compared
    cross join lookback
    left join fleet_days on compared.date = fleet_days.date
    left join movers on compared.date = movers.date and compared.scope = 'fleet' and movers.place = 1
    where compared.cost_usd is not null

)

select * from final
