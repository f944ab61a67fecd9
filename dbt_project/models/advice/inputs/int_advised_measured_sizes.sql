-- One row per model, device type, role and size of an engine: what one engine of that size was seen to serve, in a load
-- test at a pace that its users bear or in production.
with phases as (

    select * from {{ ref('load_test_phases') }}

),

deployments as (

    select * from {{ ref('deployment_usage') }}

),

models as (

    select * from {{ source('fleet', 'models') }}

),

-- Without the name of its engine a test may be of several.
tests as (

    select
        phases.model,
        phases.device_type,
        'unified' as role,
        round(phases.gpus) as accelerators,
        phases.output_tokens_per_second as tokens_per_second
    from phases
    left join models on phases.model = models.model
    where phases.requests_basis = 'stated'
        and phases.engine is not null
        and abs(phases.gpus - round(phases.gpus)) <= 0.05 * phases.gpus
        and coalesce(phases.failed_requests, 0) = 0
        and coalesce(phases.tpot_p99_seconds <= models.tpot_slo_seconds, models.tpot_slo_seconds is null)

),

final as (

    select
        model,
        device_type,
        role,
        accelerators,
        max(tokens_per_second) as tokens_per_second
    from (
        select * from tests
        union all
        select
            model,
            device_type,
            role,
            gpus_per_replica as accelerators,
            capacity_tokens_per_second_per_gpu * gpus_per_replica as tokens_per_second
        from deployments
    ) as measured
    where tokens_per_second > 0 and accelerators >= 1
    group by model, device_type, role, accelerators

)

select * from final
