-- What an hour of an accelerator costs at each site and hour of the run: commitments are used first, then what is
-- rented at a spot price, and what exceeds both costs the type's rate. One row per site, device type, hour and local
-- date.
with site_hours as (

    select * from {{ ref('int_site_hours') }}

),

rates as (

    select * from {{ ref('int_cost_rates') }}

),

commitments as (

    select * from {{ source('fleet', 'commitments') }}

),

claimed_hours as (

    select * from {{ ref('int_claimed_hours') }}

),

spot_hours as (

    select * from {{ ref('int_spot_hours') }}

),

unmetered_hours as (

    select * from {{ ref('int_unmetered_hours') }}

),

rated as (

    select
        site_hours.date,
        site_hours.site,
        site_hours.hour_start_at,
        site_hours.local_date,
        site_hours.billing_month,
        rates.device_type,
        coalesce(rates.usd_per_gpu_month / site_hours.month_hours, rates.usd_per_gpu_hour) as usd_per_gpu_hour,
        rates.capital_usd_per_gpu_month / site_hours.month_hours as capital_usd_per_gpu_hour,
        rates.includes,
        rates.includes_energy,
        rates.source
    from site_hours
    inner join rates on site_hours.local_date >= rates.valid_from and site_hours.local_date < rates.until

),

committed as (

    select
        site_hours.date,
        site_hours.site,
        site_hours.hour_start_at,
        site_hours.local_date,
        site_hours.billing_month,
        commitments.device_type,
        {{ exact_sum(exact('commitments.gpus * site_hours.piece_seconds')) }} as committed_gpu_seconds,
        {{ money_sum(money('commitments.gpus * site_hours.piece_seconds / 3600 * commitments.usd_per_gpu_hour')) }} as committed_cost_usd
    from site_hours
    inner join commitments
        on site_hours.site = commitments.site
        and site_hours.local_date >= commitments.valid_from
        and (commitments.valid_to is null or site_hours.local_date < commitments.valid_to)
    group by 1, 2, 3, 4, 5, 6

),

present as (

    select site, hour_start_at, local_date, device_type, claimed_gpu_seconds as gpu_seconds from claimed_hours
    union all
    select site, hour_start_at, local_date, device_type, unmetered_gpu_seconds as gpu_seconds from unmetered_hours

),

-- GPUs that are there, used or not, metered or not; what a commitment lacks of them is not there.
listed as (

    select
        site,
        hour_start_at,
        local_date,
        device_type,
        {{ exact_sum('gpu_seconds') }} as listed_gpu_seconds
    from present
    group by site, hour_start_at, local_date, device_type

),

contracted as (

    select
        date,
        site,
        hour_start_at,
        local_date,
        billing_month,
        device_type,
        committed_gpu_seconds,
        committed_cost_usd,
        null as spot_gpu_seconds,
        null as spot_cost_usd
    from committed
    union all
    select
        date,
        site,
        hour_start_at,
        local_date,
        billing_month,
        device_type,
        null as committed_gpu_seconds,
        null as committed_cost_usd,
        spot_gpu_seconds,
        spot_cost_usd
    from spot_hours

),

prices as (

    select
        date,
        site,
        hour_start_at,
        local_date,
        billing_month,
        device_type,
        max(committed_gpu_seconds) as committed_gpu_seconds,
        {{ ratio('max(committed_cost_usd)', 'max(committed_gpu_seconds)') }} as usd_per_committed_second,
        max(spot_gpu_seconds) as spot_gpu_seconds,
        {{ ratio('max(spot_cost_usd)', 'max(spot_gpu_seconds)') }} as usd_per_spot_second
    from contracted
    group by date, site, hour_start_at, local_date, billing_month, device_type

),

-- Of what is there the committed GPUs are used first, then those at a spot price.
used as (

    select
        prices.*,
        cast(coalesce(listed.listed_gpu_seconds, 0) as double) as listed_seconds,
        cast(least(coalesce(prices.committed_gpu_seconds, 0), coalesce(listed.listed_gpu_seconds, 0)) as double) as used_seconds,
        cast(least(
            coalesce(prices.spot_gpu_seconds, 0),
            greatest(coalesce(listed.listed_gpu_seconds, 0) - coalesce(prices.committed_gpu_seconds, 0), 0)
        ) as double) as spot_seconds,
        cast(greatest(
            coalesce(listed.listed_gpu_seconds, 0) - coalesce(prices.committed_gpu_seconds, 0) - coalesce(prices.spot_gpu_seconds, 0), 0
        ) as double) as rated_seconds
    from prices
    left join listed on {{ equal_keys('prices', 'listed', ['site', 'hour_start_at', 'local_date', 'device_type']) }}

),

-- Beyond its commitments and spot GPUs a fleet pays the rate; without one the price of these hours is unknown.
final as (

    select
        coalesce(used.date, rated.date) as date,
        coalesce(used.site, rated.site) as site,
        coalesce(used.hour_start_at, rated.hour_start_at) as hour_start_at,
        coalesce(used.local_date, rated.local_date) as local_date,
        coalesce(used.billing_month, rated.billing_month) as billing_month,
        coalesce(used.device_type, rated.device_type) as device_type,
        case
            when used.site is null then rated.usd_per_gpu_hour
            when used.committed_gpu_seconds > 0 and used.listed_seconds <= used.used_seconds then used.usd_per_committed_second * 3600
            when used.listed_seconds <= used.spot_seconds then used.usd_per_spot_second * 3600
            else (
                coalesce(used.used_seconds * used.usd_per_committed_second * 3600, 0)
                + coalesce(used.spot_seconds * used.usd_per_spot_second * 3600, 0)
                + case when used.rated_seconds > 0 then used.rated_seconds * rated.usd_per_gpu_hour else 0 end
            ) / used.listed_seconds
        end as usd_per_gpu_hour,
        case
            when used.site is null then rated.capital_usd_per_gpu_hour
            when used.listed_seconds > 0 then rated.capital_usd_per_gpu_hour * used.rated_seconds / used.listed_seconds
            else 0
        end as capital_usd_per_gpu_hour,
        -- One price that holds for all GPUs of the hour. Where commitments or spot prices pay for some of them there is
        -- none.
        case when used.site is null then rated.usd_per_gpu_hour end as rate_usd_per_gpu_hour,
        case when used.site is null then rated.capital_usd_per_gpu_hour end as capital_rate_usd_per_gpu_hour,
        used.usd_per_committed_second * 3600 as committed_usd_per_gpu_hour,
        -- What pays for how much of what is there (capacity_sources_hourly).
        {{ exact('used.used_seconds') }} as committed_used_gpu_seconds,
        used.committed_gpu_seconds,
        {{ exact('used.spot_seconds') }} as spot_used_gpu_seconds,
        used.usd_per_spot_second * 3600 as spot_usd_per_gpu_hour,
        {{ exact('used.rated_seconds') }} as rated_gpu_seconds,
        rated.usd_per_gpu_hour as type_usd_per_gpu_hour,
        rated.capital_usd_per_gpu_hour as type_capital_usd_per_gpu_hour,
        coalesce(rated.includes, '') as includes,
        coalesce(rated.includes_energy, false) as includes_energy,
        rated.source,
        {{ exact('cast(used.committed_gpu_seconds as double) - used.used_seconds') }} as unused_gpu_seconds,
        {{ money('(cast(used.committed_gpu_seconds as double) - used.used_seconds) * used.usd_per_committed_second') }} as unused_cost_usd
    from rated
    full outer join used
        on rated.site = used.site
        and rated.hour_start_at = used.hour_start_at
        and rated.local_date = used.local_date
        and rated.device_type = used.device_type

)

select * from final
