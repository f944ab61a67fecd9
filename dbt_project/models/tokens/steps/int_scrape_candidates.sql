-- Which two scrape targets could be one process scraped twice, by their labels and process starts: they have a token
-- counter under equal labels of the exporter, and their places do not contradict. One row per date and pair, with the
-- counter of both that moved most.
with targets as (

    select * from {{ ref('int_scrape_targets') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }} where is_in_run

),

engine_targets as (

    select * from {{ source('fleet', 'engine_targets') }}

),

-- One process of several that answer for a page is seen on the other page as well, under the same number.
tracks as (

    select series_id, max(track) as track from {{ ref('stg_series_parts') }} where track is not null group by series_id

),

counter_days as (

    select
        series_days.date,
        targets.target,
        targets.metric,
        targets.exporter_labels,
        targets.series_id,
        coalesce(max(tracks.track), 1) as track,
        max(series_days.last_value) - min(series_days.first_value) as risen
    from targets
    inner join series_days on targets.series_id = series_days.series_id
    left join tracks on targets.series_id = tracks.series_id
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

-- One row per target: the place that its series name.
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
    inner join shared_counters on {{ equal_keys('counter_days', 'shared_counters', ['date', 'metric', 'exporter_labels']) }}
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
        one.engine,
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
        (one.cluster is not distinct from other.cluster)
        and (one.namespace is not distinct from other.namespace)
        and (one.pod is not distinct from other.pod)
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

-- Two servers that watched one engine under one name are handled by the choice of a source.
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
        and one.track = other.track
    qualify row_number() over (
        partition by candidates.date, candidates.target, candidates.other_target
        order by one.risen + other.risen desc, one.metric, one.exporter_labels, one.track
    ) = 1

),

final as (

    select
        candidates.*,
        pair_counters.series_id,
        pair_counters.other_series_id
    from candidates
    left join pair_counters on {{ equal_keys('candidates', 'pair_counters', ['date', 'target', 'other_target']) }}

)

select * from final
