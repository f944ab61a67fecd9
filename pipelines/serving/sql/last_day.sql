-- The newest published date, as `today.models` has the running one: a row per model and scope of meters.
with newest as (
    select max(date) as date from published_file.marts.model_daily
),

days as (
    select
        model_daily.* exclude (meter_scope),
        coalesce(
            nullif(meter_scope, 'none'), min(nullif(meter_scope, 'none')) over (partition by model), 'none'
        ) as meter_scope
    from published_file.marts.model_daily
    inner join newest on model_daily.date = newest.date
)

select
    model,
    meter_scope,
    sum(energy_joules)::double as energy_joules,
    sum(energy_joules)::double / 86400 as mean_watts,
    sum(output_tokens)::double as output_tokens,
    sum(total_tokens)::double as total_tokens,
    sum(matched_joules)::double / nullif(sum(matched_output_tokens), 0)::double as joules_per_output_token,
    case
        when count(*) filter (where matched_output_tokens > 0 and matched_total_tokens is null) = 0
            then sum(matched_joules)::double / nullif(sum(matched_total_tokens), 0)::double
    end as joules_per_total_token,
    sum(idle_joules)::double / nullif(sum(productive_joules + idle_joules), 0)::double as idle_energy_ratio,
    sum(location_gco2e)::double as location_gco2e,
    sum(compute_cost_usd)::double as compute_cost_usd,
    sum(matched_compute_cost_usd)::double * 1e6
    / nullif(sum(priced_output_tokens), 0)::double as compute_cost_usd_per_output_mtok
from days
group by model, meter_scope
order by starts_with(model, '__'), energy_joules desc nulls last, model, meter_scope
