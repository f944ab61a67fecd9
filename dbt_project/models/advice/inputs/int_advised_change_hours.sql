-- One row per change that can still be measured and hour of the 28 dates before it and after it: what the deployment and
-- the boards that it left drew, what it served, and who waited.
{% set keys = ['site', 'deployment', 'role', 'meter_scope'] %}
{% set measured_dates = 28 %}
{# Dates after which nothing is added to a measurement: late data have come by then. #}
{% set open_dates = 35 %}

with changes as (

    select
        changes.change_id,
        {{ columns_of('changes', keys) }},
        greatest(changes.known_from, changes.started_on - {{ measured_dates }}) as before_from,
        changes.started_on,
        changes.changed_on,
        least(changes.known_to + 1, changes.changed_on + {{ measured_dates }}) as after_to
    from {{ ref('int_advised_changes') }} as changes
    where changes.changed_on > (select max(date) from {{ ref('site_power_hourly') }}) - {{ open_dates }}

),

-- Both sides: the dates [from, to) of each.
sides as (

    select change_id, {{ keys | join(', ') }}, started_on, false as is_after, before_from as from_date, started_on as to_date from changes
    union all
    select change_id, {{ keys | join(', ') }}, started_on, true as is_after, changed_on as from_date, after_to as to_date from changes

),

held_back as (

    select distinct date from {{ ref('held_back_dates') }}

),

hours as (

    select
        sides.change_id,
        sides.is_after,
        booked.site,
        booked.date,
        booked.hour_start_at
    from sides
    inner join {{ ref('site_power_hourly') }} as booked
        on sides.site = booked.site and booked.date >= sides.from_date and booked.date < sides.to_date
    where booked.date not in (select date from held_back)

),

of_models as (

    select
        sides.change_id,
        models.hour_start_at,
        cast(sum(models.energy_joules) as double) as joules,
        cast(sum(models.host_overhead_joules) as double) as host_joules,
        cast(sum(models.facility_energy_kwh) as double) as facility_kwh,
        cast(sum(models.energy_cost_usd) as double) as energy_usd,
        cast(sum({{ charged_energy_usd('models') }}) as double) as charged_energy_usd,
        cast(sum(models.gpu_seconds) as double) as gpu_seconds,
        cast(sum(models.output_tokens) as double) as tokens
    from sides
    inner join {{ ref('model_hourly') }} as models
        on {{ equal_keys('sides', 'models', keys) }}
        and models.date >= sides.from_date and models.date < sides.to_date
    group by all

),

waited as (

    select
        sides.change_id,
        pressure.hour_start_at,
        sum(pressure.intervals) filter (where pressure.has_queue_telemetry) as pressure_intervals,
        sum(pressure.queued_intervals) filter (where pressure.has_queue_telemetry) as queued_intervals
    from sides
    inner join {{ ref('pressure_hourly') }} as pressure
        on {{ equal_keys('sides', 'pressure', ['site', 'deployment', 'role']) }}
        and pressure.date >= sides.from_date and pressure.date < sides.to_date
    group by all

),

assessed as (

    select
        sides.change_id,
        goodput.hour_start_at,
        cast(sum(goodput.requests) as double) as requests,
        cast(sum(goodput.good_requests_low) as double) as good_requests
    from sides
    inner join {{ ref('goodput_hourly') }} as goodput
        on {{ equal_keys('sides', 'goodput', keys) }}
        and goodput.date >= sides.from_date and goodput.date < sides.to_date
    group by all

),

-- The boards that it held in the week before.
boards as (

    select distinct
        sides.change_id,
        ledger.device_uuid
    from sides
    inner join {{ ref('energy_ledger') }} as ledger
        on {{ equal_keys('sides', 'ledger', keys) }}
        and ledger.date >= sides.started_on - 7 and ledger.date < sides.started_on
    where not sides.is_after and ledger.device_uuid is not null

),

-- What these draw once they are not its own: free, of an unknown holder, or another deployment's.
left_boards as (

    select
        boards.change_id,
        date_trunc('hour', ledger.interval_start_at) as hour_start_at,
        {% for name, holder in {'free': '= ' ~ unallocated(), 'unclaimed': '= ' ~ unknown(),
            'reused': 'not in (' ~ unallocated() ~ ', ' ~ unknown() ~ ')'}.items() -%}
        {% for amount, column in {'joules': 'energy_joules', 'gpu_seconds': 'gpu_seconds'}.items() -%}
        cast(coalesce(sum(ledger.{{ column }}) filter (where ledger.deployment {{ holder }}), 0) as double) as {{ name }}_{{ amount }},
        {% endfor -%}
        {% endfor -%}
        count(*) as intervals
    from boards
    inner join sides on boards.change_id = sides.change_id and sides.is_after
    inner join {{ ref('energy_ledger') }} as ledger
        on boards.device_uuid = ledger.device_uuid
        and ledger.date >= sides.from_date and ledger.date < sides.to_date
        and sides.meter_scope = ledger.meter_scope
        and (ledger.deployment <> sides.deployment or ledger.role <> sides.role)
    group by all

),

-- What the site pays for by the hour, of the types that the deployment held.
types as (

    select distinct
        sides.change_id,
        models.device_type
    from sides
    inner join {{ ref('model_hourly') }} as models
        on {{ equal_keys('sides', 'models', keys) }}
        and models.date >= sides.from_date and models.date < sides.to_date
    where not sides.is_after

),

by_source as (

    select
        hours.change_id,
        hours.hour_start_at,
        cast(sum(sources.gpu_seconds) as double) as gpu_seconds,
        sum(cast(sources.gpu_seconds as double) * sources.usd_per_gpu_hour) / 3600 as usd
    from hours
    inner join types on hours.change_id = types.change_id
    inner join {{ ref('capacity_sources_hourly') }} as sources
        on hours.site = sources.site and hours.hour_start_at = sources.hour_start_at and types.device_type = sources.device_type
    group by all

),

-- Where all hours of a type have one price: all of its accelerators that are there.
by_rate as (

    select
        hours.change_id,
        hours.hour_start_at,
        cast(sum(models.gpu_seconds) as double) as gpu_seconds,
        cast(sum(models.capacity_cost_usd) as double) as usd
    from hours
    inner join types on hours.change_id = types.change_id
    inner join {{ ref('model_hourly') }} as models
        on hours.date = models.date and hours.site = models.site and hours.hour_start_at = models.hour_start_at
        and types.device_type = models.device_type
    group by all

),

paid as (

    select
        by_rate.change_id,
        by_rate.hour_start_at,
        coalesce(by_source.gpu_seconds, by_rate.gpu_seconds) as paid_gpu_seconds,
        coalesce(by_source.usd, by_rate.usd) as paid_usd
    from by_rate
    left join by_source on {{ equal_keys('by_rate', 'by_source', ['change_id', 'hour_start_at']) }}

),

final as (

    select
        hours.change_id,
        hours.is_after,
        hours.date,
        hours.hour_start_at,
        coalesce(of_models.joules, 0) as joules,
        {% for column in ['host_joules', 'facility_kwh', 'energy_usd', 'charged_energy_usd', 'tokens'] -%}
        of_models.{{ column }},
        {% endfor -%}
        coalesce(of_models.gpu_seconds, 0) as gpu_seconds,
        {% for column in ['free_joules', 'unclaimed_joules', 'unclaimed_gpu_seconds', 'reused_gpu_seconds'] -%}
        coalesce(left_boards.{{ column }}, 0) as {{ column }},
        {% endfor -%}
        waited.pressure_intervals,
        waited.queued_intervals,
        assessed.requests,
        assessed.good_requests,
        paid.paid_gpu_seconds,
        paid.paid_usd
    from hours
    {% for table in ['of_models', 'waited', 'assessed', 'left_boards', 'paid'] -%}
    left join {{ table }} on {{ equal_keys('hours', table, ['change_id', 'hour_start_at']) }}
    {% endfor %}
)

select * from final
