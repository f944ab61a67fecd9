-- Which two scrape targets may be one process scraped twice: one row per date and pair of targets with a token counter under equal labels of
-- the exporter, in one place or of one process start, and what that date alone says of them. Sample by sample only their best moved counter.
with targets as (

    select * from {{ ref('int_scrape_targets') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }} where is_in_run

),

glitches as (

    select * from {{ ref('int_token_glitches') }}

),

engine_targets as (

    select * from {{ source('fleet', 'engine_targets') }}

),

counter_days as (

    select
        series_days.date,
        targets.target,
        targets.metric,
        targets.exporter_labels,
        targets.series_id,
        max(series_days.last_value) - min(series_days.first_value) as risen
    from targets
    inner join series_days on targets.series_id = series_days.series_id
    where targets.quantity = 'tokens'
    group by series_days.date, targets.target, targets.metric, targets.exporter_labels, targets.series_id

),

shared_counters as (

    select
        date,
        metric,
        exporter_labels
    from counter_days
    group by date, metric, exporter_labels
    having count(*) > 1

),

starts as (

    select
        series_days.date,
        targets.target,
        min(series_days.first_value) as first_start,
        max(series_days.last_value) as last_start
    from targets
    inner join series_days on targets.series_id = series_days.series_id
    where targets.quantity = 'process_start'
    group by series_days.date, targets.target

),

-- One row per target: what its series say of its place.
places as (

    select
        counter_days.date,
        targets.target,
        min(targets.source) as source,
        max(targets.cluster) as cluster,
        max(targets.namespace) as namespace,
        max(targets.pod) as pod,
        max(targets.node) as node,
        max(targets.host) as host,
        max(targets.port) as port,
        max(targets.engine) as engine,
        max(engine_targets.engine) as stated_engine,
        max(starts.first_start) as first_start,
        max(starts.last_start) as last_start
    from counter_days
    inner join shared_counters
        on counter_days.date = shared_counters.date
        and counter_days.metric = shared_counters.metric
        and counter_days.exporter_labels = shared_counters.exporter_labels
    inner join targets on counter_days.series_id = targets.series_id
    left join engine_targets on targets.instance = engine_targets.target
    left join starts on counter_days.date = starts.date and counter_days.target = starts.target
    group by counter_days.date, targets.target

),

-- Who is compared with whom: targets that name the same pod, host, engine or process start.
marks as (

    select date, target, 'pod ' || pod as mark from places where pod is not null
    union
    select date, target, 'host ' || pod as mark from places where pod is not null
    union
    select date, target, 'host ' || host as mark from places where host is not null
    union
    select date, target, 'engine ' || engine as mark from places where engine is not null
    union
    select date, target, 'start ' || cast(last_start as {{ dbt.type_string() }}) as mark from places where last_start is not null

),

met as (

    select distinct
        one.date,
        one.target,
        other.target as other_target
    from marks as one
    inner join marks as other on one.date = other.date and one.mark = other.mark and one.target < other.target

),

compared as (

    select
        met.date,
        met.target,
        met.other_target,
        one.source = other.source as is_one_source,
        one.engine as engine,
        other.engine as other_engine,
        coalesce(one.cluster <> other.cluster, false)
        or coalesce(one.namespace <> other.namespace, false)
        or coalesce(one.pod <> other.pod, false) as is_elsewhere,
        -- Hosts are compared where a pod is not stated on both sides.
        coalesce(one.pod = other.pod, false)
        or one.host is null
        or other.host is null
        or one.host = other.host
        or coalesce(one.host in (other.pod, other.node), false)
        or coalesce(other.host in (one.pod, one.node), false) as is_one_place,
        one.cluster is not distinct from other.cluster
        and one.namespace is not distinct from other.namespace
        and one.pod is not distinct from other.pod
        and (one.pod is not null or coalesce(one.host = other.host, false))
        and coalesce(one.port = other.port, false) as is_one_address,
        coalesce(
            abs(one.first_start - other.first_start) < 1
            or abs(one.last_start - other.last_start) < 1
            or abs(one.first_start - other.last_start) < 1
            or abs(one.last_start - other.first_start) < 1,
            false
        ) as is_one_start,
        one.last_start is not null and other.last_start is not null as are_starts_known,
        coalesce(one.stated_engine, one.engine) = coalesce(other.stated_engine, other.engine)
        and coalesce(one.stated_engine, other.stated_engine) is not null as is_stated
    from met
    inner join places as one on met.date = one.date and met.target = one.target
    inner join places as other on met.date = other.date and met.other_target = other.target

),

-- Two servers that watched one engine under one name are told apart by the choice of a source.
candidates as (

    select *
    from compared
    where (is_one_source or engine <> other_engine)
        and (is_stated or (not is_elsewhere and (is_one_start or not are_starts_known)))

),

pair_counters as (

    select
        candidates.date,
        candidates.target,
        candidates.other_target,
        one.series_id,
        other.series_id as other_series_id
    from candidates
    inner join counter_days as one on candidates.date = one.date and candidates.target = one.target
    inner join counter_days as other
        on candidates.date = other.date
        and candidates.other_target = other.target
        and one.metric = other.metric
        and one.exporter_labels = other.exporter_labels
    qualify row_number() over (
        partition by candidates.date, candidates.target, candidates.other_target
        order by one.risen + other.risen desc, one.metric, one.exporter_labels
    ) = 1

),

watched as (

    select date, target, other_target, series_id, true as is_first from pair_counters
    union all
    select date, target, other_target, other_series_id as series_id, false as is_first from pair_counters

),

points as (

    select
        watched.date,
        watched.target,
        watched.other_target,
        watched.is_first,
        {{ epoch_us('samples.observed_at') }} as observed_us,
        max(samples.value) as value
    from {{ source('raw', 'token_samples') }} as samples
    inner join watched
        on samples.series_id = watched.series_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }} = {{ int_div(epoch_us('cast(watched.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
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
        on sided.date = before.date
        and sided.target = before.target
        and sided.other_target = before.other_target
        and sided.is_first <> before.is_first
        and sided.met_number = before.own_number
    left join sided as after
        on sided.date = after.date
        and sided.target = after.target
        and sided.other_target = after.other_target
        and sided.is_first <> after.is_first
        and sided.met_number + 1 = after.own_number

),

-- A sample contradicts where it is below what the other showed before or above what it showed after, or differs from it at one moment. Where the
-- other began anew in between, it may be either.
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

judged as (

    select
        candidates.*,
        coalesce(evidence.contradictions, 0) as contradictions,
        -- Both sides are counted: a step that one of them sees lies between two samples of the other.
        coalesce(evidence.increments, 0) as increments
    from candidates
    left join evidence
        on candidates.date = evidence.date
        and candidates.target = evidence.target
        and candidates.other_target = evidence.other_target

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
    from judged

)

select * from final
