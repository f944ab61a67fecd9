-- Whether the samples of one date agree for two scrape targets that could be one process: one row per date and pair.
-- Only their best moved counter is compared sample by sample.
with candidates as (

    select * from {{ ref('int_scrape_candidates') }}

),

glitches as (

    select * from {{ ref('int_token_glitches') }}

),

watched as (

    select date, target, other_target, series_id, true as is_first from candidates where series_id is not null
    union all
    select date, target, other_target, other_series_id as series_id, false as is_first from candidates where other_series_id is not null

),

points as (

    select
        watched.date,
        watched.target,
        watched.other_target,
        watched.is_first,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        max(samples.value) as value
    from {{ ref('stg_token_samples') }} as samples
    inner join watched
        on samples.series_id = watched.series_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }}
            = {{ int_div(epoch_us('cast(watched.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
    left join glitches on samples.series_id = glitches.series_id and {{ epoch_us('samples.observed_at') }} = glitches.observed_us
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
        and glitches.series_id is null
    group by watched.date, watched.target, watched.other_target, watched.is_first, samples.observed_at

),

-- How many samples of either side have been seen up to each.
numbered as (

    select
        *,
        count(case when is_first then 1 end) over (
            partition by date, target, other_target order by observed_us, is_first desc rows unbounded preceding
        ) as first_seen,
        count(case when not is_first then 1 end) over (
            partition by date, target, other_target order by observed_us, is_first desc rows unbounded preceding
        ) as other_seen
    from points

),

sided as (

    select
        date,
        target,
        other_target,
        is_first,
        observed_us,
        value,
        case when is_first then first_seen else other_seen end as own_number,
        case when is_first then other_seen else first_seen end as met_number
    from numbered

),

neighboured as (

    select
        sided.date,
        sided.target,
        sided.other_target,
        sided.value,
        sided.observed_us,
        before.value as before_value,
        before.observed_us as before_us,
        after.value as after_value,
        after.observed_us as after_us
    from sided
    left join sided as before
        on {{ equal_keys('sided', 'before', ['date', 'target', 'other_target']) }}
        and sided.is_first <> before.is_first
        and sided.met_number = before.own_number
    left join sided as after
        on {{ equal_keys('sided', 'after', ['date', 'target', 'other_target']) }}
        and sided.is_first <> after.is_first
        and sided.met_number + 1 = after.own_number

),

-- A sample contradicts the other target if it is below that target's previous value, above its next one, or differs
-- from its value at the same time. If the other target restarted between these two, the sample contradicts neither.
evidence as (

    select
        date,
        target,
        other_target,
        sum(case
            when before_us = observed_us and before_value <> value then 1
            when after_us = observed_us and after_value <> value then 1
            when after_value < before_value then case when value < before_value and value > after_value then 1 else 0 end
            when value < before_value or value > after_value then 1
            else 0
        end) as contradictions,
        sum(case when before_value < after_value then 1 else 0 end) as increments
    from neighboured
    group by date, target, other_target

),

assessed as (

    select
        candidates.*,
        coalesce(evidence.contradictions, 0) as contradictions,
        -- Both sides are counted: a step that only one of them samples falls between two samples of the other.
        coalesce(evidence.increments, 0) as increments
    from candidates
    left join evidence on {{ equal_keys('candidates', 'evidence', ['date', 'target', 'other_target']) }}

),

final as (

    select
        date,
        target,
        other_target,
        engine,
        other_engine,
        contradictions,
        increments,
        case
            when is_stated then 'fleet_file'
            when contradictions > 0 then 'apart'
            when is_one_place and is_one_start and increments >= 40 then 'same_process'
            when is_one_source and is_one_address then 'same_address'
            when increments >= 40 then 'suspected'
            else 'apart'
        end as basis
    from assessed

)

select * from final
