-- Accelerators that no model holds, one row per site and type; spares are kept free on purpose. A month has 730 hours.
select
    device_type, site, gpus_now, gpus_mean, all_free_since_at, watts_per_gpu, cost_usd_month, is_spare, reason_code, fitting_deployment,
    saving_kwh_month_if_switched_off, saving_usd_month_if_released
from marts.free_boards
where gpus_now > 0
order by cost_usd_month desc nulls last, device_type, site, is_spare, reason_code
