-- What is known of each device type: the fleet file's figures first, column by column, then the seed's.
{{ config(tags=['advice']) }}

with device_types as (

    select * from {{ ref('device_types') }}

),

stated as (

    select * from {{ source('fleet', 'device_types') }}

),

final as (

    select
        coalesce(stated.device_type, device_types.device_type) as device_type,
        coalesce(stated.gpus, device_types.gpus, 1) as gpus,
        coalesce(stated.memory_gib, device_types.memory_gib) as memory_gib,
        coalesce(stated.memory_bandwidth_gb_per_second, device_types.memory_bandwidth_gb_per_second) as memory_bandwidth_gb_per_second,
        coalesce(stated.power_limit_watts, device_types.power_limit_watts) as power_limit_watts,
        coalesce(stated.idle_watts_bare, device_types.idle_watts_bare) as idle_watts_bare,
        coalesce(stated.idle_watts_loaded, device_types.idle_watts_loaded) as idle_watts_loaded,
        coalesce(stated.embodied_kgco2e, device_types.embodied_kgco2e) as embodied_kgco2e,
        coalesce(stated.embodied_life_years, 4) as embodied_life_years
    from device_types
    full outer join stated on device_types.device_type = stated.device_type

)

select * from final
