-- How far each month used the accelerators that are paid for whether they are used or not, and what committing to more
-- of them would save by an offer of the fleet file.
with hours as (

    select distinct site, hour_start_at, local_date, billing_month, hour_seconds from {{ ref('site_power_hourly') }}

),

commitments as (

    select * from {{ source('fleet', 'commitments') }}

),

drivers as (

    select * from {{ ref('cost_drivers_hourly') }}

),

offers as (

    select * from {{ source('fleet', 'commitment_offers') }}

),

stated_rates as (

    select * from {{ source('fleet', 'cost_rates') }}

),

spot_rates as (

    select * from {{ source('fleet', 'spot_rates') }}

),

advice as (

    select site, device_type, freed_gpus from {{ source('published', 'right_sizing') }} where is_preferred
    union all
    select site, device_type, freed_gpus from {{ source('published', 'consolidation') }} where is_preferred

),

committed as (

    select
        hours.billing_month as month,
        hours.site,
        commitments.device_type,
        {{ exact_sum(exact('commitments.gpus * hours.hour_seconds / 3600')) }} as committed_gpu_hours,
        {{ money_sum(money('commitments.gpus * hours.hour_seconds / 3600 * commitments.usd_per_gpu_hour')) }} as committed_cost_usd
    from hours
    inner join commitments
        on hours.site = commitments.site
        and hours.local_date >= commitments.valid_from
        and (commitments.valid_to is null or hours.local_date < commitments.valid_to)
    group by hours.billing_month, hours.site, commitments.device_type

),

-- A row of an unused commitment has its cost at the rate that was committed to.
paid as (

    select
        billing_month as month,
        site,
        device_type,
        {{ exact_sum('case when deployment <> ' ~ unused_commitment() ~ ' then claimed_gpu_seconds end') }} as claimed_gpu_seconds,
        {{ money_sum('case when deployment = ' ~ unused_commitment() ~ ' then capacity_cost_usd end') }} as unused_cost_usd,
        {{ exact_sum(exact(
            'case when deployment = ' ~ unused_commitment() ~ ' then ' ~ ratio('capacity_cost_usd', 'rate_usd_per_gpu_hour') ~ ' end'
        )) }} as unused_gpu_hours
    from drivers
    group by billing_month, site, device_type

),

newest as (

    select
        site,
        max(billing_month) as month,
        max(local_date) as on_date,
        max(hour_start_at) as newest_hour_at,
        cast(max(hour_start_at) as date) as as_of_date
    from hours
    group by site

),

places as (

    select distinct
        offers.site,
        offers.device_type,
        newest.month,
        newest.on_date,
        newest.newest_hour_at,
        newest.as_of_date
    from offers
    inner join newest on offers.site = newest.site

),

held_hours as (

    select
        site,
        device_type,
        hour_start_at,
        {{ exact_sum('claimed_gpu_seconds') }} as held_gpu_seconds
    from drivers
    where is_held
    group by site, device_type, hour_start_at

),

site_hours as (

    select
        site,
        hour_start_at,
        sum(hour_seconds) as hour_seconds
    from hours
    group by site, hour_start_at

),

-- The least that models held in any booked hour of the lookback.
always_used as (

    select
        places.site,
        places.device_type,
        min(coalesce({{ ratio('held_hours.held_gpu_seconds', 'site_hours.hour_seconds') }}, 0)) as gpus
    from places
    inner join site_hours
        on places.site = site_hours.site
        and {{ in_lookback('cast(site_hours.hour_start_at as date)', 'places.as_of_date') }}
    left join held_hours
        on places.site = held_hours.site
        and places.device_type = held_hours.device_type
        and site_hours.hour_start_at = held_hours.hour_start_at
    group by places.site, places.device_type

),

-- The more of what is committed now and in 31 days: one that replaces another counts once.
committed_now as (

    select
        places.site,
        places.device_type,
        greatest(
            {% for date in ('places.on_date', 'places.on_date + 31') -%}
            coalesce(sum(commitments.gpus) filter (
                where commitments.valid_from <= {{ date }} and coalesce({{ date }} < commitments.valid_to, true)
            ), 0){{ ',' if not loop.last }}
            {% endfor %}
        ) as gpus
    from places
    inner join commitments on places.site = commitments.site and places.device_type = commitments.device_type
    group by places.site, places.device_type

),

spot_now as (

    select
        places.site,
        places.device_type,
        spot_rates.gpus
    from places
    inner join spot_rates on places.site = spot_rates.site and places.device_type = spot_rates.device_type
    where spot_rates.start_at <= places.newest_hour_at
    qualify row_number() over (partition by places.site, places.device_type order by spot_rates.start_at desc) = 1
        and coalesce(spot_rates.end_at > places.newest_hour_at, true)

),

freed as (

    select
        site,
        device_type,
        sum(freed_gpus) as gpus
    from advice
    group by site, device_type

),

-- The fleet file's rate, which counts where it states one; else that by which the newest hour was charged.
stated_now as (

    select
        places.site,
        places.device_type,
        stated_rates.usd_per_gpu_hour
    from places
    inner join stated_rates
        on places.device_type = stated_rates.device_type
        and stated_rates.valid_from <= places.on_date
        and (stated_rates.valid_to is null or places.on_date < stated_rates.valid_to)
    qualify row_number() over (partition by places.site, places.device_type order by stated_rates.valid_from desc) = 1

),

charged_now as (

    select
        places.site,
        places.device_type,
        max(drivers.rate_usd_per_gpu_hour) as usd_per_gpu_hour
    from places
    inner join drivers
        on places.site = drivers.site
        and places.device_type = drivers.device_type
        and places.newest_hour_at = drivers.hour_start_at
        and drivers.deployment <> {{ unused_commitment() }}
    where places.device_type not in (select device_type from stated_rates)
    group by places.site, places.device_type

),

on_demand as (

    select
        places.*,
        always_used.gpus as always_used_gpus,
        coalesce(committed_now.gpus, 0) as committed_gpus,
        coalesce(spot_now.gpus, 0) as spot_gpus,
        coalesce(freed.gpus, 0) as freed_gpus,
        coalesce(stated_now.usd_per_gpu_hour, charged_now.usd_per_gpu_hour) as usd_per_gpu_hour
    from places
    left join always_used on {{ equal_keys('places', 'always_used', ['site', 'device_type']) }}
    left join committed_now on {{ equal_keys('places', 'committed_now', ['site', 'device_type']) }}
    left join spot_now on {{ equal_keys('places', 'spot_now', ['site', 'device_type']) }}
    left join freed on {{ equal_keys('places', 'freed', ['site', 'device_type']) }}
    left join stated_now on {{ equal_keys('places', 'stated_now', ['site', 'device_type']) }}
    left join charged_now on {{ equal_keys('places', 'charged_now', ['site', 'device_type']) }}

),

-- The cheapest offer that is cheaper than the rate.
offered as (

    select
        on_demand.*,
        greatest(
            floor(on_demand.always_used_gpus - on_demand.committed_gpus - on_demand.spot_gpus - on_demand.freed_gpus), 0
        ) as offer_gpus,
        offers.usd_per_gpu_hour as offer_usd_per_gpu_hour,
        offers.term_months as offer_term_months,
        offers.provider as offer_provider
    from on_demand
    inner join offers
        on on_demand.site = offers.site
        and on_demand.device_type = offers.device_type
        and offers.usd_per_gpu_hour < on_demand.usd_per_gpu_hour
    qualify row_number() over (
        partition by on_demand.site, on_demand.device_type
        order by offers.usd_per_gpu_hour, offers.term_months, offers.provider
    ) = 1

),

keys as (

    select month, site, device_type from committed
    union
    select month, site, device_type from offered

),

joined as (

    select
        keys.*,
        coalesce(committed.committed_gpu_hours, 0) as committed_gpu_hours,
        coalesce(committed.committed_cost_usd, 0) as committed_cost_usd,
        coalesce(case when committed.site is not null then paid.unused_gpu_hours end, 0) as unused_gpu_hours,
        coalesce(case when committed.site is not null then paid.unused_cost_usd end, 0) as unused_cost_usd,
        coalesce(paid.claimed_gpu_seconds, 0) as claimed_gpu_seconds,
        offered.offer_gpus,
        offered.offer_usd_per_gpu_hour,
        offered.offer_term_months,
        offered.offer_provider,
        offered.offer_gpus * 730 * (offered.usd_per_gpu_hour - offered.offer_usd_per_gpu_hour) as offer_saving_usd_per_month,
        case
            when offered.site is not null
                then format(
                    'of {:.1f} always used {:g} are committed, {:g} at a spot price, {:.1f} freed by advice; {:.4f} USD on demand',
                    offered.always_used_gpus, cast(offered.committed_gpus as double), cast(offered.spot_gpus as double),
                    cast(offered.freed_gpus as double), offered.usd_per_gpu_hour
                )
        end as offer_basis
    from keys
    left join committed on {{ equal_keys('keys', 'committed', ['month', 'site', 'device_type']) }}
    left join paid on {{ equal_keys('keys', 'paid', ['month', 'site', 'device_type']) }}
    left join offered on {{ equal_keys('keys', 'offered', ['month', 'site', 'device_type']) }}

),

in_usd as (

    select
        month,
        {{ plain_name('site', 'site') }} as site,
        device_type,
        cast(committed_gpu_hours as {{ exact_type() }}) as committed_gpu_hours,
        cast(committed_gpu_hours - unused_gpu_hours as {{ exact_type() }}) as used_gpu_hours,
        cast(unused_gpu_hours as {{ exact_type() }}) as unused_gpu_hours,
        cast(committed_cost_usd as {{ money_type() }}) as committed_cost_usd,
        cast(unused_cost_usd as {{ money_type() }}) as unused_cost_usd,
        {{ ratio('committed_gpu_hours - unused_gpu_hours', 'committed_gpu_hours') }} as utilisation_ratio,
        {{ ratio('(committed_gpu_hours - unused_gpu_hours) * 3600', 'claimed_gpu_seconds') }} as coverage_ratio,
        offer_gpus,
        offer_usd_per_gpu_hour,
        offer_term_months,
        offer_provider,
        offer_saving_usd_per_month,
        offer_basis
    from joined

),

final as (

    {{ with_currency(['committed_cost_usd', 'unused_cost_usd'], has_key=false) }}

)

select * from final
