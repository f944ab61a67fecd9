-- What an hour of each accelerator costs by who owns it, and what its memory and its electricity cost of that.
{{ config(replaces='all') }}

with assumptions as (

    select * from {{ ref('platform_assumptions') }}

),

platforms as (

    select * from {{ ref('platforms') }}

),

platform_prices as (

    select * from {{ ref('platform_prices') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

-- A price of 0 is no price: nothing can be divided by it or compared with it.
priced as (

    select
        platforms.platform,
        platforms.vendor,
        platforms.device_type,
        platform_prices.ownership,
        case when platform_prices.usd_per_gpu_hour > 0 then platform_prices.usd_per_gpu_hour end as usd_per_gpu_hour,
        platforms.provisioned_kw_per_gpu,
        device_types.power_limit_watts,
        device_types.memory_gib,
        device_types.memory_bandwidth_gb_per_second,
        device_types.embodied_kgco2e,
        {{ assumed('electricity_usd_per_kwh') }} as assumed_usd_per_kwh,
        platform_prices.source,
        platform_prices.as_of
    from platforms
    inner join platform_prices on platforms.platform = platform_prices.platform
    left join device_types on platforms.device_type = device_types.device_type

),

final as (

    select
        platform,
        vendor,
        device_type,
        ownership,
        usd_per_gpu_hour,
        memory_gib,
        {{ ratio('usd_per_gpu_hour', 'memory_gib') }} as usd_per_gib_hour,
        memory_bandwidth_gb_per_second,
        {{ ratio('usd_per_gpu_hour * 1000', 'memory_bandwidth_gb_per_second') }} as usd_per_tb_per_second_hour,
        power_limit_watts,
        provisioned_kw_per_gpu,
        assumed_usd_per_kwh,
        provisioned_kw_per_gpu * assumed_usd_per_kwh as included_electricity_usd_per_gpu_hour,
        {{ ratio('provisioned_kw_per_gpu * assumed_usd_per_kwh', 'usd_per_gpu_hour') }} as included_electricity_ratio,
        embodied_kgco2e,
        source,
        as_of
    from priced

)

select * from final
