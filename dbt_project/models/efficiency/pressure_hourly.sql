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

-- A short key of series and quantity while millions of samples are grouped.
asked_series as (

    select
        series_id,
        quantity,
        factor,
        quantity in {{ of_counters }} as is_counter,
        row_number() over (order by series_id, quantity) as place
    from (select distinct series_id, quantity, factor from series) as named

),

samples as (

    select
        asked_series.place,
        {{ epoch_us('token_samples.observed_at') }} as observed_us,
        token_samples.value
    from {{ ref('stg_token_samples') }} as token_samples
    inner join asked_series on token_samples.series_id = asked_series.series_id
    where not asked_series.is_counter
        and token_samples.observed_at >= {{ run_start_at() }}
        and token_samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('token_samples.value') }}
        and {{ is_believed_gauge('asked_series.quantity', 'token_samples.value * asked_series.factor') }}

),

-- An interval may be cut by an hour.
sample_intervals as (

    select
        place,
        {{ int_div('observed_us', grid_us()) }} as interval_number,
        {{ int_div('observed_us', hour_us()) }} as hour_number,
        count(case when value > 0 then 1 end) as samples_above_zero,
        count(*) as samples,
        max(value) as most
    from samples
    group by place, {{ int_div('observed_us', grid_us()) }}, {{ int_div('observed_us', hour_us()) }}

),

watched_intervals as (

    select
        {{ columns_of('watched', keys) }},
        watched.series_id,
        watched.quantity,
        sample_intervals.interval_number,
        sample_intervals.hour_number,
        sample_intervals.samples_above_zero,
        sample_intervals.samples,
        sample_intervals.most * watched.factor as most
    from sample_intervals
    inner join asked_series on sample_intervals.place = asked_series.place
    inner join watched
        on asked_series.series_id = watched.series_id
        and asked_series.quantity = watched.quantity
        and {{ date_of_us('sample_intervals.hour_number * ' ~ hour_us()) }} = watched.date

),

-- Requests wait in an interval if they waited at half of its scrapes or more: a single one may have met a request on
-- its way in.
waiting_intervals as (

    select
        {{ keys | join(', ') }},
        interval_number,
        series_id,
        2 * sum(samples_above_zero) >= sum(samples) as is_queued,
        max(most) as waiting_requests
    from watched_intervals
    where quantity = 'requests_waiting'
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
        {{ keys | join(', ') }},
        hour_number,
        max(case when quantity = 'requests_running' then most end) as running_requests_max,
        max(case when quantity = 'kv_cache_usage' then most end) as kv_cache_usage_ratio_max
    from watched_intervals
    where quantity in ('requests_running', 'kv_cache_usage')
    group by all

),

-- Counters that fell, or of which a time came twice, are read sample by sample. Between falls a counter only rises: its
-- first value of an hour is the least, its last the greatest.
counter_places as (

    select
        asked_series.place,
        asked_series.series_id,
        coalesce(days.is_troubled, 1) = 1 as is_troubled
    from asked_series
    left join (
        select
            series_id,
            max(case when falls > 0 or duplicates > 0 then 1 else 0 end) as is_troubled
        from {{ ref('stg_series_days') }}
        where is_in_run
        group by series_id
    ) as days on asked_series.series_id = days.series_id
    where asked_series.is_counter

),

{% for troubled in [false, true] -%}
{{ 'troubled' if troubled else 'calm' }}_counts as (

    select
        counter_places.place,
        {% if troubled -%}
        {{ epoch_us('token_samples.observed_at') }} as first_us,
        token_samples.value as first_value,
        token_samples.value as last_value
        {%- else -%}
        {{ epoch_us('min(token_samples.observed_at)') }} as first_us,
        min(token_samples.value) as first_value,
        max(token_samples.value) as last_value
        {%- endif %}
    from {{ ref('stg_token_samples') }} as token_samples
    inner join counter_places on token_samples.series_id = counter_places.series_id
    where {{ '' if troubled else 'not ' }}counter_places.is_troubled
        and token_samples.observed_at >= {{ run_start_at() }}
        and token_samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('token_samples.value') }}
    {%- if not troubled %}
    group by counter_places.place, {{ int_div(epoch_us('token_samples.observed_at'), hour_us()) }}
    {%- endif %}

),

{% endfor -%}
counts as (

    select place, first_us, first_value, last_value from calm_counts
    union all
    select place, first_us, first_value, last_value from troubled_counts
    union all
    select
        asked_series.place,
        neighbours.last_us as first_us,
        neighbours.last_value / asked_series.factor as first_value,
        neighbours.last_value / asked_series.factor as last_value
    from neighbours
    inner join asked_series on neighbours.series_id = asked_series.series_id
    where asked_series.is_counter

),

-- After a fall the new value is what was counted since; before a series' first sample nothing is known.
count_steps as (

    select
        place,
        {{ int_div('first_us', hour_us()) }} as hour_number,
        last_value - first_value
        + case
            when first_value >= previous_value then first_value - previous_value
            when previous_value is not null then first_value
            else 0
        end as risen
    from (select *, lag(last_value) over (partition by place order by first_us) as previous_value from counts) as ordered

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
    inner join asked_series on count_steps.place = asked_series.place
    inner join watched
        on asked_series.series_id = watched.series_id
        and asked_series.quantity = watched.quantity
        and {{ date_of_us('count_steps.hour_number * ' ~ hour_us()) }} = watched.date
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
