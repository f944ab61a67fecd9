-- How busy the MIG instances of a shared board were: one row per date, board, instance and interval.
with claims as (

    select * from {{ ref('int_claims') }}

),

series as (

    select * from {{ ref('stg_series') }}

),

power_samples as (

    select * from {{ source('raw', 'power_samples') }}

),

shared_boards as (

    select distinct
        date,
        meter
    from claims
    where members > 1 and mig_instance is not null

),

activity_series as (

    select
        shared_boards.date,
        series.series_id,
        series.meter,
        series.mig_instance,
        series.factor
    from series
    inner join shared_boards on series.device_uuid = shared_boards.meter
    where series.quantity = 'activity' and series.mig_instance is not null
    qualify rank() over (partition by shared_boards.date, series.meter order by series.rank) = 1

),

final as (

    select
        activity_series.date,
        activity_series.meter,
        activity_series.mig_instance,
        {{ int_div(epoch_us('power_samples.observed_at'), grid_us()) }} as interval_number,
        {{ ratio(exact_sum('power_samples.value * activity_series.factor'), 'count(*)') }} as activity_ratio
    from power_samples
    inner join activity_series on power_samples.series_id = activity_series.series_id
    where power_samples.observed_at >= {{ run_start_at() }}
        and power_samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('power_samples.value') }}
        and {{ is_believed_gauge("'activity'", 'power_samples.value * activity_series.factor') }}
        and {{ int_div(epoch_us('power_samples.observed_at'), day_us()) }} = {{ int_div(epoch_us('cast(activity_series.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
    group by all

)

select * from final
