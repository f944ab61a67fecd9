-- The buckets by which an engine's latency is assessed on a date: of one histogram of the time to first token and one
-- of the time per output token, the bounds next to the model's SLO and the count of all. Histograms of per-request
-- means are preferred to those of token gaps.
with series as (

    select * from {{ ref('stg_series') }}
    where quantity in ('ttft_bucket', 'tpot_bucket', 'itl_bucket') and bucket_bound_seconds is not null

),

series_days as (

    select * from {{ ref('stg_series_days') }} where is_in_run

),

copies as (

    select * from {{ ref('int_scrape_copies') }}

),

models as (

    select * from {{ source('fleet', 'models') }} where ttft_slo_seconds is not null or tpot_slo_seconds is not null

),

-- The last bucket holds everything.
buckets as (

    select
        series_days.date,
        coalesce(copies.engine, series.engine) as engine,
        case series.quantity when 'ttft_bucket' then 'ttft' else 'tpot' end as criterion,
        case series.quantity when 'ttft_bucket' then models.ttft_slo_seconds else models.tpot_slo_seconds end as slo_seconds,
        case series.quantity when 'itl_bucket' then 'token_gaps' else 'request_means' end as latency_basis,
        series.bucket_bound_seconds as bound_seconds,
        series.level,
        series.source,
        series.metric,
        series.rank,
        coalesce(copies.reading_id, series.reading_id) as reading_id,
        series_days.first_us,
        series_days.last_us
    from series
    inner join models on series.model = models.model
    inner join series_days on series.series_id = series_days.series_id
    left join copies on series_days.date = copies.date and series_days.series_id = copies.series_id

),

histograms as (

    select
        date,
        engine,
        criterion,
        latency_basis,
        source,
        metric,
        rank,
        max(last_us) - min(first_us) as coverage_us
    from buckets
    group by all

),

compared as (

    select
        *,
        max(coverage_us) over (partition by date, engine, criterion) as best_coverage_us
    from histograms

),

chosen as (

    select *
    from compared
    qualify row_number() over (
        partition by date, engine, criterion
        order by case when coverage_us >= 0.5 * best_coverage_us then 0 else 1 end, latency_basis, rank, coverage_us desc, source, metric
    ) = 1

),

-- A bound that some series of an engine lack (ranks of another version) is not used: it would leave out their requests.
bounds as (

    select
        buckets.date,
        buckets.engine,
        buckets.criterion,
        buckets.level,
        buckets.latency_basis,
        buckets.source,
        buckets.metric,
        buckets.bound_seconds,
        max(buckets.slo_seconds) as slo_seconds,
        count(distinct buckets.reading_id) as bound_series
    from buckets
    inner join chosen on {{ equal_keys('buckets', 'chosen', ['date', 'engine', 'criterion', 'source', 'metric']) }}
    group by all

),

shared_bounds as (

    select *
    from bounds
    qualify bound_series = max(case when bound_seconds = 1e300 then bound_series end) over (partition by date, engine, criterion)

),

judging_bounds as (

    select
        *,
        coalesce(
            bound_seconds = max(case when bound_seconds <= slo_seconds then bound_seconds end) over histogram_window,
            false
        ) as is_below,
        coalesce(
            bound_seconds = min(case when bound_seconds >= slo_seconds then bound_seconds end) over histogram_window,
            false
        ) as is_above,
        bound_seconds = 1e300 as is_all
    from shared_bounds
    window histogram_window as (partition by date, engine, criterion)

),

final as (

    select distinct
        buckets.date,
        buckets.engine,
        buckets.criterion,
        judging_bounds.level,
        judging_bounds.latency_basis,
        judging_bounds.source,
        judging_bounds.metric,
        judging_bounds.bound_seconds,
        judging_bounds.is_below,
        judging_bounds.is_above,
        judging_bounds.is_all,
        buckets.reading_id
    from judging_bounds
    inner join buckets
        on {{ equal_keys(
            'judging_bounds',
            'buckets',
            ['date', 'engine', 'criterion', 'source', 'metric', 'bound_seconds']
        ) }}
    where judging_bounds.is_below or judging_bounds.is_above or judging_bounds.is_all

)

select * from final
