-- Which days of two months are compared, and what a change of cost is made of: used by finance.bridge.

{# What the cost of a month changed by, in the order of a waterfall; adjustments of closed months come after them. #}
{% macro bridge_effects() %}
    {{ return(['calendar', 'coverage', 'price', 'volume', 'efficiency', 'idle', 'new', 'gone']) }}
{% endmacro %}

{# Each site's months beside the month before, and the days of both that are compared: CTEs site_days to lengths. Needs
   `hours`, `months` and `held_back`. #}
{% macro bridge_days() -%}
-- The site's days are UTC dates within its own month: one of the edge has a part of each month.
site_days as (

    select
        billing_month as month,
        site,
        date,
        date - billing_month as day_number,
        sum(hour_seconds) as booked_seconds
    from hours
    where date not in (select held_back.date from held_back)
    group by billing_month, site, date

),

whole_months as (

    select month, site from months group by month, site having bool_and(is_booked_whole)

),

compared as (

    select
        later.month,
        earlier.month as compared_month,
        later.site,
        later_whole.month is not null and earlier_whole.month is not null as is_whole
    from (select distinct month, site from site_days) as later
    inner join (select distinct month, site from site_days) as earlier
        on later.site = earlier.site and later.month = cast(earlier.month + interval 1 month as date)
    left join whole_months as later_whole on later.month = later_whole.month and later.site = later_whole.site
    left join whole_months as earlier_whole on earlier.month = earlier_whole.month and earlier.site = earlier_whole.site

),

-- Whole months with all their days; others with the days that are booked alike in both.
sides as (

    select compared.*, true as is_after, days.date, days.booked_seconds
    from compared
    inner join site_days as days on compared.month = days.month and compared.site = days.site
    where compared.is_whole
    union all
    select compared.*, false as is_after, days.date, days.booked_seconds
    from compared
    inner join site_days as days on compared.compared_month = days.month and compared.site = days.site
    where compared.is_whole
    union all
    select
        compared.*,
        sides.is_after,
        case when sides.is_after then later.date else earlier.date end as date,
        later.booked_seconds
    from compared
    inner join site_days as later on compared.month = later.month and compared.site = later.site
    inner join site_days as earlier
        on compared.compared_month = earlier.month
        and compared.site = earlier.site
        and later.day_number = earlier.day_number
        and later.booked_seconds = earlier.booked_seconds
    cross join (values (true), (false)) as sides(is_after)
    where not compared.is_whole

),

month_lengths as (

    select
        billing_month as month,
        site,
        max(month_hours) as month_hours
    from hours
    group by billing_month, site

),

-- Of what is paid by the hour the longer month costs more; of what is paid by the month, a day of it costs less.
lengths as (

    select
        sides.month,
        sides.site,
        cast(count(case when sides.is_after then 1 end) as integer) as days,
        {{ ratio(
            'sum(case when sides.is_after then sides.booked_seconds end)',
            'sum(case when not sides.is_after then sides.booked_seconds end)'
        ) }} as length_ratio,
        {{ ratio('max(before_lengths.month_hours)', 'max(after_lengths.month_hours)') }} as hour_of_month_ratio
    from sides
    left join month_lengths as after_lengths on sides.month = after_lengths.month and sides.site = after_lengths.site
    left join month_lengths as before_lengths
        on sides.compared_month = before_lengths.month and sides.site = before_lengths.site
    group by sides.month, sides.site

)
{%- endmacro %}
