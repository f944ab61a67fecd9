-- Where a board was that moved to another node within a date: one row per date, meter and slice of the date. Other
-- boards have no row.
with meters as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked' and meter_scope = 'board'

),

series as (

    select * from {{ ref('stg_series') }} where stream = 'power' and node is not null

),

series_days as (

    select * from {{ ref('stg_series_days') }} where is_in_run

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

nodes_of_days as (

    select
        meters.date,
        meters.meter_scope,
        meters.meter,
        series.node,
        max(series.rack) as rack,
        max(series.site) as site,
        min(series_days.first_us) as first_us,
        max(series_days.last_us) as last_us
    from meters
    inner join series on meters.reading_id = series.reading_id
    inner join series_days on series.series_id = series_days.series_id and meters.date = series_days.date
    group by meters.date, meters.meter_scope, meters.meter, series.node

),

-- Two names of one node at once are no move.
ordered as (

    select
        *,
        row_number() over board_window as place_number,
        lead(first_us) over board_window as next_first_us,
        lag(last_us) over board_window as previous_last_us
    from nodes_of_days
    window board_window as (partition by date, meter_scope, meter order by first_us, node)

),

moves as (

    select
        date,
        meter_scope,
        meter
    from ordered
    group by date, meter_scope, meter
    having count(*) > 1 and max(case when previous_last_us >= first_us then 1 else 0 end) = 0

),

final as (

    select
        ordered.date,
        ordered.meter_scope,
        ordered.meter,
        case when ordered.place_number = 1 then run_dates.start_us else ordered.first_us end as slice_start_us,
        coalesce(ordered.next_first_us, run_dates.end_us) as slice_end_us,
        ordered.node,
        ordered.rack,
        ordered.site
    from ordered
    inner join moves on {{ equal_keys('ordered', 'moves', ['date', 'meter_scope', 'meter']) }}
    inner join run_dates on ordered.date = run_dates.date

)

select * from final
