-- Joules per token against load: a row per load level (half an octave with enough intervals), then one for the newest
-- date (`is_newest_date`). Only intervals with tokens are in either. The seven curves with the most energy.
with
curves as (
    select *, (site, deployment, model, device_type, meter_scope, role)::varchar as curve from marts.efficiency_curve
),

ranked as (
    select
        curve,
        -- A model may have several deployments: then a curve has the deployment's name.
        case when count(*) over (partition by model) > 1 then deployment else model end as name,
        row_number() over (order by joules desc nulls last, curve) as place
    from (select curve, model, deployment, sum(joules) as joules from curves group by all)
    qualify place <= 7
),

newest as (
    select
        (site, deployment, model, device_type, meter_scope, role)::varchar as curve,
        date,
        sum(joules) / nullif(sum(tokens), 0) as joules_per_token,
        sum(tokens) / nullif(sum(gpu_seconds), 0) as tokens_per_second_per_gpu
    from marts.efficiency_curve_daily
    where date = (select max(date) from marts.fleet_daily)
    group by all
)

select
    place, name, curves.device_type, curves.tokens_basis, curves.tokens_per_second_per_gpu, curves.joules_per_token,
    curves.is_best, curves.is_knee, curves.intervals, false as is_newest_date, null::date as date
from curves inner join ranked using (curve)
where curves.joules_per_token is not null and curves.is_level
union all
select
    place, name, null, null, newest.tokens_per_second_per_gpu, newest.joules_per_token, false, false, null, true, newest.date
from newest inner join ranked using (curve)
where newest.joules_per_token is not null
order by place, is_newest_date, tokens_per_second_per_gpu
