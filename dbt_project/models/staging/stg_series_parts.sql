-- What becomes of a series with dates on which several processes answered for it: on such a date it is a series for each
-- of them (`track`), or none where they cannot be separated (`basis` unknown or none); before, between and after such
-- dates it is itself, under an id for each stretch, so that nothing is counted from one process to another. One row per
-- such series and part, for [from_us, to_us).
with tracks as (

    select
        date,
        series_id,
        track,
        max(tracks) as tracks,
        max(basis) as basis
    from {{ ref('stg_counter_tracks') }}
    where basis is not null
    group by date, series_id, track

),

split_days as (

    select
        series_id,
        date,
        {{ epoch_us('cast(date as ' ~ timestamp_type() ~ ')') }} as start_us
    from tracks
    group by series_id, date

),

stretches as (

    select
        series_id,
        row_number() over (partition by series_id order by start_us) as number,
        start_us + {{ day_us() }} as from_us,
        lead(start_us) over (partition by series_id order by start_us) as to_us
    from split_days
    union all
    select
        series_id,
        0 as number,
        cast(null as bigint) as from_us,
        min(start_us) as to_us
    from split_days
    group by series_id

),

final as (

    select
        tracks.series_id as landed_series_id,
        case when tracks.basis not in ('unknown', 'none')
            then cast({{ int_div('tracks.series_id', '4') }} + {{ int_div('split_days.start_us', day_us()) }} * 64 + tracks.track as bigint)
        end as series_id,
        split_days.start_us as from_us,
        split_days.start_us + {{ day_us() }} as to_us,
        tracks.date,
        tracks.track,
        tracks.tracks,
        tracks.basis
    from tracks
    inner join split_days on tracks.series_id = split_days.series_id and tracks.date = split_days.date
    union all
    select
        series_id as landed_series_id,
        case when number = 0 then series_id else cast({{ int_div('series_id', '8') }} + number as bigint) end as series_id,
        from_us,
        to_us,
        cast(null as date) as date,
        cast(null as integer) as track,
        cast(null as integer) as tracks,
        cast(null as {{ dbt.type_string() }}) as basis
    from stretches
    where to_us is null or from_us is null or from_us < to_us

)

select * from final
