-- Which source and metric counts an engine's tokens of a class in each stretch of a date: by rank among those that cover
-- at least half of what the best one covers. Before that one begins, after it ends and where it is silent for more than an
-- hour, the next one counts: an engine changes its kind, a counter its name, monitoring its server. Over a shorter silence
-- a counter shows afterwards what it counted. A frontend counts only for models of whose engines none reports in its
-- namespace, a gateway only for models that nothing nearer reports at all; of gateways in line one counts. One row per
-- date, engine, token class and stretch; the first has no from_us, the last no to_us. The book and its balance both read
-- the stretches here.
{% set rival_keys = ['run_date', 'engine', 'token_class', 'source', 'metric'] %}
{% set span_keys = rival_keys + ['series_id', 'date'] %}

with series as (

    select * from {{ ref('stg_series') }}

),

series_days as (

    select * from {{ ref('stg_series_days') }}

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

gateways_in_line as (

    select * from {{ ref('int_gateways_in_line') }}

),

series_spans as (

    select
        *,
        coalesce(lag(last_us) over series_window, first_us) as covers_from_us,
        coalesce(lead(first_us) over series_window, last_us) as covers_to_us
    from (
        select
            series_id,
            date,
            max(sampling_interval_seconds) as sampling_interval_seconds,
            max(longest_gap_seconds) as longest_gap_seconds,
            min(first_us) as first_us,
            max(last_us) as last_us
        from series_days
        group by series_id, date
    ) as days
    window series_window as (partition by series_id order by date)

),

named_spans as (

    select
        series_spans.*,
        greatest({{ hour_us() }}, {{ gap_cap_us('series_spans.sampling_interval_seconds') }}) as longest_silence_us,
        run_dates.date as run_date,
        run_dates.start_us,
        run_dates.end_us,
        coalesce(copies.engine, series.engine) as engine,
        series.level,
        coalesce(copies.model, series.model) as model,
        coalesce(copies.namespace, series.namespace) as namespace,
        series.token_class,
        series.source,
        series.metric,
        series.rank
    from series_spans
    inner join run_dates
        on series_spans.date = run_dates.date
        or (series_spans.covers_from_us < run_dates.end_us and series_spans.covers_to_us > run_dates.start_us)
    inner join series on series_spans.series_id = series.series_id
    left join copies on run_dates.date = copies.date and series_spans.series_id = copies.series_id
    where series.quantity = 'tokens'

),

candidates as (

    select
        run_date as date,
        engine,
        level,
        model,
        namespace,
        token_class,
        source,
        metric,
        rank,
        max(sampling_interval_seconds) as sampling_interval_seconds,
        min(greatest(covers_from_us, start_us)) as covers_from_us,
        max(least(covers_to_us, end_us)) as covers_to_us
    from named_spans
    group by run_date, engine, level, model, namespace, token_class, source, metric, rank

),

engine_models as (

    select distinct date, model, namespace from candidates where level = 'engine'

),

frontend_models as (

    select distinct date, model from candidates where level in ('engine', 'frontend')

),

-- An engine may serve one model after another: its metric covers both.
nearest as (

    select
        candidates.date,
        candidates.engine,
        candidates.token_class,
        candidates.source,
        candidates.metric,
        candidates.rank,
        max(candidates.sampling_interval_seconds) as sampling_interval_seconds,
        min(candidates.covers_from_us) as covers_from_us,
        max(candidates.covers_to_us) as covers_to_us,
        max(candidates.covers_to_us) - min(candidates.covers_from_us) as coverage_us
    from candidates
    left join engine_models
        on candidates.level = 'frontend'
        and candidates.date = engine_models.date
        and candidates.model = engine_models.model
        and coalesce(candidates.namespace = engine_models.namespace, true)
    left join frontend_models
        on candidates.level = 'gateway' and candidates.date = frontend_models.date and candidates.model = frontend_models.model
    left join gateways_in_line on candidates.date = gateways_in_line.date and candidates.engine = gateways_in_line.engine
    where engine_models.model is null and frontend_models.model is null and gateways_in_line.engine is null
    group by all

),

compared as (

    select
        *,
        count(*) over class_window as metrics,
        max(coverage_us) over class_window as best_coverage_us,
        {{ gap_cap_us('max(sampling_interval_seconds) over class_window', var('grid_seconds')) }} as shortest_us
    from nearest
    window class_window as (partition by date, engine, token_class)

),

ranked as (

    select
        *,
        row_number() over (
            partition by date, engine, token_class
            order by case when coverage_us >= 0.5 * best_coverage_us then 0 else 1 end, rank, coverage_us desc, source, metric
        ) as preference
    from compared

),

rivals as (

    select * from ranked where metrics > 1

),

rival_spans as (

    select named_spans.*
    from named_spans
    inner join rivals
        on named_spans.run_date = rivals.date and {{ equal_keys('named_spans', 'rivals', ['engine', 'token_class', 'source', 'metric']) }}

),

-- Within a date only the samples show where a series was silent.
silences as (

    select
        series_id,
        date,
        before_us,
        observed_us
    from (
        select
            silent_days.series_id,
            silent_days.date,
            silent_days.longest_silence_us,
            {{ epoch_us('samples.observed_at') }} as observed_us,
            lag({{ epoch_us('samples.observed_at') }}) over (
                partition by silent_days.series_id, silent_days.date order by samples.observed_at
            ) as before_us
        from {{ ref('stg_token_samples') }} as samples
        inner join (
            select distinct
                series_id,
                date,
                longest_silence_us
            from rival_spans
            where date = run_date and longest_gap_seconds * 1e6 > longest_silence_us
        ) as silent_days
            on samples.series_id = silent_days.series_id
            and {{ date_of_us(epoch_us('samples.observed_at')) }} = silent_days.date
        where samples.observed_at >= {{ run_start_at() }}
            and samples.observed_at < {{ run_end_at() }}
            and {{ is_valid_sample('samples.value') }}
    ) as steps
    where observed_us - before_us > longest_silence_us

),

-- A series was seen from each of these starts to the end before the next one.
seen_spans as (

    select
        *,
        greatest(
            case when first_us - covers_from_us > longest_silence_us then first_us else covers_from_us end, start_us
        ) as seen_from_us,
        least(case when covers_to_us - last_us > longest_silence_us then last_us else covers_to_us end, end_us) as seen_to_us
    from rival_spans

),

seen_starts as (

    select
        {{ span_keys | join(', ') }},
        seen_from_us as from_us,
        cast(null as bigint) as previous_to_us,
        seen_to_us
    from seen_spans
    where seen_from_us < seen_to_us
    union all
    select
        {{ columns_of('seen_spans', span_keys) }},
        silences.observed_us as from_us,
        silences.before_us as previous_to_us,
        seen_spans.seen_to_us
    from seen_spans
    inner join silences on seen_spans.series_id = silences.series_id and seen_spans.date = silences.date

),

seen_series as (

    select
        *,
        coalesce(lead(previous_to_us) over (partition by {{ span_keys | join(', ') }} order by from_us), seen_to_us) as to_us
    from seen_starts

),

-- A gateway has a series per key: what they show together is a few times of the metric.
seen_after_others as (

    select
        *,
        max(to_us) over (
            partition by {{ rival_keys | join(', ') }} order by from_us, to_us rows between unbounded preceding and 1 preceding
        ) as others_to_us
    from seen_series

),

numbered_sights as (

    select
        *,
        sum(case when from_us <= others_to_us then 0 else 1 end) over (
            partition by {{ rival_keys | join(', ') }} order by from_us, to_us rows between unbounded preceding and current row
        ) as sight
    from seen_after_others

),

seen as (

    select
        {{ rival_keys | join(', ') }},
        min(from_us) as from_us,
        max(to_us) as to_us
    from numbered_sights
    group by {{ rival_keys | join(', ') }}, sight

),

-- A class that several metrics count is cut where any of them begins, ends or is silent. A piece is the first one's of
-- those that were seen in it, else of those that cover it.
edges as (

    {% for relation, date, from_us, to_us in [
        ('rivals', 'date', 'covers_from_us', 'covers_to_us'), ('seen', 'run_date', 'from_us', 'to_us')
    ] -%}
    select {{ date }} as date, engine, token_class, {{ from_us }} as edge_us from {{ relation }}
    union
    select {{ date }} as date, engine, token_class, {{ to_us }} as edge_us from {{ relation }}
    {% if not loop.last %}union{% endif %}
    {% endfor %}

),

pieces as (

    select
        *,
        lead(edge_us) over (partition by date, engine, token_class order by edge_us) as next_edge_us
    from edges

),

covered_pieces as (

    select
        rivals.date,
        rivals.engine,
        rivals.token_class,
        rivals.source,
        rivals.metric,
        rivals.preference,
        rivals.shortest_us,
        pieces.edge_us,
        pieces.next_edge_us,
        max(case when seen.metric is null then 0 else 1 end) as is_seen
    from pieces
    inner join rivals
        on {{ equal_keys('pieces', 'rivals', ['date', 'engine', 'token_class']) }}
        and rivals.covers_from_us <= pieces.edge_us
        and rivals.covers_to_us >= pieces.next_edge_us
    left join seen
        on rivals.date = seen.run_date
        and {{ equal_keys('rivals', 'seen', ['engine', 'token_class', 'source', 'metric']) }}
        and seen.from_us <= pieces.edge_us
        and seen.to_us >= pieces.next_edge_us
    group by all

),

owned_pieces as (

    select *
    from covered_pieces
    where is_seen = 1 or next_edge_us - edge_us > shortest_us
    qualify row_number() over (partition by date, engine, token_class, edge_us order by is_seen desc, preference) = 1

),

turns as (

    select
        *,
        case when preference = lag(preference) over piece_window then 0 else 1 end as is_turn
    from owned_pieces
    window piece_window as (partition by date, engine, token_class order by edge_us)

),

numbered_turns as (

    select
        *,
        sum(is_turn) over (
            partition by date, engine, token_class order by edge_us rows between unbounded preceding and current row
        ) as turn
    from turns

),

turns_of_metrics as (

    select
        date,
        engine,
        token_class,
        source,
        metric,
        min(edge_us) as begins_us,
        max(next_edge_us) as ends_us,
        max(shortest_us) as shortest_us
    from numbered_turns
    group by date, engine, token_class, source, metric, turn
    having max(next_edge_us) - min(edge_us) > max(shortest_us)

),

-- A stretch begins where the one before it ends: a process counts before its first sample.
stretches as (

    select
        date,
        engine,
        token_class,
        source,
        metric,
        lag(ends_us) over turn_window as from_us,
        case when lead(ends_us) over turn_window is not null then ends_us end as to_us,
        ends_us - begins_us as known_us,
        shortest_us,
        count(*) over (partition by date, engine, token_class) > 1 as is_handed_over
    from turns_of_metrics
    window turn_window as (partition by date, engine, token_class order by begins_us)
    union all
    select
        ranked.date,
        ranked.engine,
        ranked.token_class,
        ranked.source,
        ranked.metric,
        cast(null as bigint) as from_us,
        cast(null as bigint) as to_us,
        ranked.coverage_us as known_us,
        ranked.shortest_us,
        false as is_handed_over
    from ranked
    left join turns_of_metrics on {{ equal_keys('ranked', 'turns_of_metrics', ['date', 'engine', 'token_class']) }}
    where ranked.preference = 1 and turns_of_metrics.engine is null

),

-- Of an engine that is handed over, a class that one of its sources does not count is unknown on the date: what the
-- others count of it would pass for all of it.
known_classes as (

    select
        *,
        max(case when is_handed_over then class_known_us end) over (partition by date, engine) as engine_known_us
    from (
        select
            *,
            sum(known_us) over (partition by date, engine, token_class) as class_known_us
        from stretches
    ) as known

),

final as (

    select
        date,
        engine,
        token_class,
        source,
        metric,
        from_us,
        to_us
    from known_classes
    where coalesce(class_known_us >= engine_known_us - shortest_us, true)

)

select * from final
