-- What each token counter moved on each date according to raw, for int_metered_token_days: reads raw and the
-- catalogues, none of the book's steps, and no grid. A series' day is telescoped from its chunk facts, a day with falls
-- or repeats is added up sample by sample (without what one bad scrape made), and the steps over midnights are shared
-- by time. Copies of one counter (`reading_id`) are added up as one.
with counter_days as (

    select * from {{ ref('int_metered_counter_days') }}

),

counter_samples as (

    select * from {{ ref('int_metered_counter_samples') }}

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

page_births as (

    select * from {{ ref('int_counter_births') }}

),

dates as (

    select * from {{ ref('stg_run_dates') }}

),

sound_samples as (

    select * from counter_samples where not is_bad_scrape

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
        counter_days.series_id,
        counter_days.engine,
        counter_days.source,
        counter_days.date,
        coalesce(sound_ends.first_us, counter_days.first_us) as first_us,
        coalesce(sound_ends.first_value, counter_days.first_value) as first_value,
        coalesce(sound_ends.last_us, counter_days.last_us) as last_us,
        coalesce(sound_ends.last_value, counter_days.last_value) as last_value,
        counter_days.is_troubled,
        counter_days.sampling_interval_seconds
    from counter_days
    left join sound_ends on counter_days.series_id = sound_ends.series_id and counter_days.date = sound_ends.date
    where counter_days.quantity = 'tokens'

),

token_days as (

    select
        *,
        lag(last_us) over series_window as previous_us,
        lag(last_value) over series_window as previous_value
    from sound_days
    window series_window as (partition by series_id order by date)

),

-- A series begins at zero where its process started after the engine was last seen or, for an engine never seen before,
-- while its source was watched or less than 3 intervals ago. Else it does where its page was read before without it.
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
        sampling_interval_seconds
    from token_days
    where previous_us is null

),

process_starts as (

    select engine, cast(first_value * 1e6 as bigint) as start_us
    from counter_days
    where quantity = 'process_start' and first_value is not null
    union
    select engine, cast(last_value * 1e6 as bigint) as start_us
    from counter_days
    where quantity = 'process_start' and last_value is not null

),

dated_births as (

    select
        births.series_id,
        births.engine,
        births.source,
        births.first_us,
        births.first_value,
        births.sampling_interval_seconds,
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

started_steps as (

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
                    <= {{ gap_cap_us('dated_births.sampling_interval_seconds') }}
                )
            )
        )

),

born_steps as (

    select * from started_steps
    union all
    select
        births.series_id,
        page_births.start_us as from_us,
        births.first_us as to_us,
        births.first_value as tokens
    from births
    inner join page_births on births.series_id = page_births.series_id and births.first_us = page_births.first_us
    left join started_steps on births.series_id = started_steps.series_id
    where started_steps.series_id is null

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

-- No engine counts more than `limits.tokens_per_second`: a step above that is not booked.
possible_steps as (

    select *
    from (select * from born_steps union all select * from midnight_steps) as steps
    where tokens * 1e6 <= {{ var('most_tokens_per_second') }} * cast(to_us - from_us as double)

),

shared_steps as (

    select
        dates.date,
        steps.series_id,
        greatest(steps.from_us, dates.start_us) as from_us,
        least(steps.to_us, dates.end_us) as to_us,
        steps.tokens * (
            (least(steps.to_us, dates.end_us) - greatest(steps.from_us, dates.start_us)) / cast(steps.to_us - steps.from_us as double)
        ) as tokens
    from possible_steps as steps
    inner join dates on steps.from_us < dates.end_us and steps.to_us > dates.start_us

),

troubled_steps as (

    select
        *,
        lag(value) over (partition by series_id, date order by observed_us) as before_value,
        lag(observed_us) over (partition by series_id, date order by observed_us) as before_us,
        observed_us - lag(observed_us) over (partition by series_id, date order by observed_us) as step_us
    from sound_samples

),

parts as (

    select
        date,
        series_id,
        first_us as from_us,
        last_us as to_us,
        last_value - first_value as tokens
    from token_days
    where not is_troubled and {{ in_run('date') }}
    union all
    select
        date,
        series_id,
        before_us as from_us,
        observed_us as to_us,
        case when value >= before_value then value - before_value else value end as tokens
    from troubled_steps
    where before_value is not null
        and {{ in_run('date') }}
        and case when value >= before_value then value - before_value else value end * 1e6
            <= {{ var('most_tokens_per_second') }} * cast(step_us as double)
    union all
    select date, series_id, from_us, to_us, tokens from shared_steps

),

own_parts as (

    select parts.*
    from parts
    left join copies on parts.date = copies.date and parts.series_id = copies.series_id
    where copies.series_id is null

),

counters as (

    select distinct series_id, factor from counter_days where quantity = 'tokens'

),

-- Copies of one counter are added up as one: all samples of the date, what any copy showed last before it and first
-- after it.
copy_points as (

    select
        copies.date,
        copies.reading_id,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        max(samples.value * counters.factor) as value
    from {{ ref('stg_token_samples') }} as samples
    inner join copies on samples.series_id = copies.series_id and cast(samples.observed_at as date) = copies.date
    inner join counters on copies.series_id = counters.series_id
    left join counter_samples
        on samples.series_id = counter_samples.series_id and {{ epoch_us('samples.observed_at') }} = counter_samples.observed_us
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
        and not coalesce(counter_samples.is_bad_scrape, false)
    group by copies.date, copies.reading_id, samples.observed_at

),

copy_ends as (

    {% for end, nearest, beyond in [('last', 'max', '<'), ('first', 'min', '>')] -%}
    select
        copies.date,
        copies.reading_id,
        {{ nearest }}(token_days.{{ end }}_us) as observed_us,
        {{ nearest }}_by(token_days.{{ end }}_value, token_days.{{ end }}_us) as value
    from copies
    inner join token_days on copies.series_id = token_days.series_id and token_days.date {{ beyond }} copies.date
    group by copies.date, copies.reading_id
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

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
    left join copy_ends
        on copies.date = copy_ends.date
        and copies.reading_id = copy_ends.reading_id
        and copy_ends.observed_us < born_steps.to_us
    where copy_ends.reading_id is null
    qualify row_number() over (partition by copies.date, copies.reading_id order by born_steps.to_us) = 1

),

-- What another copy had shown before is counted from there.
copy_firsts as (

    select
        date,
        reading_id,
        min(observed_us) as first_us
    from copy_points
    group by date, reading_id

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
    select
        copy_births.date,
        copy_births.reading_id,
        copy_births.from_us,
        copy_births.to_us,
        copy_births.tokens
    from copy_births
    inner join copy_firsts on copy_births.date = copy_firsts.date and copy_births.reading_id = copy_firsts.reading_id
    where copy_births.to_us = copy_firsts.first_us

),

copy_parts as (

    select
        copy_steps.date,
        copy_steps.reading_id,
        greatest(copy_steps.from_us, dates.start_us) as from_us,
        least(copy_steps.to_us, dates.end_us) as to_us,
        copy_steps.tokens * (
            (least(copy_steps.to_us, dates.end_us) - greatest(copy_steps.from_us, dates.start_us))
            / cast(copy_steps.to_us - copy_steps.from_us as double)
        ) as tokens
    from copy_steps
    inner join dates on copy_steps.date = dates.date and copy_steps.from_us < dates.end_us and copy_steps.to_us > dates.start_us
    where copy_steps.tokens * 1e6 <= {{ var('most_tokens_per_second') }} * cast(copy_steps.to_us - copy_steps.from_us as double)

),

final as (

    select date, series_id, cast(null as bigint) as reading_id, from_us, to_us, tokens from own_parts
    union all
    select date, cast(null as bigint) as series_id, reading_id, from_us, to_us, tokens from copy_parts

)

select * from final
