-- One row per deployment: the one change to follow, the surest and most valuable first. A month has 730 hours.
with advice as (
    select
        site, deployment, model, device_type, kind, reason_code, null as shares_with, current_gpus, current_replicas,
        recommended_gpus, recommended_device_type, recommended_power_limit_watts, evidence_basis,
        saving_low, saving_high, freed_gpus, saving_kwh_month, saving_energy_usd_month, saving_kgco2e_month, saving_usd_month_if_released,
        saving_kwh_month_if_nodes_off, risk_ratio, confidence, lookback_start_at, as_of_date
    from published.right_sizing
    where is_preferred
    union all
    select
        site, deployment, model, device_type, kind, reason_code, shares_with, current_gpus, current_replicas,
        recommended_gpus, null, null, null,
        saving_low, saving_high, freed_gpus, saving_kwh_month, saving_energy_usd_month, saving_kgco2e_month, saving_usd_month_if_released,
        saving_kwh_month_if_nodes_off, risk_ratio, confidence, lookback_start_at, as_of_date
    from published.consolidation
    where is_preferred
)

select
    *,
    -- If the freed accelerators are handed back: the price of their hours, on top of the electricity.
    case
        when saving_usd_month_if_released is not null or saving_energy_usd_month is not null
            then coalesce(saving_usd_month_if_released, 0) + coalesce(saving_energy_usd_month, 0)
    end as most_usd_month
from advice
order by
    kind in ('keep', 'insufficient_data'),
    case confidence when 'high' then 0 when 'medium' then 1 else 2 end,
    most_usd_month desc nulls last, saving_kwh_month desc nulls last, site, deployment, model
