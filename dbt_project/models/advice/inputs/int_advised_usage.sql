-- One row per deployment with all that sizes are computed from: its usage, model, devices, pressure and earlier demand.
with deployments as (

    select * from {{ ref('int_advised_deployments') }}

),

intervals as (

    select * from {{ ref('int_advised_intervals') }}

),

pressure_hours as (

    select * from {{ ref('pressure_hourly') }}

),

held_back as (

    select date from {{ ref('held_back_dates') }}

),

footprints as (

    select * from {{ ref('model_footprints') }}

),

models as (

    select * from {{ source('fleet', 'models') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

-- Bytes of an element of the cache, where the cache is the seed's.
published as (

    select
        model,
        max(kv_bytes_per_element) as kv_bytes_per_element
    from {{ ref('models') }}
    group by model

),

-- One row: what copies in fewer bits take.
precisions as (

    select
        max(weight_bytes_per_parameter) filter (where precision = 'int8') as int8_bytes_per_parameter,
        max(weight_bytes_per_parameter) filter (where precision = 'int4') as int4_bytes_per_parameter
    from {{ ref('weight_precisions') }}

),

pressure as (

    select
        site,
        deployment,
        model,
        role,
        count(*) as hours,
        cast(sum(intervals) as double) as pressure_intervals,
        cast(sum(queued_intervals) as double) as queued_intervals,
        case when count(preemptions) > 0 then count(*) filter (where preemptions > 0) end as preempted_hours,
        case when count(kv_cache_usage_ratio_max) > 0 then count(*) filter (where kv_cache_usage_ratio_max >= 0.9) end as full_cache_hours,
        max(kv_cache_usage_ratio_max) as kv_cache_usage_ratio_max,
        max(running_requests_max) as running_requests_max,
        bool_or(has_queue_telemetry) as has_queue_telemetry
    from pressure_hours
    where date not in (select date from held_back)
        and date <= (select max(as_of_date) from deployments)
        and hour_start_at >= (select min(lookback_start_at) from deployments)
    group by site, deployment, model, role

),

demand as (

    select
        usage,
        quantile_cont(tokens_per_second, 0.99) filter (where not is_held) as train_demand_p99,
        max(tokens_per_second) filter (where not is_held) as train_demand_max,
        max(request_tokens_per_second) as request_tokens_per_second,
        count(*) filter (where is_pressed) as pressed_intervals,
        count(*) filter (where not is_parked) as busy_intervals,
        count(*) filter (where not is_parked and not is_held) as train_busy_intervals,
        count(*) filter (where not is_parked and is_held) as held_busy_intervals,
        count(*) filter (where is_held) as held_intervals
    from intervals
    group by usage

),

-- The intervals in which most was asked for: a hundredth of them. Where as good as nothing ever was, those with any.
loads as (

    select
        usage,
        quantile_cont(tokens_per_second, 0.99) as tokens_per_second_p99
    from intervals
    group by usage

),

busiest as (

    select
        intervals.usage,
        quantile_cont(intervals.request_tokens_per_second, 0.5) as request_tokens_per_second
    from intervals
    inner join loads on intervals.usage = loads.usage
    where intervals.tokens_per_second > 0 and intervals.tokens_per_second >= loads.tokens_per_second_p99
    group by intervals.usage

),

-- As the levels of slo_capacity, of the intervals alone in which no request waited: an hour of a half octave of load.
unpressed as (

    select
        usage,
        max(tokens_per_second_per_gpu) as tokens_per_second_per_gpu
    from (
        select
            usage,
            sum(cast(tokens as double)) / sum(cast(matched_gpu_seconds as double)) as tokens_per_second_per_gpu
        from intervals
        where not is_pressed and tokens_per_second_per_gpu > 0
        group by usage, {{ load_bin('tokens_per_second_per_gpu') }}
        having sum(seconds) >= 3600
    )
    group by usage

),

final as (

    select
        deployments.*,
        footprints.* exclude (model),
        case when footprints.kv_basis = 'seed' then published.kv_bytes_per_element end as kv_bytes_per_element,
        precisions.int8_bytes_per_parameter,
        precisions.int4_bytes_per_parameter,
        pressure.* exclude (site, deployment, model, role),
        models.min_replicas,
        models.cold_start_seconds,
        models.most_waiting_ratio,
        models.keep_apart,
        models.tpot_slo_seconds,
        busiest.request_tokens_per_second as busiest_request_tokens_per_second,
        device_types.memory_gib / device_types.gpus as memory_gib,
        device_types.memory_bandwidth_gb_per_second / device_types.gpus as memory_bandwidth_gb_per_second,
        device_types.idle_watts_bare / device_types.gpus as idle_watts_bare,
        device_types.power_limit_watts / device_types.gpus as power_limit_watts,
        case
            when demand.pressed_intervals > 0 then unpressed.tokens_per_second_per_gpu
            else deployments.capacity_tokens_per_second_per_gpu
        end as unpressed_tokens_per_second_per_gpu,
        demand.* exclude (usage, pressed_intervals)
    from deployments
    left join pressure on {{ equal_keys('deployments', 'pressure', ['site', 'deployment', 'model', 'role']) }}
    left join footprints on deployments.model = footprints.model
    left join published on footprints.published_model = published.model
    cross join precisions
    left join models on deployments.model = models.model
    left join device_types on deployments.device_type = device_types.device_type
    left join demand on deployments.usage = demand.usage
    left join busiest on deployments.usage = busiest.usage
    left join unpressed on deployments.usage = unpressed.usage

)

select * from final
