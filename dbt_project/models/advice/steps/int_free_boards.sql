-- Unallocated boards at the end of the lookback: since when, what each has drawn since, and whether it is really free.
-- One row per board.
{%- set keys = ['site', 'device_type', 'meter_scope', 'is_spare'] %}

with dates as (

    select * from {{ ref('int_lookback_dates') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

spares as (

    select distinct device_uuid from {{ source('fleet', 'devices') }} where coalesce(spare, false)

),

engines as (

    select * from {{ source('fleet', 'engines') }}

),

newest as (

    select
        max(date) as newest_date,
        cast(max(date) + interval 1 day as {{ timestamp_type() }}) as lookback_end_at
    from dates

),

-- The ledger is large: each step selects the boards it needs. The whole lookback of boards that are always held is
-- never read.
free_rows as (

    select
        ledger.claim_start_at,
        ledger.meter_scope,
        ledger.meter,
        ledger.gpu_seconds,
        ledger.energy_joules
    from {{ ref('energy_ledger') }} as ledger
    inner join dates on ledger.date = dates.date
    where ledger.state = 'unallocated'
    union all
    select
        unmetered.interval_start_at as claim_start_at,
        'none' as meter_scope,
        unmetered.device_uuid as meter,
        unmetered.gpu_seconds,
        cast(null as {{ exact_type() }}) as energy_joules
    from {{ ref('unmetered_devices') }} as unmetered
    inner join dates on unmetered.date = dates.date
    where unmetered.engine = {{ unallocated() }}

),

newest_rows as (

    select
        ledger.claim_start_at,
        ledger.site,
        coalesce(ledger.device_type, {{ unknown() }}) as device_type,
        ledger.meter_scope,
        ledger.meter,
        ledger.node,
        ledger.state = 'unallocated' as is_free,
        {{ ratio('ledger.gpu_seconds', 'ledger.covered_seconds') }} as gpus
    from {{ ref('energy_ledger') }} as ledger
    inner join newest on ledger.date = newest.newest_date
    where ledger.interval_start_at >= newest.lookback_end_at - interval 1 hour
    union all
    select
        unmetered.interval_start_at as claim_start_at,
        unmetered.site,
        coalesce(unmetered.device_type, {{ unknown() }}) as device_type,
        'none' as meter_scope,
        unmetered.device_uuid as meter,
        unmetered.node,
        unmetered.engine = {{ unallocated() }} as is_free,
        cast(coalesce(device_types.gpus, 1) as double) as gpus
    from {{ ref('unmetered_devices') }} as unmetered
    inner join newest on unmetered.date = newest.newest_date
    left join device_types on unmetered.device_type = device_types.device_type
    where unmetered.interval_start_at >= newest.lookback_end_at - interval 1 hour

),

-- A board that is silent by then is switched off or in an unknown state: it is not counted as free.
last_rows as (

    select *
    from newest_rows
    qualify claim_start_at = max(claim_start_at) over (partition by meter)

),

free_boards as (

    select
        last_rows.site,
        last_rows.device_type,
        last_rows.meter_scope,
        spares.device_uuid is not null as is_spare,
        last_rows.meter,
        max(last_rows.node) as node,
        cast(round(coalesce(max(last_rows.gpus), 1)) as integer) as gpus
    from last_rows
    left join spares on last_rows.meter = spares.device_uuid
    group by last_rows.site, last_rows.device_type, last_rows.meter_scope, spares.device_uuid is not null, last_rows.meter
    having min(case when last_rows.is_free then 1 else 0 end) = 1

),

held_rows as (

    select
        free_boards.meter,
        ledger.claim_start_at
    from {{ ref('energy_ledger') }} as ledger
    inner join dates on ledger.date = dates.date
    inner join free_boards on ledger.meter = free_boards.meter
    where ledger.state <> 'unallocated'
    union all
    select
        free_boards.meter,
        unmetered.interval_start_at as claim_start_at
    from {{ ref('unmetered_devices') }} as unmetered
    inner join dates on unmetered.date = dates.date
    inner join free_boards on unmetered.device_uuid = free_boards.meter
    where unmetered.engine <> {{ unallocated() }}

),

last_held as (

    select
        meter,
        max(claim_start_at) as last_held_at
    from held_rows
    group by meter

),

-- Engines of the newest date that no board with power is known to be of. A frontend and a gateway have none.
engines_without_energy as (

    select distinct
        tokens.engine,
        tokens.node
    from {{ ref('token_ledger') }} as tokens
    inner join newest on tokens.date = newest.newest_date
    left join {{ ref('unmetered_devices') }} as unmetered on tokens.date = unmetered.date and tokens.engine = unmetered.engine
    where not tokens.has_power
        and tokens.node is not null
        and unmetered.engine is null
        and substring(tokens.engine, 1, 9) <> 'frontend:'
        and substring(tokens.engine, 1, 8) <> 'gateway:'

),

described_engines as (

    select
        engines_without_energy.engine,
        engines.accelerators
    from engines_without_energy
    inner join engines on {{ fits('engines_without_energy.engine', 'engines.engine', 'engines.is_prefix') }}
    qualify row_number() over (partition by engines_without_energy.engine order by engines.entry) = 1

),

-- One of the node's free boards may be theirs.
doubted_nodes as (

    select distinct engines_without_energy.node
    from engines_without_energy
    left join described_engines on engines_without_energy.engine = described_engines.engine
    where coalesce(described_engines.accelerators, true)

),

-- Each board that is free now, since it was last held or in an unknown state.
final as (

    select
        {{ columns_of('free_boards', keys) }},
        free_boards.meter,
        free_boards.node,
        free_boards.gpus,
        case
            when free_boards.is_spare then 'spare'
            when max(doubted_nodes.node) is not null then 'engine_without_energy'
            else 'unallocated'
        end as reason_code,
        min(free_rows.claim_start_at) as free_since_at,
        {{ exact(
            ratio(
                exact_sum('case when free_rows.meter_scope = free_boards.meter_scope then free_rows.energy_joules end'),
                exact_sum(
                    'case when free_rows.meter_scope = free_boards.meter_scope and free_rows.energy_joules is not null'
                    ~ ' then free_rows.gpu_seconds end'
                )
            ) ~ ' * free_boards.gpus'
        ) }} as mean_watts
    from free_boards
    inner join free_rows on free_boards.meter = free_rows.meter
    left join last_held on free_boards.meter = last_held.meter
    left join doubted_nodes on free_boards.node = doubted_nodes.node
    where last_held.last_held_at is null or free_rows.claim_start_at > last_held.last_held_at
    group by {{ columns_of('free_boards', keys) }}, free_boards.meter, free_boards.node, free_boards.gpus

)

select * from final
