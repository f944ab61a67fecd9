-- The samples of each process that answered for a series (stg_series_parts), and at both edges of the date, where it was
-- seen on both sides, what it had counted by then: a date needs no neighbour. One row per track and time.
with tracks as (

    select * from {{ ref('stg_counter_tracks') }}

),

parts as (

    select * from {{ ref('stg_series_parts') }} where track is not null and series_id is not null

),

samples as (

    select
        parts.series_id,
        parts.from_us,
        parts.to_us,
        tracks.observed_us,
        tracks.value,
        lag(tracks.observed_us) over track_window as before_us,
        lag(tracks.value) over track_window as before_value
    from tracks
    inner join parts
        on tracks.series_id = parts.landed_series_id and tracks.date = parts.date and tracks.track = parts.track
    window track_window as (partition by parts.series_id order by tracks.observed_us)

),

final as (

    select
        series_id,
        observed_us,
        value
    from samples
    where observed_us >= from_us and observed_us < to_us
    {% for edge, at in [('from_us', 'from_us'), ('to_us', 'to_us - 1')] -%}
    union all
    select
        series_id,
        {{ at }} as observed_us,
        before_value + (value - before_value) * ({{ edge }} - before_us) / cast(observed_us - before_us as double) as value
    from samples
    where before_us < {{ at }} and observed_us > {{ at }} and value >= before_value
    {% endfor %}

)

select * from final
