-- Meters of a server whose samples end before the date does, that were there until then: one row per date and meter.
-- Nothing shows that such a meter is gone.
with unfilled_dates as (

    select * from {{ source('raw', 'unfilled_dates') }} where last_sample_at is not null

),

series as (

    select * from {{ ref('stg_series') }} where meter is not null and quantity in ('energy', 'power')

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

final as (

    select distinct
        series_days.date,
        series.meter_scope,
        series.meter
    from series_days
    inner join series on series_days.series_id = series.series_id
    inner join unfilled_dates
        on series.source = unfilled_dates.source
        and series_days.date = unfilled_dates.date
    where {{ epoch_us('unfilled_dates.last_sample_at') }} - series_days.last_us
        <= {{ gap_cap_us('series_days.sampling_interval_seconds', var('grid_seconds')) }}

)

select * from final
