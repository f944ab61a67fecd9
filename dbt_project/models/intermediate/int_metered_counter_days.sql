-- What raw has of each token counter and each reported process start on each date, by the second parsing of labels: none of the book's
-- steps. A date whose chunk facts do not add up by themselves is troubled. One row per series and date with samples.
with series as (

    select * from {{ ref('int_label_identities') }} where stream = 'tokens' and is_counted

),

counters as (

    select distinct series_id, engine, quantity, source, metric, factor from series
    where quantity in ('tokens', 'process_start')

),

series_days as (

    select
        counters.series_id,
        counters.engine,
        counters.quantity,
        counters.source,
        counters.metric,
        counters.factor,
        cast(chunks.chunk_start_at as date) as date,
        min({{ epoch_us('chunks.first_at') }}) as first_us,
        min_by(chunks.first_value * counters.factor, chunks.first_at) as first_value,
        max({{ epoch_us('chunks.last_at') }}) as last_us,
        max_by(chunks.last_value * counters.factor, chunks.last_at) as last_value,
        -- Several chunks of one date are added up sample by sample too.
        sum(chunks.falls + chunks.duplicates) + count(*) - 1 as troubles,
        min(chunks.typical_interval_seconds) as typical_interval_seconds
    from {{ source('raw', 'series_chunks') }} as chunks
    inner join counters on chunks.series_id = counters.series_id
    where chunks.samples > 0
    group by all

),

neighboured as (

    select
        *,
        lag(date) over series_window as previous_date,
        lag(last_value) over series_window as previous_value,
        lead(date) over series_window as next_date,
        lead(first_value) over series_window as next_value
    from series_days
    window series_window as (partition by series_id order by date)

),

final as (

    select
        *,
        -- On a date of the run, or next to one.
        coalesce(
            quantity = 'tokens'
            and (troubles > 0 or first_value < previous_value or next_value < last_value)
            and ({{ in_run('date') }} or {{ in_run('previous_date') }} or {{ in_run('next_date') }}),
            false
        ) as is_troubled
    from neighboured

)

select * from final
