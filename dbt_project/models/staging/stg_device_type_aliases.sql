-- The names that exporters give device types: the fleet file's first, then the seed's.
with device_type_aliases as (

    select * from {{ ref('device_type_aliases') }}

),

stated as (

    select * from {{ source('fleet', 'device_type_aliases') }}

),

final as (

    select
        coalesce(stated.alias, device_type_aliases.alias) as alias,
        coalesce(stated.device_type, device_type_aliases.device_type) as device_type
    from device_type_aliases
    full outer join stated on device_type_aliases.alias = stated.alias

)

select * from final
