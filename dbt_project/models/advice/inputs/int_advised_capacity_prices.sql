-- What an hour of an accelerator costs when the lookback ends, and until when it has to be paid: one row per site,
-- device type and way in which accelerators are paid for.
with deployments as (

    select * from {{ ref('deployment_usage') }}

),

boards as (

    select distinct
        site,
        device_type
    from {{ ref('int_advised_boards') }}

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

stated_rates as (

    select * from {{ source('fleet', 'cost_rates') }}

),

seeded_rates as (

    select * from {{ ref('cost_rates') }}

),

commitments as (

    select * from {{ source('fleet', 'commitments') }}

),

spot_rates as (

    select * from {{ source('fleet', 'spot_rates') }}

),

newest as (

    select max(lookback_end_at) as lookback_end_at from deployments

),

places as (

    select
        boards.site,
        boards.device_type,
        newest.lookback_end_at,
        cast(timezone(coalesce(sites.time_zone, 'UTC'), newest.lookback_end_at) as date) as on_date
    from boards
    cross join newest
    left join sites on boards.site = sites.site

),

-- The seed counts where the fleet file states no rate of the type; what is owned is written off by the hour.
rates as (

    select
        device_type,
        case when price_usd_per_gpu is null then 'on_demand' else 'owned' end as paid_as,
        coalesce(usd_per_gpu_hour, (price_usd_per_gpu - residual_value_usd_per_gpu) / (life_years * 8760)) as usd_per_gpu_hour,
        valid_from,
        valid_to
    from stated_rates
    union all
    select
        device_type,
        'on_demand' as paid_as,
        usd_per_gpu_hour,
        valid_from,
        cast(null as date) as valid_to
    from seeded_rates
    where device_type not in (select device_type from stated_rates)

),

rated as (

    select
        places.site,
        places.device_type,
        places.on_date,
        rates.paid_as,
        cast(null as double) as gpus,
        rates.usd_per_gpu_hour,
        cast(null as date) as valid_from,
        cast(null as date) as valid_to
    from places
    inner join rates
        on places.device_type = rates.device_type
        and rates.valid_from <= places.on_date
        and (rates.valid_to is null or places.on_date < rates.valid_to)
    qualify row_number() over (partition by places.site, places.device_type order by rates.valid_from desc) = 1

),

-- Without an end a spot price holds until the next one begins.
spot as (

    select
        places.site,
        places.device_type,
        places.on_date,
        'spot' as paid_as,
        spot_rates.gpus,
        spot_rates.usd_per_gpu_hour,
        cast(null as date) as valid_from,
        cast(null as date) as valid_to
    from places
    inner join spot_rates on places.site = spot_rates.site and places.device_type = spot_rates.device_type
    where spot_rates.start_at <= places.lookback_end_at
    qualify row_number() over (partition by places.site, places.device_type order by spot_rates.start_at desc) = 1
        and coalesce(spot_rates.end_at > places.lookback_end_at, true)

),

-- Those that are over do not bind any more.
committed as (

    select
        places.site,
        places.device_type,
        places.on_date,
        'committed' as paid_as,
        commitments.gpus,
        commitments.usd_per_gpu_hour,
        commitments.valid_from,
        commitments.valid_to
    from places
    inner join commitments on places.site = commitments.site and places.device_type = commitments.device_type
    where commitments.valid_to is null or places.on_date < commitments.valid_to

),

final as (

    select * from rated
    union all
    select * from spot
    union all
    select * from committed

)

select * from final
