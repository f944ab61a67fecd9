-- Unallocated boards: how many, since when, what a month of them costs, which deployment fits on them, and what giving
-- them up saves.
{{ config(replaces='all') }}
{%- set keys = ['site', 'device_type', 'meter_scope', 'is_spare', 'reason_code'] %}

with lookback as (

    select * from {{ ref('int_lookback') }}

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

tariffs as (

    select * from {{ source('fleet', 'tariffs') }}

),

rates as (

    select * from {{ ref('int_cost_rates') }}

),

carbon as (

    select * from {{ ref('site_carbon_hourly') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

published_types as (

    select * from {{ ref('device_types') }}

),

deployments as (

    select * from {{ ref('deployment_usage') }}

),

spares as (

    select distinct device_uuid from {{ source('fleet', 'devices') }} where coalesce(spare, false)

),

dates as (

    select * from {{ ref('int_lookback_dates') }}

),

boards as (

    select * from {{ ref('int_free_boards') }}

),

newest as (

    select
        max(date) as newest_date,
        count(*) as days,
        cast(max(date) + interval 1 day as {{ timestamp_type() }}) as lookback_end_at,
        cast(max(date) + interval 1 day - interval 1 second as {{ timestamp_type() }}) as last_second_at
    from dates

),

free_rows as (

    select
        ledger.site,
        coalesce(ledger.device_type, {{ unknown() }}) as device_type,
        ledger.meter_scope,
        ledger.meter,
        ledger.gpu_seconds
    from {{ ref('energy_ledger') }} as ledger
    inner join dates on ledger.date = dates.date
    where ledger.state = 'unallocated'
    union all
    select
        unmetered.site,
        coalesce(unmetered.device_type, {{ unknown() }}) as device_type,
        'none' as meter_scope,
        unmetered.device_uuid as meter,
        unmetered.gpu_seconds
    from {{ ref('unmetered_devices') }} as unmetered
    inner join dates on unmetered.date = dates.date
    where unmetered.engine = {{ unallocated() }}

),

free_now as (

    select
        {{ keys | join(', ') }},
        cast(sum(gpus) as integer) as gpus,
        min(free_since_at) as first_free_since_at,
        max(free_since_at) as all_free_since_at,
        case when count(mean_watts) = count(*) then cast({{ exact_sum('mean_watts') }} as double) end as watts
    from boards
    group by {{ keys | join(', ') }}

),

free_over_lookback as (

    select
        free_rows.site,
        free_rows.device_type,
        free_rows.meter_scope,
        spares.device_uuid is not null as is_spare,
        coalesce(boards.reason_code, case when spares.device_uuid is not null then 'spare' else 'unallocated' end) as reason_code,
        {{ exact_sum('free_rows.gpu_seconds') }} as gpu_seconds
    from free_rows
    left join spares on free_rows.meter = spares.device_uuid
    left join boards on free_rows.meter = boards.meter and free_rows.meter_scope = boards.meter_scope
    group by 1, 2, 3, 4, 5

),

-- Prices hold from a local date on: what counts is the site's own date at the end of the newest one.
places as (

    select
        sites.site,
        {{ local_date('newest.last_second_at', "coalesce(sites.time_zone, 'UTC')") }} as on_date
    from sites
    cross join newest

),

-- The price of power that is drawn all day long; not known where an hour of the day has no price.
mean_tariffs as (

    select
        tariffs.site,
        case
            when sum(tariffs.local_hour_to - tariffs.local_hour_from) = 24
                then {{ ratio(exact_sum(exact('tariffs.usd_per_kwh * (tariffs.local_hour_to - tariffs.local_hour_from)')), 24) }}
        end as usd_per_kwh
    from tariffs
    inner join places
        on tariffs.site = places.site
        and tariffs.valid_from <= places.on_date
        and (tariffs.valid_to is null or places.on_date < tariffs.valid_to)
    group by tariffs.site

),

mean_intensities as (

    select
        carbon.site,
        {{ ratio(exact_sum(exact('carbon.location_gco2e_per_kwh')), 'count(carbon.location_gco2e_per_kwh)') }} as gco2e_per_kwh
    from carbon
    inner join dates on carbon.date = dates.date
    group by carbon.site

),

-- Engines do not span nodes here: of the free GPUs, those of one node count together.
free_places as (

    select
        site,
        device_type,
        meter_scope,
        coalesce(node, meter) as place,
        cast(sum(gpus) as integer) as gpus
    from boards
    where reason_code = 'unallocated'
    group by site, device_type, meter_scope, coalesce(node, meter)

),

described_types as (

    select
        device_types.device_type,
        published_types.vendor,
        device_types.memory_gib / device_types.gpus as memory_gib_per_gpu
    from device_types
    left join published_types on device_types.device_type = published_types.device_type

),

-- Deployments that serve now; one without a request needs no more boards.
candidates as (

    select
        deployments.site,
        deployments.deployment,
        deployments.model,
        deployments.device_type,
        deployments.meter_scope,
        deployments.role,
        cast(ceil(deployments.gpus_per_replica) as integer) as gpus_per_engine,
        deployments.active_time_ratio,
        case
            when deployments.is_capacity_lower_bound then null
            else {{ ratio('deployments.demand_tokens_per_second_p99', 'deployments.capacity_tokens_per_second') }}
        end as capacity_used_ratio
    from deployments
    cross join newest
    where deployments.last_seen_date = newest.newest_date
        and deployments.gpus_per_replica > 0
        and deployments.demand_tokens_per_second_max > 0

),

-- As many GPUs as an engine of it has now, each with the memory that it has now or more.
fits as (

    select
        free_places.site,
        free_places.device_type,
        free_places.meter_scope,
        candidates.deployment,
        candidates.model,
        candidates.device_type as held_device_type,
        candidates.role,
        candidates.meter_scope as held_meter_scope,
        candidates.gpus_per_engine,
        candidates.active_time_ratio,
        case
            when candidates.capacity_used_ratio >= 0.8 then 'near_its_capacity'
            when candidates.device_type = free_places.device_type then 'busiest_of_device_type'
            else 'busiest_of_other_device_type'
        end as fitting_basis,
        cast(sum({{ int_div('free_places.gpus', 'candidates.gpus_per_engine') }}) as integer) as engines,
        max(candidates.capacity_used_ratio) as capacity_used_ratio
    from free_places
    inner join candidates on free_places.site = candidates.site and free_places.gpus >= candidates.gpus_per_engine
    left join described_types as free_types on free_places.device_type = free_types.device_type
    left join described_types as held_types on candidates.device_type = held_types.device_type
    where free_places.device_type <> {{ unknown() }}
        and (
            free_places.device_type = candidates.device_type
            or (free_types.vendor = held_types.vendor and free_types.memory_gib_per_gpu >= held_types.memory_gib_per_gpu)
        )
    group by
        free_places.site, free_places.device_type, free_places.meter_scope, candidates.deployment, candidates.model, candidates.device_type,
        candidates.role, candidates.meter_scope, candidates.gpus_per_engine, candidates.active_time_ratio, candidates.capacity_used_ratio

),

fitting as (

    select *
    from fits
    qualify row_number() over (
        partition by site, device_type, meter_scope
        order by
            case fitting_basis when 'near_its_capacity' then 0 when 'busiest_of_device_type' then 1 else 2 end,
            case when fitting_basis = 'near_its_capacity' then capacity_used_ratio end desc nulls last,
            active_time_ratio desc nulls last, gpus_per_engine desc, deployment, model, held_device_type, role, held_meter_scope
    ) = 1

),

joined as (

    select
        {{ columns_of('free_over_lookback', keys) }},
        newest.lookback_end_at,
        free_over_lookback.gpu_seconds,
        {{ ratio('free_over_lookback.gpu_seconds', '86400 * newest.days') }} as gpus_mean,
        coalesce(free_now.gpus, 0) as gpus_now,
        free_now.first_free_since_at,
        free_now.all_free_since_at,
        {{ ratio('free_now.watts', 'free_now.gpus') }} as watts_per_gpu,
        -- None that is metered draws nothing; what no meter sees is not known.
        case
            when free_over_lookback.meter_scope = 'none' then null
            when coalesce(free_now.gpus, 0) = 0 then 0
            else free_now.watts
        end as watts,
        cast(device_types.idle_watts_bare as double) / device_types.gpus * coalesce(free_now.gpus, 0) as bare_idle_watts,
        -- A hall's meter has the cooling in it already.
        case when free_over_lookback.meter_scope = 'facility' then 1 else sites.pue end as pue,
        mean_tariffs.usd_per_kwh,
        mean_intensities.gco2e_per_kwh,
        rates.usd_per_gpu_hour,
        coalesce(rates.includes_energy, false) as rate_includes_energy,
        fitting.deployment as fitting_deployment,
        fitting.model as fitting_model,
        fitting.held_device_type as fitting_device_type,
        fitting.gpus_per_engine as fitting_gpus_per_engine,
        fitting.engines as fitting_engines,
        fitting.fitting_basis
    from free_over_lookback
    cross join newest
    left join free_now on {{ equal_keys('free_over_lookback', 'free_now', keys) }}
    left join device_types on free_over_lookback.device_type = device_types.device_type
    left join sites on free_over_lookback.site = sites.site
    left join mean_tariffs on free_over_lookback.site = mean_tariffs.site
    left join mean_intensities on free_over_lookback.site = mean_intensities.site
    left join places on free_over_lookback.site = places.site
    left join rates
        on free_over_lookback.device_type = rates.device_type
        and rates.valid_from <= coalesce(places.on_date, newest.newest_date)
        and rates.until > coalesce(places.on_date, newest.newest_date)
    left join fitting
        on {{ equal_keys('free_over_lookback', 'fitting', ['site', 'device_type', 'meter_scope']) }}
        and free_over_lookback.reason_code = 'unallocated'

),

-- A month is 730 hours of the boards that are free now.
months as (

    select
        *,
        watts * 730 / 1000 * pue as facility_kwh_month,
        bare_idle_watts * 730 / 1000 * pue as bare_idle_facility_kwh_month,
        gpus_now * 730 * usd_per_gpu_hour as capacity_cost_usd_month
    from joined

),

priced as (

    select
        *,
        facility_kwh_month * usd_per_kwh as energy_cost_usd_month,
        bare_idle_facility_kwh_month * usd_per_kwh as bare_idle_energy_cost_usd_month,
        -- A rate that holds the electricity already is not charged with it again.
        case when rate_includes_energy then 0 else facility_kwh_month * usd_per_kwh end as charged_energy_usd_month,
        facility_kwh_month * gco2e_per_kwh / 1000 as location_kgco2e_month
    from months

),

final as (

    select
        lookback.as_of_date,
        {{ columns_of('priced', keys) }},
        lookback_end_at,
        gpus_now,
        gpus_mean,
        cast(gpu_seconds as double) / 3600 as gpu_hours,
        all_free_since_at,
        first_free_since_at,
        watts_per_gpu,
        watts as mean_watts,
        bare_idle_watts,
        pue,
        usd_per_kwh,
        gco2e_per_kwh,
        usd_per_gpu_hour,
        case when usd_per_gpu_hour is not null then rate_includes_energy end as is_energy_in_rate,
        facility_kwh_month,
        energy_cost_usd_month,
        capacity_cost_usd_month,
        capacity_cost_usd_month + charged_energy_usd_month as cost_usd_month,
        location_kgco2e_month,
        bare_idle_facility_kwh_month,
        bare_idle_energy_cost_usd_month,
        fitting_deployment,
        fitting_model,
        fitting_device_type,
        fitting_gpus_per_engine,
        fitting_engines,
        fitting_basis,
        case when reason_code = 'unallocated' then cast(gpus_now * 730 as double) end as saving_gpu_hours_month_if_released,
        case when reason_code = 'unallocated' then capacity_cost_usd_month end as saving_usd_month_if_released,
        case when reason_code = 'unallocated' then facility_kwh_month end as saving_kwh_month_if_switched_off,
        case when reason_code = 'unallocated' then location_kgco2e_month end as saving_kgco2e_month_if_switched_off,
        case when reason_code = 'unallocated' then charged_energy_usd_month end as saving_usd_month_if_switched_off,
        lookback.held_back_dates,
        lookback.is_complete
    from priced
    cross join lookback

)

select * from final
