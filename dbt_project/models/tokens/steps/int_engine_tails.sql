-- How much of an engine's life its counters did not show: the seconds between its last sample and its end, at each
-- restart and at its last one, and before its first one where no process start is known. A process that lived on would
-- have been sampled again after one interval, so each is at most one sampling interval long. The tokens are an
-- estimate: the rate just before (else the date's own) over half of these seconds. One row per date, engine and token
-- class.
with series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

choices as (

    select * from {{ ref('int_token_choices') }}

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

glitches as (

    select * from {{ ref('int_token_glitches') }}

),

counter_days as (

    select distinct
        series_days.series_id,
        series_days.reading_id,
        coalesce(copies.engine, series.engine) as engine,
        series.token_class,
        series.source,
        series.factor,
        series_days.date,
        series_days.is_in_run,
        series_days.first_us,
        series_days.first_value,
        series_days.last_us,
        series_days.last_value,
        series_days.falls,
        series_days.sampling_interval_seconds,
        choices.from_us as counts_from_us,
        choices.to_us as counts_to_us
    from series_days
    inner join series on series_days.series_id = series.series_id
    left join copies on series_days.date = copies.date and series_days.series_id = copies.series_id
    left join choices
        on series_days.date = choices.date
        and coalesce(copies.engine, series.engine) = choices.engine
        and {{ equal_keys('series', 'choices', ['token_class', 'source', 'metric']) }}
    where series.quantity = 'tokens'
        and series.level = 'engine'
        and not coalesce(copies.is_redundant, false)
        and (choices.engine is not null or not series_days.is_in_run)

),

reading_days as (

    select
        reading_id,
        engine,
        token_class,
        source,
        date,
        is_in_run,
        min(first_us) as first_us,
        min_by(first_value, first_us) as first_value,
        max(last_us) as last_us,
        max_by(last_value, last_us) as last_value,
        min(sampling_interval_seconds) * 1e6 as sampling_us,
        case when count(*) = count(counts_from_us) then min(counts_from_us) end as counts_from_us,
        case when count(*) = count(counts_to_us) then max(counts_to_us) end as counts_to_us,
        max(case when falls > 0 then 1 else 0 end) = 1 or count(*) > 1 as is_troubled
    from counter_days
    group by reading_id, engine, token_class, source, date, is_in_run

),

-- A reading goes on whatever its engine is called on the next date: which of several engines of one name it is of, is not
-- known of a date outside of the run.
neighboured as (

    select
        *,
        lag(last_us) over reading_window as previous_us,
        lead(first_us) over reading_window as next_us,
        lead(first_value) over reading_window as next_value
    from reading_days
    window reading_window as (partition by reading_id, token_class order by date)

),

days as (

    select * from neighboured where is_in_run

),

-- Only days on which a counter fell, or another series went on with it, are read sample by sample.
samples as (

    select
        days.reading_id,
        days.engine,
        days.token_class,
        days.date,
        {{ epoch_us('token_samples.observed_at') }} as observed_us,
        max(token_samples.value * counter_days.factor) as tokens
    from days
    inner join counter_days on {{ equal_keys('days', 'counter_days', ['reading_id', 'engine', 'token_class', 'date']) }}
    inner join {{ ref('stg_token_samples') }} as token_samples
        on counter_days.series_id = token_samples.series_id
        and {{ int_div(epoch_us('token_samples.observed_at'), day_us()) }} = {{ int_div('days.first_us', day_us()) }}
    left join glitches
        on token_samples.series_id = glitches.series_id and {{ epoch_us('token_samples.observed_at') }} = glitches.observed_us
    where days.is_troubled
        and glitches.series_id is null
        and {{ is_valid_sample('token_samples.value') }}
        and token_samples.observed_at >= {{ run_start_at() }}
        and token_samples.observed_at < {{ run_end_at() }}
    group by days.reading_id, days.engine, days.token_class, days.date, {{ epoch_us('token_samples.observed_at') }}

),

steps as (

    select
        *,
        lag(observed_us) over sample_window as before_us,
        tokens - lag(tokens) over sample_window as risen,
        lag(observed_us, 2) over sample_window as earlier_us,
        lag(tokens) over sample_window - lag(tokens, 2) over sample_window as risen_before
    from samples
    window sample_window as (partition by reading_id, engine, token_class, date order by observed_us)

),

-- What was seen between two samples of one process.
seen as (

    select
        reading_id,
        engine,
        token_class,
        date,
        {{ exact_sum('risen') }} as tokens,
        sum(observed_us - before_us) as seen_us
    from steps
    where risen >= 0
    group by reading_id, engine, token_class, date
    union all
    select
        reading_id,
        engine,
        token_class,
        date,
        {{ exact('last_value - first_value') }} as tokens,
        last_us - first_us as seen_us
    from days
    where not is_troubled

),

restarts as (

    select
        reading_id,
        engine,
        token_class,
        date,
        before_us as from_us,
        observed_us as to_us,
        case when risen_before >= 0 then {{ ratio('risen_before', 'before_us - earlier_us') }} end as tokens_per_us
    from steps
    where risen < 0
    union all
    select
        reading_id,
        engine,
        token_class,
        date,
        last_us as from_us,
        next_us as to_us,
        cast(null as double) as tokens_per_us
    from days
    where next_value < last_value

),

start_series as (

    select
        series.series_id,
        coalesce(copies.engine, series.engine) as engine,
        series_days.date,
        series_days.first_us,
        series_days.first_value,
        series_days.last_us,
        series_days.last_value
    from series_days
    inner join series on series_days.series_id = series.series_id
    left join copies on series_days.date = copies.date and series_days.series_id = copies.series_id
    where series.quantity = 'process_start'

),

process_starts as (

    select engine, {{ moment_us('first_value') }} as start_us from start_series
    union
    select engine, {{ moment_us('last_value') }} as start_us from start_series
    union
    select distinct
        start_series.engine,
        {{ moment_us(moment_of('token_samples.value', epoch_us('token_samples.observed_at'))) }} as start_us
    from start_series
    inner join (select distinct engine, date from restarts) as restarted
        on start_series.engine = restarted.engine and start_series.date = restarted.date
    inner join {{ ref('stg_token_samples') }} as token_samples
        on start_series.series_id = token_samples.series_id
        and {{ int_div(epoch_us('token_samples.observed_at'), day_us()) }} = {{ int_div('start_series.first_us', day_us()) }}
    where token_samples.observed_at >= {{ run_start_at() }}
        and token_samples.observed_at < {{ run_end_at() }}

),

started_engines as (

    select distinct engine from process_starts where start_us is not null

),

-- Until the next process started, if that is known.
ended_by_restart as (

    select
        restarts.reading_id,
        restarts.engine,
        restarts.token_class,
        restarts.date,
        restarts.from_us,
        max(restarts.tokens_per_us) as tokens_per_us,
        coalesce(min(process_starts.start_us), max(restarts.to_us)) - restarts.from_us as longest_us
    from restarts
    left join process_starts
        on restarts.engine = process_starts.engine
        and process_starts.start_us > restarts.from_us
        and process_starts.start_us <= restarts.to_us
    group by restarts.reading_id, restarts.engine, restarts.token_class, restarts.date, restarts.from_us

),

-- Another source counts on, of a process that started since.
succeeded as (

    select
        days.reading_id,
        days.engine,
        days.token_class,
        days.date,
        least(min(process_starts.start_us) - days.last_us, max(days.sampling_us)) as unseen_us
    from days
    inner join reading_days as successors
        on days.engine = successors.engine and days.token_class = successors.token_class and successors.first_us > days.last_us
    inner join process_starts
        on days.engine = process_starts.engine
        and process_starts.start_us > days.last_us
        and process_starts.start_us <= successors.first_us
    where days.next_us is null and days.counts_to_us is not null
    group by days.reading_id, days.engine, days.token_class, days.date, days.last_us

),

source_spans as (

    select
        series.source,
        max(series_days.last_us) as last_us
    from series_days
    inner join series on series_days.series_id = series.series_id
    group by series.source

),

source_starts as (

    select
        source,
        min({{ epoch_us('first_seen_at') }}) as first_us
    from {{ source('raw', 'series') }}
    group by source

),

engine_spans as (

    select engine, token_class, max(last_us) as last_us from reading_days group by engine, token_class

),

tails as (

    select
        ended_by_restart.reading_id,
        ended_by_restart.engine,
        ended_by_restart.token_class,
        ended_by_restart.date,
        1 as restarts,
        ended_by_restart.tokens_per_us,
        least(ended_by_restart.longest_us, days.sampling_us) as unseen_us
    from ended_by_restart
    inner join days on {{ equal_keys('ended_by_restart', 'days', ['reading_id', 'engine', 'token_class', 'date']) }}
    where ended_by_restart.from_us >= coalesce(days.counts_from_us, ended_by_restart.from_us)
        and ended_by_restart.from_us <= coalesce(days.counts_to_us, ended_by_restart.from_us)
    union all
    select
        reading_id,
        engine,
        token_class,
        date,
        1 as restarts,
        cast(null as double) as tokens_per_us,
        unseen_us
    from succeeded
    union all
    -- Its source was read on, and it was not there any more.
    select
        days.reading_id,
        days.engine,
        days.token_class,
        days.date,
        0 as restarts,
        cast(null as double) as tokens_per_us,
        days.sampling_us as unseen_us
    from days
    inner join source_spans on days.source = source_spans.source
    inner join engine_spans on days.engine = engine_spans.engine and days.token_class = engine_spans.token_class
    where days.next_us is null
        -- One of several processes of a page ends with its date: stg_series_parts.
        and (days.last_us + 1) % {{ day_us() }} > 0
        and source_spans.last_us - days.last_us > {{ gap_cap_us('days.sampling_us / 1e6', var('grid_seconds')) }}
        and engine_spans.last_us - days.last_us <= days.sampling_us
    union all
    -- It began while its source was read, and its first sample is taken for what was there before.
    select
        days.reading_id,
        days.engine,
        days.token_class,
        days.date,
        0 as restarts,
        cast(null as double) as tokens_per_us,
        days.sampling_us as unseen_us
    from days
    inner join source_starts on days.source = source_starts.source
    left join started_engines on days.engine = started_engines.engine
    where days.previous_us is null
        and days.first_us % {{ day_us() }} > 0
        and started_engines.engine is null
        and days.first_value > 0
        and days.first_us - source_starts.first_us > {{ gap_cap_us('days.sampling_us / 1e6', var('grid_seconds')) }}

),

summed as (

    select
        reading_id,
        engine,
        token_class,
        date,
        sum(restarts) as restarts,
        sum(unseen_us) as unseen_us,
        {{ exact_sum(exact('tokens_per_us * unseen_us')) }} as tokens_at_known_rates,
        sum(case when tokens_per_us is null then unseen_us else 0 end) as unseen_us_at_the_dates_rate
    from tails
    group by reading_id, engine, token_class, date

),

estimated as (

    select
        summed.*,
        {{ exact(
            '(coalesce(summed.tokens_at_known_rates, 0) + coalesce(' ~ ratio('seen.tokens', 'seen.seen_us')
            ~ ' * summed.unseen_us_at_the_dates_rate, 0)) / 2'
        ) }} as unseen_tokens
    from summed
    left join seen on {{ equal_keys('summed', 'seen', ['reading_id', 'engine', 'token_class', 'date']) }}

),

-- Ranks of one engine end together.
final as (

    select
        date,
        engine,
        token_class,
        max(restarts) as restarts,
        max({{ exact('unseen_us / 1e6') }}) as unseen_seconds,
        {{ exact_sum('unseen_tokens') }} as unseen_tokens
    from estimated
    group by date, engine, token_class

)

select * from final
