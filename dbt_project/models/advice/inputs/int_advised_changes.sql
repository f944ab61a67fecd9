-- One row per site, deployment, role, meter scope and change of what it ran on, in the last 91 booked dates: from a week
-- of dates that are alike to another one. Dates between two such weeks are of the change; what does not last a week, and
-- what goes back and forth within weeks (autoscaling, weekends), is none.
{% set keys = ['site', 'deployment', 'role', 'meter_scope'] %}
{% set held = ['gpus', 'engines', 'power_limit_watts', 'is_sleeping', 'model', 'device_type'] %}
{% set least_dates = 7 %}
{% set read_dates = 91 %}
{# A date's mean number is whole within this share: engines that came or went within the date are no such number. #}
{% set whole_within = 0.02 %}
{% set least_coverage = 0.9 %}

with newest as (

    select max(date) as as_of_date from {{ ref('model_daily') }}

),

models as (

    select model_daily.*
    from {{ ref('model_daily') }} as model_daily
    cross join newest
    where model_daily.date > newest.as_of_date - {{ read_dates }}
        and model_daily.date not in (select date from {{ ref('held_back_dates') }})

),

limits as (

    select * from {{ ref('power_limits_daily') }}

),

intervals as (

    select * from {{ ref('model_intervals') }}

),

booked as (

    select distinct
        site,
        date
    from models

),

served as (

    select
        {{ keys | join(', ') }},
        date,
        cast(sum(claimed_gpu_seconds) as double) / 86400 as mean_gpus,
        {{ ratio('sum(covered_seconds)', 'sum(gpu_seconds)') }} as coverage_ratio,
        sum(asleep_joules) > 0 as is_asleep,
        {{ joined_in_order('model') }} as model,
        {{ joined_in_order('device_type') }} as device_type
    from models
    where deployment not in ({{ unallocated() }}, {{ unknown() }})
    group by {{ keys | join(', ') }}, date

),

engine_days as (

    select
        {{ keys | join(', ') }},
        date,
        sum(mean_engines) as mean_engines
    from (
        select
            {{ keys | join(', ') }},
            model,
            device_type,
            date,
            avg(engines) as mean_engines
        from intervals
        where date > (select as_of_date from newest) - {{ read_dates }}
        group by all
    )
    group by all

),

-- NULL: some board has another limit, or none is known.
limit_days as (

    select
        {{ keys | join(', ') }},
        date,
        case
            when min(power_limit_watts_min) = max(power_limit_watts_max) and sum(meters) = sum(meters_with_limit)
                then max(power_limit_watts_max)
        end as power_limit_watts
    from limits
    group by all

),

-- From its first date on; a booked date of the site without any row of it is one on which it was off.
calendar as (

    select
        firsts.* exclude (first_date),
        booked.date
    from (select {{ keys | join(', ') }}, min(date) as first_date from served group by all) as firsts
    inner join booked on firsts.site = booked.site and booked.date >= firsts.first_date

),

-- Asleep on a date, or between two such dates less than a week apart.
slept as (

    select
        calendar.*,
        served.mean_gpus,
        served.coverage_ratio,
        served.model,
        served.device_type,
        max(case when served.is_asleep then calendar.date end) over before_it as asleep_before,
        min(case when served.is_asleep then calendar.date end) over after_it as asleep_after,
        served.date is not null as is_served,
        seen.date is not null as is_seen
    from calendar
    left join (select distinct site, deployment, date from served) as seen
        on {{ equal_keys('calendar', 'seen', ['site', 'deployment', 'date']) }}
    left join served on {{ equal_keys('calendar', 'served', keys + ['date']) }}
    window
        before_it as (
            partition by {{ columns_of('calendar', keys) }} order by calendar.date
            rows between unbounded preceding and current row
        ),
        after_it as (
            partition by {{ columns_of('calendar', keys) }} order by calendar.date
            rows between current row and unbounded following
        )

),

-- Only dates of which it is known what was held: of one with gaps, or with a meter of another scope alone, it is not.
dates as (

    select
        {{ columns_of('slept', keys) }},
        slept.date,
        case when slept.is_served then round(slept.mean_gpus) else 0 end as gpus,
        case when slept.is_served then round(engine_days.mean_engines) end as engines,
        limit_days.power_limit_watts,
        coalesce(slept.asleep_after - slept.asleep_before < 7, false) as is_sleeping,
        slept.model,
        slept.device_type,
        not slept.is_served
        or (
            abs(slept.mean_gpus - round(slept.mean_gpus)) <= {{ whole_within }} * greatest(slept.mean_gpus, 1)
            and coalesce(abs(engine_days.mean_engines - round(engine_days.mean_engines)), 0)
            <= {{ whole_within }} * greatest(engine_days.mean_engines, 1)
        ) as is_whole
    from slept
    left join engine_days on {{ equal_keys('slept', 'engine_days', keys + ['date']) }}
    left join limit_days on {{ equal_keys('slept', 'limit_days', keys + ['date']) }}
    where (slept.is_served and slept.mean_gpus > 0 and slept.coverage_ratio >= {{ least_coverage }}) or not slept.is_seen

),

weeks as (

    select
        {{ keys | join(', ') }},
        {{ held | join(', ') }},
        min(date) as first_date,
        max(date) as last_date,
        count(*) as dates
    from (
        select
            *,
            row_number() over (partition by {{ keys | join(', ') }} order by date)
            - row_number() over (partition by {{ keys | join(', ') }}, is_whole, {{ held | join(', ') }} order by date) as run
        from dates
    )
    where is_whole
    group by {{ keys | join(', ') }}, {{ held | join(', ') }}, run
    having count(*) >= {{ least_dates }}

),

followed as (

    select
        {{ keys | join(', ') }},
        {% for column in held + ['first_date', 'last_date'] -%}
        lag({{ column }}) over of_deployment as {{ column }}_before,
        {{ column }},
        {% endfor -%}
        lead(first_date) over of_deployment as next_date
    from weeks
    window of_deployment as (partition by {{ keys | join(', ') }} order by first_date)

),

final as (

    select
        md5(concat_ws('|', {{ keys | join(', ') }}, first_date)) as change_id,
        {{ keys | join(', ') }},
        last_date_before + 1 as started_on,
        first_date as changed_on,
        first_date_before as known_from,
        last_date as known_to,
        {% for column in held -%}
        {{ column }}_before,
        {{ column }} as {{ column }}_after,
        {% endfor -%}
        case
            when gpus = 0 then 'off'
            when gpus_before = 0 then 'on'
            else concat_ws(
                '+',
                case when model is distinct from model_before then 'model' end,
                case when device_type is distinct from device_type_before then 'device' end,
                case
                    when gpus < gpus_before and gpus / engines >= gpus_before / engines_before then 'fewer_replicas'
                    when gpus < gpus_before then 'fewer_gpus'
                    when gpus > gpus_before then 'more_gpus'
                    when engines is distinct from engines_before then 'engines'
                end,
                case
                    when power_limit_watts < power_limit_watts_before then 'power_cap'
                    when power_limit_watts > power_limit_watts_before then 'power_cap_lifted'
                end,
                case
                    when is_sleeping and not is_sleeping_before then 'sleep'
                    when is_sleeping_before and not is_sleeping then 'sleep_ended'
                end
            )
        end as what
    from followed
    where {% for column in held %}{{ column }} is distinct from {{ column }}_before{{ ' or ' if not loop.last }}{% endfor %}
)

-- A limit that is reported from some date on is no change.
select * from final where known_from is not null and what <> ''
