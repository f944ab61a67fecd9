-- What raw says each token counter moved on each date, for int_metered_token_days: reads raw and the catalogues, none of the book's steps, and no
-- grid. A series' day telescopes from its chunk facts, a day with falls or repeats is added up sample by sample (without what one bad scrape
-- made), and the steps over midnights are shared by time. Copies of one counter (`reading_id`) are added up as one.
with series as (

    select * from {{ ref('int_label_identities') }} where stream = 'tokens' and is_heard

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

counters as (

    select distinct series_id, engine, quantity, source, metric, factor from series

),

dates as (

    select * from {{ ref('stg_run_dates') }}

),

series_days as (

    select
        counters.series_id,
        counters.engine,
        counters.quantity,
        counters.source,
        counters.metric,
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

told_days as (

    select
        *,
        lag(date) over series_window as previous_date,
        lag(last_value) over series_window as previous_value,
        lead(date) over series_window as next_date,
        lead(first_value) over series_window as next_value
    from series_days
    where quantity = 'tokens'
    window series_window as (partition by series_id order by date)

),

-- Dates of the run, and those next to them, whose chunk facts do not add up by themselves.
troubled_days as (

    select
        told_days.series_id,
        told_days.engine,
        told_days.date,
        counters.factor
    from told_days
    inner join counters on told_days.series_id = counters.series_id
    where (told_days.troubles > 0 or told_days.first_value < told_days.previous_value or told_days.next_value < told_days.last_value)
        and ({{ in_run('told_days.date') }} or {{ in_run('told_days.previous_date') }} or {{ in_run('told_days.next_date') }})

),

troubled_span as (

    select
        min(cast(date as {{ timestamp_type() }})) as start_at,
        max(cast(date as {{ timestamp_type() }})) + interval 1 day as end_at
    from troubled_days

),

troubled_samples as (

    select
        troubled_days.date,
        troubled_days.series_id,
        troubled_days.engine,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        max(samples.value * troubled_days.factor) as value
    from {{ source('raw', 'token_samples') }} as samples
    inner join troubled_days
        on samples.series_id = troubled_days.series_id
        and cast(samples.observed_at as date) = troubled_days.date
    where samples.observed_at >= (select start_at from troubled_span)
        and samples.observed_at < (select end_at from troubled_span)
        and {{ is_valid_sample('samples.value') }}
    group by troubled_days.date, troubled_days.series_id, troubled_days.engine, samples.observed_at

),

-- Of the other dates of these series only the ends are looked at.
points as (

    select date, series_id, engine, observed_us, value from troubled_samples
    union all
    select told_days.date, told_days.series_id, told_days.engine, told_days.first_us as observed_us, told_days.first_value as value
    from told_days
    inner join (select distinct series_id from troubled_days) as troubled_series on told_days.series_id = troubled_series.series_id
    left join troubled_days on told_days.series_id = troubled_days.series_id and told_days.date = troubled_days.date
    where troubled_days.series_id is null
    union
    select told_days.date, told_days.series_id, told_days.engine, told_days.last_us as observed_us, told_days.last_value as value
    from told_days
    inner join (select distinct series_id from troubled_days) as troubled_series on told_days.series_id = troubled_series.series_id
    left join troubled_days on told_days.series_id = troubled_days.series_id and told_days.date = troubled_days.date
    where troubled_days.series_id is null

),

dips as (

    select *
    from (
        select
            *,
            lag(value) over point_window as before_value,
            lag(observed_us) over point_window as before_us,
            lead(value) over point_window as after_value,
            lead(observed_us) over point_window as after_us
        from points
        window point_window as (partition by series_id order by observed_us)
    ) as neighboured
    where value < before_value and after_value >= before_value

),

-- Process starts as they were reported around the dips: the ends of each date, and every sample of the dates of a dip.
reported_starts as (

    select engine, first_us as observed_us, first_value as start_seconds from series_days where quantity = 'process_start'
    union all
    select engine, last_us as observed_us, last_value as start_seconds from series_days where quantity = 'process_start'
    union all
    select
        counters.engine,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        samples.value as start_seconds
    from {{ source('raw', 'token_samples') }} as samples
    inner join counters on samples.series_id = counters.series_id and counters.quantity = 'process_start'
    inner join (select distinct engine, date from dips) as dip_days
        on counters.engine = dip_days.engine and cast(samples.observed_at as date) = dip_days.date
    where samples.observed_at >= (select start_at from troubled_span)
        and samples.observed_at < (select end_at from troubled_span)
        and {{ is_valid_sample('samples.value') }}

),

processes as (

    select
        engine,
        start_seconds,
        min(observed_us) as seen_from_us,
        max(observed_us) as seen_to_us
    from reported_starts
    group by engine, start_seconds

),

-- A process that goes on cannot lose what it counted: the scrape was bad.
bad_scrapes as (

    select
        dips.series_id,
        dips.observed_us
    from dips
    inner join processes on dips.engine = processes.engine
    where processes.start_seconds * 1e6 <= dips.after_us
    group by dips.series_id, dips.observed_us, dips.before_us, dips.after_us
    having max(cast(processes.start_seconds * 1e6 as bigint)) <= dips.before_us
        and max(case when processes.seen_from_us <= dips.after_us and processes.seen_to_us >= dips.before_us then 1 else 0 end) = 1

),

sound_samples as (

    select troubled_samples.*
    from troubled_samples
    left join bad_scrapes
        on troubled_samples.series_id = bad_scrapes.series_id and troubled_samples.observed_us = bad_scrapes.observed_us
    where bad_scrapes.series_id is null

),

sound_ends as (

    select
        series_id,
        date,
        min(observed_us) as first_us,
        min_by(value, observed_us) as first_value,
        max(observed_us) as last_us,
        max_by(value, observed_us) as last_value
    from sound_samples
    group by series_id, date

),

sound_days as (

    select
        told_days.series_id,
        told_days.engine,
        told_days.source,
        told_days.metric,
        told_days.date,
        coalesce(sound_ends.first_us, told_days.first_us) as first_us,
        coalesce(sound_ends.first_value, told_days.first_value) as first_value,
        coalesce(sound_ends.last_us, told_days.last_us) as last_us,
        coalesce(sound_ends.last_value, told_days.last_value) as last_value,
        troubled_days.series_id is not null as is_troubled,
        told_days.typical_interval_seconds
    from told_days
    left join troubled_days on told_days.series_id = troubled_days.series_id and told_days.date = troubled_days.date
    left join sound_ends on told_days.series_id = sound_ends.series_id and told_days.date = sound_ends.date

),

token_days as (

    select
        *,
        lag(last_us) over series_window as previous_us,
        lag(last_value) over series_window as previous_value
    from sound_days
    window series_window as (partition by series_id order by date)

),

-- A series begins at zero where its process started after the engine was last seen or, for an engine never seen before, while its source
-- was watched or less than 3 intervals ago.
source_starts as (

    select
        source,
        min({{ epoch_us('first_seen_at') }}) as watched_from_us
    from {{ source('raw', 'series') }}
    group by source

),

births as (

    select
        series_id,
        engine,
        source,
        first_us,
        first_value,
        typical_interval_seconds
    from token_days
    where previous_us is null

),

process_starts as (

    select engine, cast(first_value * 1e6 as bigint) as start_us from series_days where quantity = 'process_start'
    union
    select engine, cast(last_value * 1e6 as bigint) as start_us from series_days where quantity = 'process_start'

),

dated_births as (

    select
        births.series_id,
        births.engine,
        births.source,
        births.first_us,
        births.first_value,
        births.typical_interval_seconds,
        max(process_starts.start_us) as start_us
    from births
    inner join process_starts on births.engine = process_starts.engine and process_starts.start_us < births.first_us
    group by all

),

last_sights as (

    select
        dated_births.series_id,
        max(token_days.last_us) as last_seen_us
    from dated_births
    inner join token_days on dated_births.engine = token_days.engine and token_days.last_us < dated_births.first_us
    group by dated_births.series_id

),

born_steps as (

    select
        dated_births.series_id,
        greatest(dated_births.start_us, {{ int_div('dated_births.first_us', day_us()) }} * {{ day_us() }}) as from_us,
        dated_births.first_us as to_us,
        dated_births.first_value as tokens
    from dated_births
    left join last_sights on dated_births.series_id = last_sights.series_id
    left join source_starts on dated_births.source = source_starts.source
    where dated_births.first_us - dated_births.start_us <= {{ var('max_spread_seconds') | int * 1000000 }}
        and (
            dated_births.start_us > last_sights.last_seen_us
            or (
                last_sights.last_seen_us is null
                and (
                    dated_births.start_us > source_starts.watched_from_us
                    or dated_births.first_us - dated_births.start_us
                    <= {{ gauge_gap_factor() }} * 1e6 * dated_births.typical_interval_seconds
                )
            )
        )

),

-- From one date's last sample to the next one's first, however far; after a fall the new value is what moved.
midnight_steps as (

    select
        series_id,
        previous_us as from_us,
        first_us as to_us,
        case when first_value >= previous_value then first_value - previous_value else first_value end as tokens
    from token_days
    where previous_us is not null

),

shared_steps as (

    select
        dates.date,
        steps.series_id,
        steps.tokens * (
            (least(steps.to_us, dates.end_us) - greatest(steps.from_us, dates.start_us)) / cast(steps.to_us - steps.from_us as double)
        ) as tokens
    from (select * from born_steps union all select * from midnight_steps) as steps
    inner join dates on steps.from_us < dates.end_us and steps.to_us > dates.start_us

),

troubled_steps as (

    select
        *,
        lag(value) over (partition by series_id, date order by observed_us) as before_value
    from sound_samples

),

parts as (

    select date, series_id, last_value - first_value as tokens from token_days where not is_troubled and {{ in_run('date') }}
    union all
    select date, series_id, case when value >= before_value then value - before_value else value end as tokens
    from troubled_steps
    where before_value is not null and {{ in_run('date') }}
    union all
    select date, series_id, tokens from shared_steps

),

own_parts as (

    select parts.*
    from parts
    left join copies on parts.date = copies.date and parts.series_id = copies.series_id
    where copies.series_id is null

),

-- Copies of one counter are added up as one: all samples of the date, what any copy showed last before it and first after it.
copy_points as (

    select
        copies.date,
        copies.reading_id,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        max(samples.value * counters.factor) as value
    from {{ source('raw', 'token_samples') }} as samples
    inner join copies on samples.series_id = copies.series_id and cast(samples.observed_at as date) = copies.date
    inner join counters on copies.series_id = counters.series_id and counters.quantity = 'tokens'
    left join bad_scrapes
        on samples.series_id = bad_scrapes.series_id and {{ epoch_us('samples.observed_at') }} = bad_scrapes.observed_us
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
        and bad_scrapes.series_id is null
    group by copies.date, copies.reading_id, samples.observed_at

),

copy_ends as (

    select
        copies.date,
        copies.reading_id,
        max(token_days.last_us) as observed_us,
        max_by(token_days.last_value, token_days.last_us) as value
    from copies
    inner join token_days on copies.series_id = token_days.series_id and token_days.date < copies.date
    group by copies.date, copies.reading_id
    union all
    select
        copies.date,
        copies.reading_id,
        min(token_days.first_us) as observed_us,
        min_by(token_days.first_value, token_days.first_us) as value
    from copies
    inner join token_days on copies.series_id = token_days.series_id and token_days.date > copies.date
    group by copies.date, copies.reading_id

),

copy_births as (

    select
        copies.date,
        copies.reading_id,
        born_steps.from_us,
        born_steps.to_us,
        born_steps.tokens
    from copies
    inner join born_steps
        on copies.series_id = born_steps.series_id and copies.date = {{ date_of_us('born_steps.to_us') }}
    left join copy_ends on copies.date = copy_ends.date and copies.reading_id = copy_ends.reading_id and copy_ends.observed_us < born_steps.to_us
    where copy_ends.reading_id is null
    qualify row_number() over (partition by copies.date, copies.reading_id order by born_steps.to_us) = 1

),

copy_steps as (

    select
        date,
        reading_id,
        lag(observed_us) over (partition by date, reading_id order by observed_us) as from_us,
        observed_us as to_us,
        case
            when value >= lag(value) over (partition by date, reading_id order by observed_us)
                then value - lag(value) over (partition by date, reading_id order by observed_us)
            else value
        end as tokens
    from (select * from copy_points union all select * from copy_ends) as all_points
    union all
    select date, reading_id, from_us, to_us, tokens from copy_births

),

copy_parts as (

    select
        copy_steps.date,
        copy_steps.reading_id,
        copy_steps.tokens * (
            (least(copy_steps.to_us, dates.end_us) - greatest(copy_steps.from_us, dates.start_us))
            / cast(copy_steps.to_us - copy_steps.from_us as double)
        ) as tokens
    from copy_steps
    inner join dates on copy_steps.date = dates.date and copy_steps.from_us < dates.end_us and copy_steps.to_us > dates.start_us

),

final as (

    select date, series_id, cast(null as bigint) as reading_id, tokens from own_parts
    union all
    select date, cast(null as bigint) as series_id, reading_id, tokens from copy_parts

)

select * from final
