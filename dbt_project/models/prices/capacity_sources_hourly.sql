-- What pays for the accelerators of an hour where their price is a mean: each commitment, a spot price and the rate, each
-- at its own price. All commitments of a site and type are used by the same share, so that this mean is the price of
-- int_capacity_prices.
with prices as (

    select * from {{ ref('int_capacity_prices') }}

),

site_hours as (

    select * from {{ ref('int_site_hours') }}

),

commitments as (

    select * from {{ source('fleet', 'commitments') }}

),

committed as (

    select
        prices.date,
        prices.hour_start_at,
        prices.local_date,
        prices.billing_month,
        prices.site,
        prices.device_type,
        'commitment' as capacity_source,
        commitments.commitment,
        commitments.usd_per_gpu_hour,
        cast(null as double) as capital_usd_per_gpu_hour,
        {{ exact('commitments.gpus * site_hours.piece_seconds') }} as gpu_seconds,
        {{ exact(
            'commitments.gpus * site_hours.piece_seconds * '
            ~ ratio('prices.committed_used_gpu_seconds', 'prices.committed_gpu_seconds')
        ) }} as used_gpu_seconds
    from prices
    inner join site_hours on {{ equal_keys('prices', 'site_hours', ['site', 'hour_start_at', 'local_date']) }}
    inner join commitments
        on prices.site = commitments.site
        and prices.device_type = commitments.device_type
        and prices.local_date >= commitments.valid_from
        and (commitments.valid_to is null or prices.local_date < commitments.valid_to)
    where prices.committed_gpu_seconds > 0

),

-- What is there beyond the commitments is paid while it is there, so all of it is used.
beyond as (

    select
        date,
        hour_start_at,
        local_date,
        billing_month,
        site,
        device_type,
        'spot' as capacity_source,
        cast(null as {{ dbt.type_string() }}) as commitment,
        spot_usd_per_gpu_hour as usd_per_gpu_hour,
        cast(null as double) as capital_usd_per_gpu_hour,
        spot_used_gpu_seconds as gpu_seconds,
        spot_used_gpu_seconds as used_gpu_seconds
    from prices
    where spot_used_gpu_seconds > 0
    union all
    select
        date,
        hour_start_at,
        local_date,
        billing_month,
        site,
        device_type,
        'rate' as capacity_source,
        cast(null as {{ dbt.type_string() }}) as commitment,
        type_usd_per_gpu_hour as usd_per_gpu_hour,
        type_capital_usd_per_gpu_hour as capital_usd_per_gpu_hour,
        rated_gpu_seconds as gpu_seconds,
        rated_gpu_seconds as used_gpu_seconds
    from prices
    where rated_gpu_seconds > 0

),

final as (

    select * from committed
    union all
    select * from beyond

)

select * from final
