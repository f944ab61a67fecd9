-- How many accelerators may be rented at the price of the moment, and what they cost: a price may change within an
-- hour. One row per site, device type, hour and local date.
with pieces as (

    select * from {{ ref('int_site_hours') }}

),

spot_rates as (

    select
        site,
        device_type,
        gpus,
        usd_per_gpu_hour,
        {{ epoch_us('start_at') }} as rate_start_us,
        -- Without an end it holds until the next one.
        coalesce(
            {{ epoch_us('end_at') }},
            lead({{ epoch_us('start_at') }}) over (partition by site, device_type order by start_at),
            {{ epoch_us("cast('9999-01-01 00:00:00+00:00' as " ~ timestamp_type() ~ ")") }}
        ) as rate_end_us
    from {{ source('fleet', 'spot_rates') }}

),

priced_pieces as (

    select
        pieces.date,
        pieces.site,
        pieces.hour_start_at,
        pieces.local_date,
        pieces.billing_month,
        spot_rates.device_type,
        spot_rates.usd_per_gpu_hour,
        spot_rates.gpus
        * (least(spot_rates.rate_end_us, pieces.end_us) - greatest(spot_rates.rate_start_us, pieces.start_us)) / 1e6 as gpu_seconds
    from pieces
    inner join spot_rates
        on pieces.site = spot_rates.site
        and spot_rates.rate_start_us < pieces.end_us
        and spot_rates.rate_end_us > pieces.start_us

),

final as (

    select
        date,
        site,
        hour_start_at,
        local_date,
        billing_month,
        device_type,
        {{ exact_sum(exact('gpu_seconds')) }} as spot_gpu_seconds,
        {{ money_sum(money('gpu_seconds / 3600 * usd_per_gpu_hour')) }} as spot_cost_usd
    from priced_pieces
    group by date, site, hour_start_at, local_date, billing_month, device_type

)

select * from final
