-- What the ledger has of the running day: model_hourly of its closed intervals. Joules and tokens are those of the later
-- booking; what begins with `estimated` depends on the rest of the day.
create table made.today.model_hours as
select
    date,
    hour_start_at,
    site,
    deployment,
    namespace,
    team,
    model,
    device_type,
    meter_scope,
    role,
    gpu_seconds,
    energy_joules,
    unknown_joules,
    matched_joules,
    input_tokens,
    output_tokens,
    total_tokens,
    matched_output_tokens,
    matched_total_tokens,
    productive_joules as estimated_productive_joules,
    idle_joules as estimated_idle_joules,
    facility_energy_kwh as estimated_facility_energy_kwh,
    location_gco2e as estimated_location_gco2e,
    compute_cost_usd as estimated_compute_cost_usd,
    matched_compute_cost_usd as estimated_matched_compute_cost_usd,
    priced_output_tokens as estimated_priced_output_tokens,
    is_cost_complete,
    is_carbon_complete,
    doubted_joules,
    doubted_tokens,
    unbooked_tokens,
    doubted_energy_ratio,
    doubted_tokens_ratio,
    doubt_reasons
from marts.model_hourly
where date = $on;

create table made.today.models as
-- Joules of a board and of a whole node are two quantities. Tokens without power (scope none) join the model's own scope.
with hours as (
    select
        * exclude (meter_scope),
        coalesce(
            nullif(meter_scope, 'none'), min(nullif(meter_scope, 'none')) over (partition by model), 'none'
        ) as meter_scope
    from made.today.model_hours
),

newest_interval as (
    select model, meter_scope, sum(energy_joules) / max(interval_seconds) as watts
    from marts.energy_ledger
    where interval_start_at = $newest_interval_at
    group by model, meter_scope
)

select
    hours.model,
    hours.meter_scope,
    sum(gpu_seconds) / $day_seconds as mean_gpus,
    sum(energy_joules) as energy_joules,
    sum(energy_joules) / $day_seconds as mean_watts,
    any_value(newest_interval.watts) as newest_interval_watts,
    sum(input_tokens) as input_tokens,
    sum(output_tokens) as output_tokens,
    sum(total_tokens) as total_tokens,
    sum(matched_joules) / nullif(sum(matched_output_tokens), 0) as joules_per_output_token,
    case
        when count(*) filter (where matched_output_tokens > 0 and matched_total_tokens is null) = 0
            then sum(matched_joules) / nullif(sum(matched_total_tokens), 0)
    end as joules_per_total_token,
    sum(estimated_idle_joules)
    / nullif(sum(estimated_productive_joules + estimated_idle_joules), 0) as estimated_idle_energy_ratio,
    sum(estimated_facility_energy_kwh) as estimated_facility_energy_kwh,
    sum(estimated_location_gco2e) as estimated_location_gco2e,
    sum(estimated_compute_cost_usd) as estimated_compute_cost_usd,
    sum(estimated_matched_compute_cost_usd) * 1e6
    / nullif(sum(estimated_priced_output_tokens), 0) as estimated_compute_cost_usd_per_output_mtok,
    bool_and(is_cost_complete) as is_cost_complete,
    bool_and(is_carbon_complete) as is_carbon_complete
from hours
left join newest_interval on hours.model = newest_interval.model and hours.meter_scope = newest_interval.meter_scope
group by hours.model, hours.meter_scope
