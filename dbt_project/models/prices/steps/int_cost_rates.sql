-- What an hour of an accelerator costs: the fleet file's rates, and the seed's for device types that it does not state.
-- One row per device type and time of validity, [valid_from, until).
with stated as (

    select * from {{ source('fleet', 'cost_rates') }}

),

seeded as (

    select * from {{ ref('cost_rates') }}

),

all_rates as (

    select
        device_type,
        usd_per_gpu_hour,
        includes,
        source,
        -- Straight line over its life, a month: the capital that is written off, and per unit of it what an annuity
        -- pays above that. What it is worth at the end is tied up all the time, and pays interest alone.
        (price_usd_per_gpu - residual_value_usd_per_gpu) / (life_years * 12) as usd_per_gpu_month,
        coalesce(
            cost_of_capital_ratio * power(1 + cost_of_capital_ratio, life_years)
            / nullif(power(1 + cost_of_capital_ratio, life_years) - 1, 0) * life_years - 1,
            0
        ) as capital_ratio,
        residual_value_usd_per_gpu * cost_of_capital_ratio / 12 as residual_capital_usd_per_gpu_month,
        valid_from,
        valid_to
    from stated
    union all
    select
        seeded.device_type,
        seeded.usd_per_gpu_hour,
        seeded.includes,
        seeded.source,
        cast(null as double) as usd_per_gpu_month,
        cast(0 as double) as capital_ratio,
        cast(null as double) as residual_capital_usd_per_gpu_month,
        seeded.valid_from,
        cast(null as date) as valid_to
    from seeded
    left join (select distinct device_type from stated) as stated_types on seeded.device_type = stated_types.device_type
    where stated_types.device_type is null

),

final as (

    select
        device_type,
        -- Of what is owned the mean hour of a year; a booked hour costs its own month's share (int_capacity_prices).
        coalesce(usd_per_gpu_hour, usd_per_gpu_month * 12 / 8760) as usd_per_gpu_hour,
        usd_per_gpu_month,
        usd_per_gpu_month * capital_ratio + coalesce(residual_capital_usd_per_gpu_month, 0) as capital_usd_per_gpu_month,
        ' ' || coalesce(includes, '') || ' ' as includes,
        coalesce(includes like '%energy%', false) as includes_energy,
        source,
        valid_from,
        coalesce(valid_to, lead(valid_from) over (partition by device_type order by valid_from), date '9999-01-01') as until
    from all_rates

)

select * from final
