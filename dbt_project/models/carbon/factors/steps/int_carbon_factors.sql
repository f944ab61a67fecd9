-- What a kWh of each site's grid emits in each hour of the run: one row per date, zone and hour. The only place of the
-- fallback: the hour's own value, else the zone's yearly factor, else the wider zone's, else NULL; carbon_basis names
-- the step.
with zones as (

    select distinct zone from {{ source('fleet', 'sites') }} where zone is not null

),

grid_intensity as (

    select * from {{ source('raw', 'grid_intensity') }}
    where start_at >= {{ run_start_at() }} and start_at < {{ run_end_at() }}

),

grid_factors as (

    select * from {{ ref('grid_factors') }}

),

wider_zones as (

    select * from {{ ref('grid_zones') }}

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

hours as (

    select
        date,
        {{ integers_between(int_div('start_us', hour_us()), int_div('end_us', hour_us()) ~ ' - 1') }} as hour_number
    from run_dates

),

zone_hours as (

    select hours.*, zones.zone
    from hours
    cross join zones

),

-- Half-hours and five minutes become the hour's mean.
source_hours as (

    select
        zone,
        {{ int_div(epoch_us('start_at'), hour_us()) }} as hour_number,
        source,
        max(case when is_estimated then 1 else 0 end) as is_estimated,
        {{ ratio(exact_sum(exact('direct_gco2e_per_kwh')), 'count(direct_gco2e_per_kwh)') }} as direct_gco2e_per_kwh,
        {{ ratio(exact_sum(exact('lifecycle_gco2e_per_kwh')), 'count(lifecycle_gco2e_per_kwh)') }} as lifecycle_gco2e_per_kwh,
        {{ ratio(exact_sum(exact('marginal_gco2e_per_kwh')), 'count(marginal_gco2e_per_kwh)') }} as marginal_gco2e_per_kwh
    from grid_intensity
    group by 1, 2, 3

),

-- Of several sources that know the hour: measured before estimated, then by name.
average_hours as (

    select
        *,
        case when is_estimated = 1 then 'hourly_estimated' else 'hourly' end as basis,
        row_number() over (partition by zone, hour_number order by is_estimated, source) as preference
    from source_hours
    where direct_gco2e_per_kwh is not null

),

-- Marginal values are the emissions of one more kWh. They never replace an average value.
marginal_hours as (

    select
        zone,
        hour_number,
        marginal_gco2e_per_kwh,
        row_number() over (partition by zone, hour_number order by is_estimated, source) as preference
    from source_hours
    where marginal_gco2e_per_kwh is not null

),

yearly_factors as (

    select
        *,
        coalesce(valid_to, lead(valid_from) over (partition by zone order by valid_from), date '9999-01-01') as until
    from grid_factors

),

zone_factors as (

    select zone, 1 as preference, basis, source, direct_gco2e_per_kwh, lifecycle_gco2e_per_kwh, valid_from, until
    from yearly_factors
    union all
    select
        wider_zones.zone,
        2 as preference,
        'wider_' || factors.basis as basis,
        factors.source,
        factors.direct_gco2e_per_kwh,
        factors.lifecycle_gco2e_per_kwh,
        factors.valid_from,
        factors.until
    from yearly_factors as factors
    inner join wider_zones on factors.zone = wider_zones.wider_zone

),

yearly_dates as (

    select
        run_dates.date,
        zone_factors.*,
        row_number() over (partition by run_dates.date, zone_factors.zone order by zone_factors.preference) as nth
    from run_dates
    inner join zone_factors on run_dates.date >= zone_factors.valid_from and run_dates.date < zone_factors.until
    where zone_factors.direct_gco2e_per_kwh is not null

),

final as (

    select
        zone_hours.date,
        zone_hours.hour_number,
        {{ from_epoch_us('zone_hours.hour_number * ' ~ hour_us()) }} as hour_start_at,
        zone_hours.zone,
        coalesce(average_hours.basis, yearly_dates.basis) as carbon_basis,
        coalesce(average_hours.source, yearly_dates.source) as carbon_source,
        coalesce(average_hours.direct_gco2e_per_kwh, yearly_dates.direct_gco2e_per_kwh) as location_gco2e_per_kwh,
        case
            when average_hours.lifecycle_gco2e_per_kwh is not null then average_hours.basis
            when yearly_dates.lifecycle_gco2e_per_kwh is not null then yearly_dates.basis
        end as lifecycle_basis,
        coalesce(average_hours.lifecycle_gco2e_per_kwh, yearly_dates.lifecycle_gco2e_per_kwh) as lifecycle_gco2e_per_kwh,
        marginal_hours.marginal_gco2e_per_kwh
    from zone_hours
    left join average_hours
        on zone_hours.zone = average_hours.zone and zone_hours.hour_number = average_hours.hour_number and average_hours.preference = 1
    left join marginal_hours
        on zone_hours.zone = marginal_hours.zone and zone_hours.hour_number = marginal_hours.hour_number and marginal_hours.preference = 1
    left join yearly_dates
        on zone_hours.zone = yearly_dates.zone and zone_hours.date = yearly_dates.date and yearly_dates.nth = 1

)

select * from final
