-- What a site's cooling drew, where its own meters report it: the mean watts of what they cover of an hour, over the
-- hour. One row per date, site, hour and local date in which each of the site's meters of that date covers half.
-- Samples of the date alone, so that no other date changes it.
with series as (

    select * from {{ ref('stg_series') }} where quantity in ('cooling_energy', 'cooling_power') and meter is not null

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

pieces as (

    select * from {{ ref('int_site_hours') }}

),

-- A meter that is called like a site is that site's.
meters as (

    select
        series.series_id,
        series.meter,
        series.quantity,
        series.rank,
        series.factor,
        coalesce(sites.site, series.site) as site
    from series
    left join sites on series.meter = sites.site

),

samples as (

    select
        meters.series_id,
        meters.meter,
        meters.quantity,
        meters.rank,
        meters.site,
        cast(samples.observed_at as date) as date,
        {{ epoch_us('samples.observed_at') }} as start_us,
        lead({{ epoch_us('samples.observed_at') }}) over next_sample as end_us,
        samples.value * meters.factor as value,
        lead(samples.value * meters.factor) over next_sample as next_value
    from {{ source('raw', 'power_samples') }} as samples
    inner join meters on samples.series_id = meters.series_id
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
    window next_sample as (partition by meters.series_id, cast(samples.observed_at as date) order by samples.observed_at)

),

-- A counter that falls began anew; a silence of more than an hour is unknown.
segments as (

    select
        *,
        case quantity when 'cooling_energy' then (next_value - value) * 1e6 / (end_us - start_us) else value end as watts
    from samples
    where end_us > start_us
        and end_us - start_us <= {{ hour_us() }}
        and value >= 0
        and (quantity = 'cooling_power' or next_value >= value)
        and case quantity when 'cooling_energy' then (next_value - value) * 1e6 / (end_us - start_us) else value end
            <= {{ ceiling_watts("'facility'") }}

),

series_hours as (

    select
        pieces.date,
        pieces.site,
        pieces.hour_start_at,
        pieces.local_date,
        pieces.piece_seconds,
        segments.meter,
        segments.series_id,
        segments.rank,
        sum((least(segments.end_us, pieces.end_us) - greatest(segments.start_us, pieces.start_us)) / 1e6) as covered_seconds,
        {{ exact_sum(
            exact(
                'segments.watts * (least(segments.end_us, pieces.end_us) - greatest(segments.start_us, pieces.start_us)) / 1e6'
            )
        ) }} as joules
    from segments
    inner join pieces
        on segments.date = pieces.date
        and segments.site = pieces.site
        and segments.start_us < pieces.end_us
        and segments.end_us > pieces.start_us
    group by 1, 2, 3, 4, 5, 6, 7, 8

),

-- A meter's counter before its gauge.
meter_hours as (

    select *
    from series_hours
    where covered_seconds >= 0.5 * piece_seconds
    qualify row_number() over (partition by date, site, hour_start_at, local_date, meter order by rank, series_id) = 1

),

meter_counts as (

    select
        date,
        site,
        count(distinct meter) as meters
    from segments
    group by date, site

),

final as (

    select
        meter_hours.date,
        meter_hours.site,
        meter_hours.hour_start_at,
        meter_hours.local_date,
        {{ exact_sum(
            exact(
                'cast(meter_hours.joules as double) / meter_hours.covered_seconds * meter_hours.piece_seconds / 3.6e6'
            )
        ) }} as cooling_kwh
    from meter_hours
    inner join meter_counts on meter_hours.date = meter_counts.date and meter_hours.site = meter_counts.site
    group by meter_hours.date, meter_hours.site, meter_hours.hour_start_at, meter_hours.local_date, meter_counts.meters
    having count(*) = meter_counts.meters

)

select * from final
