-- Whether a deployment had too little already: requests that waited, requests that were thrown out of the batch, a full
-- KV cache; and how many requests ended, and how many of them without an answer.
{% set keys = ['date', 'site', 'deployment', 'model', 'role'] %}
{% set counted = {
    'preemptions': 'preemptions', 'requests_finished': 'finished_requests', 'requests_aborted': 'aborted_requests'
} %}
{% set of_counters = "('" ~ (counted | join("', '")) ~ "')" %}

with hours as (

    select distinct
        hour_start_at,
        {{ keys | join(', ') }}
    from {{ ref('model_hourly') }}
    where {{ in_run('date') }} and model not in ({{ unallocated() }}, {{ unknown() }}) and meter_scope <> 'none'

),

claims as (

    select * from {{ ref('int_claims') }}

),

meters as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked'

),

series as (

    select *
    from {{ ref('stg_series') }}
    where quantity in ('requests_waiting', 'requests_running', 'kv_cache_usage') or quantity in {{ of_counters }}

),

neighbours as (

    select * from {{ ref('stg_series_days') }} where date < date '{{ start_date() }}'

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

engines as (

    select distinct
        claims.date,
        claims.engine,
        claims.namespace,
        meters.site,
        claims.deployment,
        claims.model,
        claims.role
    from claims
    inner join meters on {{ equal_keys('claims', 'meters', ['date', 'meter_scope', 'meter']) }}

),

-- A frontend's queue is that of all engines of its model behind it; one that names no model is that of all models of
-- its engine. What a process throws out is counted once, however often it is scraped.
watched as (

    {% for matches in [
        'series.engine = engines.engine and coalesce(series.model, engines.model) = engines.model',
        "series.level = 'frontend' and series.engine <> engines.engine and series.model = engines.model"
        ~ " and series.namespace is not distinct from engines.namespace"
    ] -%}
    select
        {{ columns_of('engines', keys) }},
        series.series_id,
        series.source,
        series.metric,
        series.quantity,
        series.factor
    from series
    inner join engines on {{ matches }}
    left join copies on engines.date = copies.date and series.series_id = copies.series_id
    where series.quantity not in {{ of_counters }} or not coalesce(copies.is_redundant, false)
    {% if not loop.last -%}
    union
    {% endif -%}
    {% endfor %}

),

samples as (

    select
        token_samples.series_id,
        series.quantity,
        cast(token_samples.observed_at as date) as date,
        {{ epoch_us('token_samples.observed_at') }} as observed_us,
        token_samples.value
    from {{ source('raw', 'token_samples') }} as token_samples
    inner join series on token_samples.series_id = series.series_id
    where token_samples.observed_at >= {{ run_start_at() }}
        and token_samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('token_samples.value') }}
        and {{ is_believed_gauge('series.quantity', 'token_samples.value * series.factor') }}

),

-- Requests wait in an interval if they waited at half of its scrapes or more: a single one may have met a request on
-- its way in.
waiting_intervals as (

    select
        {{ columns_of('watched', keys) }},
        {{ int_div('samples.observed_us', grid_us()) }} as interval_number,
        watched.series_id,
        2 * count(case when samples.value > 0 then 1 end) >= count(*) as is_queued,
        max(samples.value * watched.factor) as waiting_requests
    from samples
    inner join watched on samples.series_id = watched.series_id and samples.date = watched.date
    where watched.quantity = 'requests_waiting'
    group by all

),

queues as (

    select
        {{ keys | join(', ') }},
        {{ int_div('interval_number * ' ~ grid_us(), hour_us()) }} as hour_number,
        count(distinct interval_number) as intervals,
        count(distinct case when is_queued then interval_number end) as queued_intervals,
        max(waiting_requests) as waiting_requests_max
    from waiting_intervals
    group by all

),

gauges as (

    select
        {{ columns_of('watched', keys) }},
        {{ int_div('samples.observed_us', hour_us()) }} as hour_number,
        max(case when watched.quantity = 'requests_running' then samples.value * watched.factor end) as running_requests_max,
        max(case when watched.quantity = 'kv_cache_usage' then samples.value * watched.factor end) as kv_cache_usage_ratio_max
    from samples
    inner join watched on samples.series_id = watched.series_id and samples.date = watched.date
    where watched.quantity in ('requests_running', 'kv_cache_usage')
    group by all

),

counts as (

    select
        samples.series_id,
        samples.quantity,
        samples.date,
        samples.observed_us,
        samples.value
    from samples
    where samples.quantity in {{ of_counters }}
    union all
    select
        neighbours.series_id,
        series.quantity,
        neighbours.date,
        neighbours.last_us,
        neighbours.last_value / series.factor as value
    from neighbours
    inner join series on neighbours.series_id = series.series_id
    where series.quantity in {{ of_counters }}

),

-- After a fall the new value is what was counted since; before a series' first sample nothing is known.
count_steps as (

    select
        series_id,
        quantity,
        date,
        {{ int_div('observed_us', hour_us()) }} as hour_number,
        case when value >= previous_value then value - previous_value when previous_value is not null then value else 0 end as risen
    from (
        select *, lag(value) over (partition by series_id, quantity order by observed_us) as previous_value from counts
    ) as ordered

),

-- Two sources of one counter report the same value twice.
source_counts as (

    select
        {{ columns_of('watched', keys) }},
        watched.source,
        watched.metric,
        watched.quantity,
        count_steps.hour_number,
        sum(count_steps.risen * watched.factor) as risen
    from count_steps
    inner join watched
        on count_steps.series_id = watched.series_id
        and count_steps.quantity = watched.quantity
        and count_steps.date = watched.date
    group by all

),

counters as (

    select
        {{ keys | join(', ') }},
        hour_number,
        {% for quantity, name in counted.items() -%}
        max(case when quantity = '{{ quantity }}' then risen end) as {{ name }}{{ ',' if not loop.last }}
        {% endfor %}
    from source_counts
    group by all

),

final as (

    select
        hours.date,
        hours.hour_start_at,
        hours.site,
        hours.deployment,
        hours.model,
        hours.role,
        cast(queues.intervals as integer) as intervals,
        cast(queues.queued_intervals as integer) as queued_intervals,
        queues.waiting_requests_max,
        gauges.running_requests_max,
        counters.preemptions,
        gauges.kv_cache_usage_ratio_max,
        queues.intervals is not null as has_queue_telemetry,
        counters.finished_requests,
        counters.aborted_requests
    from hours
    {% for found in ['queues', 'gauges', 'counters'] -%}
    left join {{ found }}
        on {{ equal_keys('hours', found, keys) }}
        and {{ int_div(epoch_us('hours.hour_start_at'), hour_us()) }} = {{ found }}.hour_number
    {% endfor %}

)

select * from final
