-- Which process counted each sample of a counter whose page several processes answer in turn: workers of a pod without a
-- shared folder, replicas behind one address. Process starts separate them where they alternate. Else a fall is a
-- return if the value jumps back over at least half of it within eight samples: nine returns of ten falls are processes,
-- one of ten or fewer are restarts (no row), and what is between is unknown. A process's values only rise; what takes
-- more than eight of them is no counter. A fall to what its engine could not have counted since is a part that left a
-- sum, and a rise like it is the part's return: what follows is counted from there. A page that shows 0 for a while and
-- then, in one step that its engine could not count, what it had or more, was blank, and so was one that has no process
-- start meanwhile, and then the one that it had: these zeros are left out. Where the fleet file states deltas, they are
-- added up. One row per date, series and sample of the date and of the hours beside it.
{% set most_tracks = 8 %}
{% set most_processes = 60 %}
{% set most_blanks = 3 %}
{# After a restart a counter shows what one step counted: less than half of what it had, at no more than ten times its
   pace, or than a small engine's. A part that comes back after a fall does so in one step, which is none of its pace. #}
{% set most_paces = 10 %}
{% set small_tokens_per_second = 1000 %}

with chunks as (

    select * from {{ source('raw', 'series_chunks') }} where samples > 0

),

metric_catalog as (

    select distinct source, source_kind, metric, stream, quantity, kind from {{ ref('stg_metric_catalog') }} where stream = 'tokens'

),

series as (

    select
        raw_series.series_id,
        raw_series.source,
        coalesce(max(sources.temporality), 'cumulative') = 'delta' as is_delta,
        max(case when metric_catalog.kind = 'counter' then 1 else 0 end) = 1 as is_counter,
        max(case when metric_catalog.quantity = 'process_start' then 1 else 0 end) = 1 as is_start
    from {{ source('raw', 'series') }} as raw_series
    inner join metric_catalog
        on raw_series.source_kind = metric_catalog.source_kind
        and raw_series.metric = metric_catalog.metric
        and coalesce(metric_catalog.source, raw_series.source) = raw_series.source
    left join {{ source('fleet', 'sources') }} as sources on raw_series.source = sources.source
    where raw_series.series_id not in (select series_id from {{ source('raw', 'refused_series') }})
    group by raw_series.series_id, raw_series.source

),

fallen_chunks as (

    select
        chunks.series_id,
        cast(chunks.chunk_start_at as date) as date,
        case when series.is_delta then 1 else chunks.falls end as falls
    from chunks
    inner join series on chunks.series_id = series.series_id and series.is_counter
    where series.is_delta or chunks.series_id in (select series_id from chunks where falls > 0)

),

neighbours as (

    select
        series_id,
        max(case when date < date '{{ start_date() }}' then date end) as previous_date,
        min(case when date >= date '{{ end_date() }}' then date end) as next_date
    from fallen_chunks
    group by series_id

),

-- Of the run's dates, and of the series' dates next to them, those on which it fell.
days as (

    select
        fallen_chunks.series_id,
        fallen_chunks.date,
        {{ int_div(epoch_us('cast(fallen_chunks.date as ' ~ timestamp_type() ~ ')'), day_us()) }} * {{ day_us() }} as start_us
    from fallen_chunks
    inner join neighbours on fallen_chunks.series_id = neighbours.series_id
    where {{ in_run('fallen_chunks.date') }}
        or fallen_chunks.date = neighbours.previous_date
        or fallen_chunks.date = neighbours.next_date
    group by fallen_chunks.series_id, fallen_chunks.date
    having sum(fallen_chunks.falls) > 0

),

span as (

    select
        min({{ from_epoch_us('start_us - ' ~ hour_us()) }}) as start_at,
        max({{ from_epoch_us('start_us + ' ~ day_us() ~ ' + ' ~ hour_us()) }}) as end_at
    from days
    having count(*) > 0

),

samples as (

    select
        days.date,
        days.series_id,
        {{ epoch_us('token_samples.observed_at') }} as observed_us,
        max(token_samples.value) as value
    from {{ source('raw', 'token_samples') }} as token_samples
    inner join days
        on token_samples.series_id = days.series_id
        and {{ epoch_us('token_samples.observed_at') }} >= days.start_us - {{ hour_us() }}
        and {{ epoch_us('token_samples.observed_at') }} < days.start_us + {{ day_us() }} + {{ hour_us() }}
    cross join span
    where {{ is_valid_sample('token_samples.value') }}
        and token_samples.observed_at >= span.start_at
        and token_samples.observed_at < span.end_at
    group by days.date, days.series_id, {{ epoch_us('token_samples.observed_at') }}

),

-- The process start of a page has no label that the page's counters lack.
labels as (

    {{ label_rows(source('raw', 'series')) }}

),

start_series as (

    select
        starts.series_id as start_series_id,
        starts.source,
        count(labels.label) as start_labels
    from series as starts
    left join labels on starts.series_id = labels.series_id
    where starts.is_start
    group by starts.series_id, starts.source

),

shared_labels as (

    select
        start_series.start_series_id,
        start_series.source,
        start_series.start_labels,
        labels.label,
        labels.value,
        count(*) over (partition by start_series.source, labels.label, labels.value) as sharing
    from start_series
    inner join labels on start_series.start_series_id = labels.series_id

),

rarest_labels as (

    select * from shared_labels
    qualify row_number() over (partition by start_series_id order by sharing, label) = 1

),

-- Found by the label that the fewest starts share: all counters of a fleet have the label of its job.
alike as (

    select distinct
        days.series_id,
        rarest_labels.start_series_id,
        rarest_labels.start_labels
    from days
    inner join series on days.series_id = series.series_id
    inner join labels on series.series_id = labels.series_id
    inner join rarest_labels
        on series.source = rarest_labels.source
        and labels.label = rarest_labels.label
        and labels.value = rarest_labels.value

),

pages as (

    select
        alike.series_id,
        alike.start_series_id
    from alike
    inner join labels on alike.start_series_id = labels.series_id
    inner join labels as own_labels
        on alike.series_id = own_labels.series_id and labels.label = own_labels.label and labels.value = own_labels.value
    group by alike.series_id, alike.start_series_id, alike.start_labels
    having count(*) = alike.start_labels
    qualify row_number() over (
        partition by alike.series_id order by alike.start_labels desc, alike.start_series_id
    ) = 1

),

starts as (

    select
        samples.date,
        samples.series_id,
        samples.observed_us,
        max({{ moment_of('token_samples.value', 'samples.observed_us') }}) as start_seconds
    from samples
    inner join pages on samples.series_id = pages.series_id
    inner join {{ source('raw', 'token_samples') }} as token_samples
        on pages.start_series_id = token_samples.series_id
        and samples.observed_us = {{ epoch_us('token_samples.observed_at') }}
    cross join span
    where token_samples.observed_at >= span.start_at and token_samples.observed_at < span.end_at
    group by samples.date, samples.series_id, samples.observed_us

),

steps as (

    select
        samples.*,
        starts.start_seconds,
        samples.value - lag(samples.value) over sample_window as risen,
        (samples.observed_us - lag(samples.observed_us) over sample_window) / 1e6 as step_seconds,
        max(starts.start_seconds) over (
            partition by samples.date, samples.series_id order by samples.observed_us rows between unbounded preceding and 1 preceding
        ) as latest_start_seconds
    from samples
    left join starts on {{ equal_keys('samples', 'starts', ['date', 'series_id', 'observed_us']) }}
    window sample_window as (partition by samples.date, samples.series_id order by samples.observed_us)

),

paced as (

    select
        *,
        row_number() over (
            partition by date, series_id order by {{ ratio('risen', 'step_seconds') }} desc nulls last, observed_us
        ) > sum(case when risen < 0 then 1 else 0 end) over (partition by date, series_id) as is_of_pace
    from steps

),

limited as (

    select
        *,
        step_seconds * greatest(
            {{ most_paces }} * coalesce(
                max(case when is_of_pace then {{ ratio('risen', 'step_seconds') }} end) over (partition by date, series_id), 0
            ),
            {{ small_tokens_per_second }}
        ) as most_risen
    from paced

),

falls as (

    select
        date,
        series_id,
        start_seconds,
        latest_start_seconds,
        observed_us,
        value,
        case when risen < 0 then 1 else 0 end as is_fall,
        case when risen < 0 and -risen <= 2 * max(risen) over (
            partition by date, series_id order by observed_us rows between 1 following and 8 following
        ) then 1 else 0 end as is_return,
        case when risen < 0 and value > -risen and value > most_risen then 1 else 0 end as leaves_a_sum,
        case when risen > most_risen then 1 else 0 end as joins_a_sum,
        case when value = 0
            and (
                min(nullif(value, 0)) over from_here >= nullif(max(value) over until_here, 0)
                and max(case when risen > most_risen then 1 else 0 end) over from_here = 1
                or start_seconds is null and min(start_seconds) over from_here = latest_start_seconds
            )
            then 1 else 0 end as is_blank
    from limited
    window
        until_here as (partition by date, series_id order by observed_us rows between unbounded preceding and current row),
        from_here as (partition by date, series_id order by observed_us rows between current row and unbounded following)

),

assessed as (

    select
        falls.*,
        case
            when series.is_delta then 'delta'
            when max(case when falls.start_seconds < falls.latest_start_seconds then 1 else 0 end) over date_window = 1 then 'process_start'
            -- One sample of it: int_token_glitches, or values.
            when sum(falls.is_fall) over date_window = sum(falls.is_fall * falls.is_blank) over date_window
                and sum(falls.is_fall) over date_window between 1 and {{ most_blanks }}
                and sum(falls.is_blank) over date_window > sum(falls.is_fall) over date_window
                and coalesce(min(falls.start_seconds) over date_window = max(falls.start_seconds) over date_window, true) then 'blank'
            -- One process after another, or one that goes on and lost a sample or two: int_token_glitches.
            when count(falls.start_seconds) over date_window > 0
                and (
                    min(falls.start_seconds) over date_window < max(falls.start_seconds) over date_window
                    or sum(falls.is_fall) over date_window < 4
                ) then null
            when sum(falls.is_return) over date_window >= 0.9 * sum(falls.is_fall) over date_window then 'values'
            when sum(falls.is_return) over date_window > 0.1 * sum(falls.is_fall) over date_window then 'unknown'
            when max(falls.leaves_a_sum) over date_window = 1 then 'sum'
        end as basis
    from falls
    inner join series on falls.series_id = series.series_id
    window date_window as (partition by falls.date, falls.series_id)

),

-- A track is known from the start, from the parts that have left, or there is one; by values it is peeled off below.
peeled_0 as (

    select
        date,
        series_id,
        basis,
        observed_us,
        -- Exact: a sum of doubles that is a millionth lower than the one before would be a fall.
        case when basis = 'delta' then cast(sum({{ exact('value') }}) over until_now as double) else value end as value,
        case basis
            when 'process_start' then dense_rank() over (partition by date, series_id order by start_seconds)
            when 'sum' then 1 + sum(leaves_a_sum + joins_a_sum) over until_now
            when 'unknown' then 1
            when 'delta' then 1
            when 'blank' then 1
        end as track
    from assessed
    where basis is not null
        and (basis <> 'process_start' or start_seconds is not null)
        and (basis <> 'blank' or is_blank = 0)
    window until_now as (
        partition by date, series_id order by observed_us rows between unbounded preceding and current row
    )

),

-- By values: the highest process has the samples that no earlier one is above; of the others the next one has those, and
-- so on. Each round reads the one before it once, as Spark computes a CTE anew wherever it is read.
{% for number in range(1, most_tracks + 1) -%}
peeled_{{ number }} as (

    select
        date,
        series_id,
        basis,
        observed_us,
        value,
        coalesce(track, case when value = max(case when track is null then value end) over (
            partition by date, series_id order by observed_us rows between unbounded preceding and current row
        ) then {{ number }} end) as track
    from peeled_{{ number - 1 }}

),

{% endfor -%}

peeled as (

    select date, series_id, basis, observed_us, value, coalesce(track, {{ most_tracks + 1 }}) as track from peeled_{{ most_tracks }}

),

track_starts as (

    select
        date,
        series_id,
        track,
        min(observed_us) as first_us,
        min_by(value, observed_us) as first_value
    from peeled
    where basis = 'values'
    group by date, series_id, track

),

-- Before a lower process is first seen, what is no higher than it is its own.
parted as (

    select
        peeled.date,
        peeled.series_id,
        peeled.basis,
        peeled.observed_us,
        peeled.value,
        case when peeled.value <= lower.first_value then peeled.track + 1 else peeled.track end as track
    from peeled
    left join track_starts as lower
        on peeled.date = lower.date
        and peeled.series_id = lower.series_id
        and peeled.track + 1 = lower.track
        and peeled.observed_us < lower.first_us

),

counted as (

    select
        *,
        max(track) over (partition by date, series_id) as tracks
    from parted

),

final as (

    select
        date,
        series_id,
        cast(track as integer) as track,
        cast(tracks as integer) as tracks,
        observed_us,
        value,
        case
            when tracks > case when basis = 'values' then {{ most_tracks }} else {{ most_processes }} end then 'none'
            else basis
        end as basis
    from counted

)

select * from final
