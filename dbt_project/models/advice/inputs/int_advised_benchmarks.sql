-- One row per model and device type: what a published run of the model did there at a pace that its users bear, its SLO
-- or else 20 tokens a second.
with results as (

    select * from {{ ref('benchmark_efficiency') }}

),

footprints as (

    select * from {{ ref('model_footprints') }}

),

models as (

    select * from {{ source('fleet', 'models') }}

),

device_types as (

    select * from {{ ref('device_types') }}

),

final as (

    select
        footprints.model,
        device_types.device_type,
        device_types.valid_from as device_since,
        results.accelerators,
        max(results.output_tokens_per_second_per_gpu) as tokens_per_second_per_gpu,
        min(results.joules_per_output_token) as joules_per_output_token
    from results
    inner join footprints as benchmarked on results.model = benchmarked.model
    inner join footprints
        on benchmarked.published_model = footprints.published_model and benchmarked.precision = footprints.precision
    left join models on footprints.model = models.model
    inner join device_types
        on split_part(device_types.device_type, '-', 1) = lower(results.accelerator) and device_types.gpus = 1
    where results.inter_token_latency_seconds <= coalesce(models.tpot_slo_seconds, 0.05)
    group by footprints.model, device_types.device_type, device_types.valid_from, results.accelerators

)

select * from final
