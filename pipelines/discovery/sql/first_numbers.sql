-- A row per model and scope of its meters: what its boards drew in the window, and what a token took of them. An hour of
-- which the source has nothing, before it was set up, counts for no mean; of the hour in which it began, what is left.
-- What wall meters measure that no host is known for is left out: it is in the boards' rows as well.
with began as (
    select greatest($start_at, coalesce(min(observed_at), $start_at)) as began_at from raw.power_samples
),

hours as (
    select
        sum(epoch(least(hour_start_at + interval 1 hour, $end_at)) - epoch(greatest(hour_start_at, began_at))) as seconds
    from (
        select distinct hour_start_at
        from marts.model_hourly
        where hour_start_at >= $start_at and hour_start_at < $end_at and energy_joules > 0
    )
    cross join began
),

unplaced as (
    select -sum(energy_joules) as energy_joules
    from marts.energy_ledger
    where unknown_reason = 'unplaced_meter' and interval_start_at >= $start_at and interval_start_at < $end_at
),

rows_of_hours as (
    select
        model, meter_scope, gpu_seconds, energy_joules, matched_joules, matched_total_tokens, matched_output_tokens,
        idle_joules, output_tokens
    from marts.model_hourly
    where hour_start_at >= $start_at and hour_start_at < $end_at
    union all by name
    select '__unknown__' as model, 'node' as meter_scope, energy_joules from unplaced where energy_joules < 0
)

select
    model,
    meter_scope,
    sum(gpu_seconds)::double / nullif(any_value(hours.seconds), 0) as gpus,
    sum(energy_joules)::double / nullif(any_value(hours.seconds), 0) as mean_watts,
    sum(matched_joules)::double / nullif(sum(matched_total_tokens), 0)::double as joules_per_total_token,
    sum(matched_joules)::double / nullif(sum(matched_output_tokens), 0)::double as joules_per_output_token,
    sum(idle_joules)::double / nullif(sum(energy_joules), 0)::double as idle_energy_ratio,
    sum(output_tokens)::double as output_tokens
from rows_of_hours
cross join hours
group by model, meter_scope
having coalesce(sum(energy_joules), 1) <> 0 or sum(output_tokens) is not null
order by mean_watts desc nulls last, model, meter_scope
