-- USD per GPU-hour of each device type and the UTC dates [valid_from, until) on which it holds: the fleet file's rates, else the seed's.
{{ config(materialized='view') }}

with stated as (

    select * from {{ source('fleet', 'cost_rates') }}

),

seeded as (

    select * from {{ ref('cost_rates') }}

),

stated_types as (

    select distinct device_type from stated

),

all_rates as (

    select device_type, usd_per_gpu_hour, includes_energy, valid_from, valid_to from stated
    union all
    select seeded.device_type, seeded.usd_per_gpu_hour, seeded.includes_energy, seeded.valid_from, cast(null as date) as valid_to
    from seeded
    left join stated_types on seeded.device_type = stated_types.device_type
    where stated_types.device_type is null

),

-- An open rate ends where the next one begins.
final as (

    select
        device_type,
        usd_per_gpu_hour,
        coalesce(includes_energy, false) as includes_energy,
        valid_from,
        coalesce(valid_to, lead(valid_from) over (partition by device_type order by valid_from), date '9999-01-01') as until
    from all_rates

)

select * from final
