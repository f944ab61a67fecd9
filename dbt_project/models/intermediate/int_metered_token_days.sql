-- What raw says each engine moved on each date, per token class: the other side of the token book's balance. Reads raw and the catalogues, none
-- of the book's steps, and no grid: a series' day telescopes from its chunk facts, a day with falls or repeats is added up sample by sample
-- (without what one bad scrape made), and the steps over midnights are shared by time. One row per date, engine, model, token class and metric of a source that tells it; `preference` 1
-- ought to be booked, the others check it, and those farther from the engines have none.
with series as (

    select * from {{ ref('stg_series') }} where stream = 'tokens'

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

-- Which source and metric ought to be booked: the lowest rank among those that cover at least half of what the best one covers.
known_spans as (

    select
        series_id,
        last_us,
        coalesce(previous_us, first_us) as since_us
    from token_days

),

known_times as (

    select
        coalesce(copies.engine, series.engine) as engine,
        series.level,
        coalesce(copies.model, series.model) as model,
        coalesce(copies.namespace, series.namespace) as namespace,
        series.token_class,
        series.source,
        series.metric,
        series.rank,
        dates.date,
        min(greatest(known_spans.since_us, dates.start_us)) as known_from_us,
        max(least(known_spans.last_us, dates.end_us)) as known_to_us
    from known_spans
    inner join dates on known_spans.since_us < dates.end_us and known_spans.last_us >= dates.start_us
    inner join series on known_spans.series_id = series.series_id
    left join copies on dates.date = copies.date and known_spans.series_id = copies.series_id
    where series.quantity = 'tokens'
    group by all

),

-- Who stands nearer to the model's own engines speaks alone: engines before the frontends of their namespace, both before gateways.
nearer as (

    select distinct
        farther.date,
        farther.engine
    from known_times as farther
    inner join known_times as near
        on farther.date = near.date
        and farther.model = near.model
        and (
            (near.level = 'engine' and farther.level = 'gateway')
            or (near.level = 'engine' and farther.level = 'frontend' and coalesce(near.namespace = farther.namespace, true))
            or (near.level = 'frontend' and farther.level = 'gateway')
        )

),

-- A metric of an engine is known as long as any of its models was served.
metric_times as (

    select
        known_times.date,
        known_times.engine,
        known_times.token_class,
        known_times.source,
        known_times.metric,
        known_times.rank,
        max(case when nearer.engine is not null then 1 else 0 end) = 1 as is_farther,
        max(known_times.known_to_us) - min(known_times.known_from_us) as known_us
    from known_times
    left join nearer on known_times.date = nearer.date and known_times.engine = nearer.engine
    group by all

),

preferred as (

    select
        *,
        case when not is_farther then row_number() over (
            partition by date, engine, token_class
            order by case when known_us >= 0.5 * most_known_us then 0 else 1 end, rank, known_us desc, source, metric
        ) end as preference
    from (select *, max(known_us) over (partition by date, engine, token_class) as most_known_us from metric_times) as compared

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

copy_readings as (

    select distinct
        copies.date,
        copies.reading_id,
        copies.engine,
        copies.model,
        copies.namespace,
        series.token_class,
        series.source,
        series.metric
    from copies
    inner join series on copies.series_id = series.series_id
    where series.quantity = 'tokens'

),

named_parts as (

    select
        own_parts.date,
        series.engine,
        series.model,
        series.namespace,
        series.token_class,
        series.source,
        series.metric,
        own_parts.tokens
    from own_parts
    inner join series on own_parts.series_id = series.series_id
    where series.quantity = 'tokens'
    union all
    select
        copy_parts.date,
        copy_readings.engine,
        copy_readings.model,
        copy_readings.namespace,
        copy_readings.token_class,
        copy_readings.source,
        copy_readings.metric,
        copy_parts.tokens
    from copy_parts
    inner join copy_readings on copy_parts.date = copy_readings.date and copy_parts.reading_id = copy_readings.reading_id

),

metered as (

    select
        date,
        engine,
        model,
        namespace,
        token_class,
        source,
        metric,
        sum({{ exact('tokens') }}) as metered_tokens
    from named_parts
    group by all

),

final as (

    select
        known_times.date,
        known_times.engine,
        known_times.level,
        known_times.model,
        known_times.namespace,
        known_times.token_class,
        known_times.source,
        known_times.metric,
        preferred.preference,
        metered.metered_tokens
    from known_times
    inner join preferred
        on known_times.date = preferred.date
        and known_times.engine = preferred.engine
        and known_times.token_class = preferred.token_class
        and known_times.source = preferred.source
        and known_times.metric = preferred.metric
    left join metered
        on known_times.date = metered.date
        and known_times.engine = metered.engine
        and known_times.model is not distinct from metered.model
        and known_times.namespace is not distinct from metered.namespace
        and known_times.token_class = metered.token_class
        and known_times.source = metered.source
        and known_times.metric = metered.metric

)

select * from final
