-- What raw has of each token counter and each reported process start on each date, by the second parsing of labels:
-- none of the book's steps but which source counts when (int_token_choices). A date whose chunk facts do not add up by
-- themselves, or of which a part counts, is troubled. One row per series and date with samples.
with series as (

    select * from {{ ref('int_label_identities') }} where stream = 'tokens' and is_counted

),

sources as (

    select * from {{ source('fleet', 'sources') }}

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

choices as (

    select * from {{ ref('int_token_choices') }} where from_us is not null or to_us is not null

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
        greatest(min(chunks.typical_interval_seconds), max(sources.interval_seconds)) as sampling_interval_seconds,
        max(chunks.steepest_rise_per_second * counters.factor) > {{ var('most_tokens_per_second') }} as has_leapt
    from {{ ref('stg_series_chunks') }} as chunks
    inner join counters on chunks.series_id = counters.series_id
    left join sources on counters.source = sources.source
    where chunks.samples > 0
    group by all

),

-- A process start is a time; one that cannot be one is unknown.
timed_days as (

    select
        series_id,
        engine,
        quantity,
        source,
        metric,
        factor,
        date,
        {% for end in ['first', 'last'] -%}
        {{ end }}_us,
        case
            when quantity = 'process_start' then {{ metered_start_seconds(end ~ '_value', end ~ '_us') }}
            else {{ end }}_value
        end as {{ end }}_value,
        {% endfor -%}
        troubles,
        sampling_interval_seconds,
        coalesce(has_leapt, false) as has_leapt
    from series_days

),

handover_days as (

    select distinct
        series.series_id,
        choices.date
    from series
    left join copies on series.series_id = copies.series_id
    inner join choices
        on {{ equal_keys('series', 'choices', ['token_class', 'source', 'metric']) }}
        and choices.engine in (series.engine, copies.engine)
    where series.quantity = 'tokens'

),

neighboured as (

    select
        *,
        lag(date) over series_window as previous_date,
        lag(last_value) over series_window as previous_value,
        lead(date) over series_window as next_date,
        lead(first_value) over series_window as next_value
    from timed_days
    window series_window as (partition by series_id order by date)

),

final as (

    select
        neighboured.*,
        -- On a date of the run, or next to one.
        coalesce(
            neighboured.quantity = 'tokens'
            and (
                neighboured.troubles > 0
                or neighboured.has_leapt
                or neighboured.first_value < neighboured.previous_value
                or neighboured.next_value < neighboured.last_value
                or handover_days.series_id is not null
            )
            and ({{ in_run('neighboured.date') }} or {{ in_run('neighboured.previous_date') }} or {{ in_run('neighboured.next_date') }}),
            false
        ) as is_troubled
    from neighboured
    left join handover_days on neighboured.series_id = handover_days.series_id and neighboured.date = handover_days.date

)

select * from final
