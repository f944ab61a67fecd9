-- How busy those are that share a board: one row per date, board, member (a MIG instance, else a pod) and interval. An
-- instance's activity is a part of the instance, a pod's one of the board. Memory is no sign of work.
with claims as (

    select * from {{ ref('int_claims') }}

),

activity as (

    select * from {{ ref('int_activity_series') }} where quantity = 'activity'

),

power_samples as (

    select * from {{ source('raw', 'power_samples') }}

),

shared_boards as (

    select distinct
        date,
        meter,
        mig_share is not null as is_cut
    from claims
    where members > 1

),

activity_series as (

    select
        activity.date,
        activity.series_id,
        activity.meter,
        case when shared_boards.is_cut then activity.mig_instance else activity.pod end as member,
        activity.factor
    from activity
    inner join shared_boards on activity.date = shared_boards.date and activity.meter = shared_boards.meter
    where case when shared_boards.is_cut then activity.mig_instance is not null and not activity.is_of_pod else activity.is_of_pod end
    qualify rank() over (partition by activity.date, activity.meter order by activity.rank) = 1

),

final as (

    select
        activity_series.date,
        activity_series.meter,
        activity_series.member,
        {{ int_div(epoch_us('power_samples.observed_at'), grid_us()) }} as interval_number,
        {{ ratio(exact_sum('power_samples.value * activity_series.factor'), 'count(*)') }} as activity_ratio
    from power_samples
    inner join activity_series on power_samples.series_id = activity_series.series_id
    where power_samples.observed_at >= {{ run_start_at() }}
        and power_samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('power_samples.value') }}
        and {{ is_believed_gauge("'activity'", 'power_samples.value * activity_series.factor') }}
        and {{ int_div(epoch_us('power_samples.observed_at'), day_us()) }}
            = {{ int_div(epoch_us('cast(activity_series.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
    group by all

)

select * from final
