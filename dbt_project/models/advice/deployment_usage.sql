-- How a deployment used what it held over the lookback, and what a month of it takes: what every recommendation is
-- computed from.
{{ config(replaces='all') }}
{% set day_facts = [
    'gpu_seconds', 'known_seconds', 'active_seconds', 'energy_joules', 'host_overhead_joules', 'facility_energy_kwh', 'energy_cost_usd',
    'capacity_cost_usd', 'charged_energy_usd', 'chargeable_energy_usd', 'location_gco2e'
] %}
{% set keys_but_type = curve_keys() | reject('equalto', 'device_type') | list %}

with held_back as (

    select distinct date as held_back_date from {{ ref('held_back_dates') }}

),

-- A held-back date is evidence of nothing: it counts as a date without telemetry.
days as (

    select
        days.*,
        {{ charged_energy_usd('days') }} as charged_energy_usd,
        case when {{ charged_energy_usd('days') }} is not null then days.energy_cost_usd end as chargeable_energy_usd
    from {{ ref('model_daily') }} as days
    left join held_back on days.date = held_back.held_back_date
    where held_back.held_back_date is null

),

intervals as (

    select intervals.*
    from {{ ref('model_intervals') }} as intervals
    left join held_back on intervals.date = held_back.held_back_date
    where held_back.held_back_date is null

),

ledger as (

    select * from {{ ref('energy_ledger') }}

),

unmetered_devices as (

    select * from {{ ref('unmetered_devices') }}

),

token_ledger as (

    select * from {{ ref('token_ledger') }}

),

slo_capacity as (

    select * from {{ ref('slo_capacity') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

lookback as (

    select * from {{ ref('int_lookback') }}

),

-- GPUs without a power meter, under scope `none`: their time and use are known, their energy is not.
unmetered as (

    select
        unmetered_devices.date,
        unmetered_devices.interval_start_at,
        unmetered_devices.interval_seconds,
        {{ columns_of('unmetered_devices', keys_but_type | reject('equalto', 'meter_scope')) }},
        coalesce(unmetered_devices.device_type, {{ unknown() }}) as device_type,
        'none' as meter_scope,
        unmetered_devices.node,
        unmetered_devices.device_uuid,
        unmetered_devices.engine,
        unmetered_devices.gpu_seconds,
        unmetered_devices.activity_ratio,
        lookback.as_of_date
    from unmetered_devices
    cross join lookback
    where {{ in_lookback('unmetered_devices.date', 'lookback.as_of_date') }}

),

unmetered_held as (

    select
        as_of_date,
        {{ curve_keys() | join(', ') }},
        min(date) as first_date,
        max(date) as last_date,
        count(distinct date) as days,
        {% for fact in day_facts -%}
        cast(null as {{ fact_type(fact) }}) as {{ fact }},
        {% endfor -%}
        {{ exact_sum('gpu_seconds') }} as claimed_gpu_seconds,
        {{ ratio(
            exact_sum(exact('activity_ratio * cast(gpu_seconds as double)')),
            exact_sum('case when activity_ratio is not null then gpu_seconds end')
        ) }} as gpu_activity_ratio
    from unmetered
    where deployment not in ({{ unallocated() }}, {{ unknown() }})
    group by as_of_date, {{ curve_keys() | join(', ') }}

),

lookback_days as (

    select
        days.*,
        lookback.as_of_date
    from days
    cross join lookback
    where {{ in_lookback('days.date', 'lookback.as_of_date') }}

),

metered_held as (

    select
        as_of_date,
        {{ curve_keys() | join(', ') }},
        min(date) as first_date,
        max(date) as last_date,
        count(distinct date) as days,
        {% for fact in day_facts -%}
        cast(sum({{ fact }}) as {{ fact_type(fact) }}) as {{ fact }},
        {% endfor -%}
        {{ exact_sum('claimed_gpu_seconds') }} as claimed_gpu_seconds,
        cast(null as double) as gpu_activity_ratio
    from lookback_days
    where energy_joules is not null and model not in ({{ unallocated() }}, {{ unknown() }})
    group by as_of_date, {{ curve_keys() | join(', ') }}

),

doubts as (

    {{ doubts_by('lookback_days', curve_keys()) }}

),

held as (

    select * from metered_held
    union all
    select * from unmetered_held

),

newest_rows as (

    select
        ledger.date,
        ledger.interval_start_at,
        {{ columns_of('ledger', keys_but_type) }},
        coalesce(ledger.device_type, {{ unknown() }}) as known_device_type,
        ledger.node,
        ledger.meter,
        ledger.engine,
        ledger.gpu_seconds
    from ledger
    inner join (select distinct last_date from held) as dates on ledger.date = dates.last_date
    union all
    select
        unmetered.date,
        unmetered.interval_start_at,
        {{ columns_of('unmetered', keys_but_type) }},
        unmetered.device_type as known_device_type,
        unmetered.node,
        unmetered.device_uuid as meter,
        unmetered.engine,
        unmetered.gpu_seconds
    from unmetered
    inner join (select distinct last_date from held) as dates on unmetered.date = dates.last_date

),

-- What it holds now: as most of its newest date had it, so that neither a rollout nor a gap is taken for its size.
newest as (

    select
        {{ columns_of('held', curve_keys()) }},
        newest_rows.interval_start_at,
        count(distinct newest_rows.engine) as engines,
        {{ ratio(exact_sum('newest_rows.gpu_seconds'), var('grid_seconds')) }} as gpus
    from newest_rows
    inner join held
        on newest_rows.date = held.last_date
        and {{ equal_keys('newest_rows', 'held', keys_but_type) }}
        and newest_rows.known_device_type = held.device_type
    group by newest_rows.interval_start_at, {{ columns_of('held', curve_keys()) }}

),

-- The boards of each node, whoever holds them.
node_boards as (

    select
        date,
        node,
        count(distinct meter) as boards
    from newest_rows
    where meter_scope in ('board', 'none') and node is not null
    group by date, node

),

-- Its last place: a pod that moved on that date holds its new node only.
last_intervals as (

    select
        date,
        {{ keys_but_type | join(', ') }},
        known_device_type,
        max(interval_start_at) as interval_start_at
    from newest_rows
    group by date, {{ keys_but_type | join(', ') }}, known_device_type

),

last_rows as (

    select newest_rows.*
    from newest_rows
    inner join last_intervals
        on newest_rows.interval_start_at = last_intervals.interval_start_at
        and {{ equal_keys('newest_rows', 'last_intervals', ['date', 'known_device_type'] + keys_but_type) }}

),

held_nodes as (

    select distinct
        date,
        {{ keys_but_type | join(', ') }},
        known_device_type as device_type,
        node
    from last_rows

),

node_sizes as (

    select
        {{ columns_of('held_nodes', curve_keys()) }},
        -- One unnamed node makes the sum unknown.
        case when count(node_boards.boards) = count(*) then sum(node_boards.boards) end as node_gpus
    from held_nodes
    inner join held
        on held_nodes.date = held.last_date
        and {{ equal_keys('held_nodes', 'held', curve_keys()) }}
    left join node_boards on held_nodes.date = node_boards.date and held_nodes.node = node_boards.node
    group by {{ columns_of('held_nodes', curve_keys()) }}

),

sizes as (

    select
        {{ curve_keys() | join(', ') }},
        cast(round(percentile_cont(0.5) within group (order by engines)) as integer) as replicas,
        percentile_cont(0.5) within group (order by gpus) as seen_gpus
    from newest
    group by {{ curve_keys() | join(', ') }}

),

-- A few seconds of an interval may be uncovered: GPUs come whole unless they are shared.
whole_sizes as (

    select
        *,
        case when abs(seen_gpus - round(seen_gpus)) <= 0.05 * seen_gpus then round(seen_gpus) else seen_gpus end as gpus
    from sizes

),

unmetered_engines as (

    select distinct
        date,
        interval_start_at,
        interval_seconds,
        {{ curve_keys() | join(', ') }},
        engine
    from unmetered

),

unmetered_demand as (

    select
        {{ columns_of('unmetered_engines', curve_keys()) }},
        unmetered_engines.interval_start_at,
        unmetered_engines.interval_seconds,
        {{ exact_sum('token_ledger.tokens') }} as tokens
    from unmetered_engines
    inner join token_ledger
        on {{ equal_keys('unmetered_engines', 'token_ledger', ['date', 'interval_start_at', 'engine', 'role']) }}
        and not token_ledger.has_power
        and (token_ledger.token_class = 'output' or (token_ledger.role = 'prefill' and token_ledger.token_class = 'input'))
    group by unmetered_engines.interval_start_at, unmetered_engines.interval_seconds, {{ columns_of('unmetered_engines', curve_keys()) }}

),

metered_loads as (

    select
        {{ columns_of('intervals', curve_keys()) }},
        count(*) as intervals,
        {{ exact_sum('intervals.interval_seconds') }} as seconds,
        {{ exact_sum('intervals.matched_gpu_seconds') }} as matched_gpu_seconds,
        {{ exact_sum(curve_tokens()) }} as tokens,
        max({{ ratio(curve_tokens(), 'intervals.interval_seconds') }}) as demand_tokens_per_second_max,
        percentile_cont(0.99) within group (
            order by {{ ratio(curve_tokens(), 'intervals.interval_seconds') }}
        ) as demand_tokens_per_second_p99,
        sum(case when {{ moved_tokens() }} = 0 then intervals.interval_seconds else 0 end) as parked_seconds,
        {{ exact_sum('case when ' ~ moved_tokens() ~ ' = 0 then matched_gpu_seconds end') }} as parked_gpu_seconds,
        {{ exact_sum('case when ' ~ moved_tokens() ~ ' = 0 then matched_joules end') }} as parked_joules
    from intervals
    cross join lookback
    where {{ in_lookback('intervals.date', 'lookback.as_of_date') }}
    group by {{ columns_of('intervals', curve_keys()) }}

),

loads as (

    select * from metered_loads
    union all
    select
        {{ curve_keys() | join(', ') }},
        cast(null as bigint) as intervals,
        {{ exact_sum('interval_seconds') }} as seconds,
        cast(null as {{ exact_type() }}) as matched_gpu_seconds,
        {{ exact_sum('tokens') }} as tokens,
        max({{ ratio('tokens', 'interval_seconds') }}) as demand_tokens_per_second_max,
        percentile_cont(0.99) within group (order by {{ ratio('tokens', 'interval_seconds') }}) as demand_tokens_per_second_p99,
        cast(null as bigint) as parked_seconds,
        cast(null as {{ exact_type() }}) as parked_gpu_seconds,
        cast(null as {{ exact_type() }}) as parked_joules
    from unmetered_demand
    group by {{ curve_keys() | join(', ') }}

),

joined as (

    select
        held.*,
        {{ curve_tokens_basis() | replace('role', 'held.role') }} as tokens_basis,
        whole_sizes.replicas,
        whole_sizes.gpus,
        node_sizes.node_gpus,
        loads.intervals,
        loads.seconds,
        loads.matched_gpu_seconds,
        loads.tokens,
        loads.demand_tokens_per_second_max,
        loads.demand_tokens_per_second_p99,
        slo_capacity.capacity_tokens_per_second_per_gpu,
        slo_capacity.capacity_basis,
        slo_capacity.is_lower_bound as is_capacity_lower_bound,
        {{ ratio('held.energy_joules', 'held.gpu_seconds') }} as watts_per_gpu,
        case
            when loads.parked_seconds >= 3600 then {{ ratio('loads.parked_joules', 'loads.parked_gpu_seconds') }}
        end as measured_parked_watts,
        device_types.idle_watts_loaded,
        {{ columns_of('doubts', doubt_names()) }}
    from held
    left join whole_sizes on {{ equal_keys('held', 'whole_sizes', curve_keys()) }}
    left join node_sizes on {{ equal_keys('held', 'node_sizes', curve_keys()) }}
    left join loads on {{ equal_keys('held', 'loads', curve_keys()) }}
    left join slo_capacity on {{ equal_keys('held', 'slo_capacity', curve_keys()) }}
    left join device_types on held.device_type = device_types.device_type
    left join doubts on {{ equal_keys('held', 'doubts', curve_keys()) }}

),

-- A month is 730 hours of the GPUs held now, each as the lookback's was.
final as (

    select
        joined.as_of_date,
        {{ curve_keys() | join(', ') }},
        tokens_basis,
        cast(first_date as {{ timestamp_type() }}) as lookback_start_at,
        cast(joined.as_of_date + interval 1 day as {{ timestamp_type() }}) as lookback_end_at,
        last_date as last_seen_date,
        cast(days as integer) as days,
        cast({{ dbt.datediff('joined.first_date', 'joined.as_of_date', 'day') }} + 1 as integer) as span_days,
        -- Of the accelerator time held, dates without any row included, the share of which power and use are both
        -- known.
        least(
            {{ ratio('coalesce(matched_gpu_seconds, 0)', 'claimed_gpu_seconds') }}
            * {{ ratio('days', dbt.datediff('joined.first_date', 'joined.as_of_date', 'day') ~ ' + 1') }}, 1.0
        ) as coverage_ratio,
        replicas,
        gpus,
        {{ ratio('gpus', 'replicas') }} as gpus_per_replica,
        case when gpus / node_gpus is not null then least({{ ratio('gpus', 'node_gpus') }}, 1.0) end as allocation_ratio,
        watts_per_gpu * gpus as mean_watts,
        case
            when measured_parked_watts is not null then measured_parked_watts
            when idle_watts_loaded is not null and meter_scope = 'board' then least(cast(idle_watts_loaded as double), watts_per_gpu)
        end as parked_watts_per_gpu,
        case
            when measured_parked_watts is not null then 'intervals_without_tokens'
            when idle_watts_loaded is not null and meter_scope = 'board' then 'device_type_reference'
            else 'unknown'
        end as parked_watts_basis,
        {{ ratio('active_seconds', 'known_seconds') }} as active_time_ratio,
        gpu_activity_ratio,
        cast(intervals as bigint) as intervals,
        {{ ratio('tokens', 'seconds') }} as demand_tokens_per_second_mean,
        demand_tokens_per_second_p99,
        demand_tokens_per_second_max,
        capacity_tokens_per_second_per_gpu,
        capacity_tokens_per_second_per_gpu * gpus as capacity_tokens_per_second,
        capacity_basis,
        is_capacity_lower_bound,
        watts_per_gpu * gpus * 730 / 1000 as device_kwh_month,
        watts_per_gpu * gpus * 730 / 1000 * {{ ratio('3600000 * facility_energy_kwh', 'energy_joules') }} as facility_kwh_month,
        {{ ratio('3600000 * facility_energy_kwh', 'energy_joules') }} as facility_per_device_ratio,
        {{ ratio('3600000 * facility_energy_kwh', 'energy_joules + host_overhead_joules') }} as pue,
        {{ ratio('energy_cost_usd', 'facility_energy_kwh') }} as usd_per_kwh,
        {{ ratio('location_gco2e', 'facility_energy_kwh') }} as gco2e_per_kwh,
        {{ ratio('capacity_cost_usd', 'claimed_gpu_seconds') }} * 3600 as usd_per_gpu_hour,
        -- 0 where the rate of a GPU-hour holds the electricity already.
        {{ ratio('charged_energy_usd', 'chargeable_energy_usd') }} as charged_energy_ratio,
        {{ ratio('energy_cost_usd', 'gpu_seconds') }} * 3600 * 730 * gpus as energy_cost_usd_month,
        {{ ratio('capacity_cost_usd', 'claimed_gpu_seconds') }} * 3600 * 730 * gpus as capacity_cost_usd_month,
        {{ ratio('location_gco2e', 'gpu_seconds') }} * 3600 * 730 * gpus / 1000 as location_kgco2e_month,
        {{ doubt_names() | join(', ') }},
        lookback.held_back_dates,
        lookback.is_complete
    from joined
    cross join lookback

)

select * from final
