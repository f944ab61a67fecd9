-- One row per deployment: the one change to follow, the surest first, then what saves most at once. A month has 730 hours.
with advice as (
    select
        site, deployment, model, device_type, kind, reason_code, null as shares_with, current_gpus, current_replicas,
        recommended_gpus, recommended_device_type, recommended_power_limit_watts, evidence_basis, evidence,
        current_gpus_per_replica, trial_replicas, trial_gpus_per_replica, trial_days, capacity_low_tokens_per_second,
        capacity_high_tokens_per_second,
        saving_low, saving_high, freed_gpus, saving_kwh_month, saving_energy_usd_month, saving_kgco2e_month,
        avoidable_now_usd_month, avoidable_later_usd_month, avoidable_from, not_avoidable_usd_month, avoidable_basis, saving_now_usd_month,
        saving_kwh_month_if_nodes_off, risk_ratio, confidence, lookback_start_at, as_of_date,
        move_to_node, move_frees_node, move_frees_gpus, current_power_limit_watts, trial_power_limit_watts,
        trial_precision, trial_weights_gib, trial_kv_bytes_per_token
    from published.right_sizing
    where is_preferred
    union all
    select
        site, deployment, model, device_type, kind, reason_code, shares_with, current_gpus, current_replicas,
        recommended_gpus, null, null, null, null, null, null, null, null, null, null,
        saving_low, saving_high, freed_gpus, saving_kwh_month, saving_energy_usd_month, saving_kgco2e_month,
        avoidable_now_usd_month, avoidable_later_usd_month, avoidable_from, not_avoidable_usd_month, avoidable_basis, saving_now_usd_month,
        saving_kwh_month_if_nodes_off, risk_ratio, confidence, lookback_start_at, as_of_date,
        move_to_node, move_frees_node, move_frees_gpus, null, null, null, null, null
    from published.consolidation
    where is_preferred
)

select *
from advice
order by
    kind in ('try_it', 'keep', 'insufficient_data'),
    kind <> 'try_it',
    case confidence when 'high' then 0 when 'medium' then 1 else 2 end,
    saving_now_usd_month desc nulls last, avoidable_later_usd_month desc nulls last, saving_kwh_month desc nulls last,
    site, deployment, model
