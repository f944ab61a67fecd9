-- An interval that counts in joules per token is whole on both sides: every board that the engine held all through it
-- has energy in it, and tokens are known for at least 0.9 of the seconds that each of its meters covers.
{% set engine_keys = ['date', 'engine', 'interval_start_at'] %}

with ledger as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }} and is_matched

),

claims as (

    select * from {{ ref('int_claims') }} where engine not in ({{ unallocated() }}, {{ unknown() }})

),

meters as (

    select * from {{ ref('int_meter_choices') }} where purpose = 'booked'

),

engine_intervals as (

    select * from {{ ref('int_engine_intervals') }}

),

-- Only an engine of several meters can lack the energy of one.
engines as (

    select
        date,
        engine,
        count(distinct meter_scope || ' ' || meter) as meters,
        max(case when is_tokens_complete then 1 else 0 end) as is_tokens_complete
    from claims
    group by date, engine

),

powered as (

    select
        {{ columns_of('ledger', engine_keys) }},
        ledger.meter_scope,
        ledger.meter,
        max(ledger.node) as node,
        max(ledger.interval_seconds) as interval_seconds,
        sum(ledger.covered_seconds) as covered_seconds,
        max(engines.meters) as meters,
        max(engines.is_tokens_complete) as is_tokens_complete
    from ledger
    inner join engines on ledger.date = engines.date and ledger.engine = engines.engine
    group by {{ columns_of('ledger', engine_keys) }}, ledger.meter_scope, ledger.meter

),

several as (

    select distinct
        {{ engine_keys | join(', ') }},
        {{ epoch_us('interval_start_at') }} as start_us,
        {{ epoch_us('interval_start_at') }} + cast(interval_seconds as bigint) * 1000000 as end_us
    from powered
    where meters > 1

),

held as (

    select distinct
        {{ columns_of('several', engine_keys) }},
        claims.meter_scope,
        claims.meter,
        coalesce(claims.place_node, meters.node) as node
    from several
    inner join claims
        on several.date = claims.date
        and several.engine = claims.engine
        and claims.held_start_us <= several.start_us
        and claims.held_end_us >= several.end_us
    left join meters on {{ equal_keys('claims', 'meters', ['date', 'meter_scope', 'meter']) }}
    where claims.is_unmetered or meters.gpu_count > 0

),

broken as (

    select
        {{ columns_of('held', engine_keys + ['meter']) }},
        cast(0 as double) as found,
        'covered seconds of a board that the engine holds' as unit,
        'its energy in a matched interval' as expected
    from held
    left join powered on {{ equal_keys('held', 'powered', engine_keys + ['meter_scope', 'meter']) }}
    -- While no board of a node reports, its meter has their energy.
    left join powered as nodes on {{ equal_keys('held', 'nodes', engine_keys + ['node']) }} and nodes.meter_scope = 'node'
    where powered.meter is null and nodes.meter is null
    union all
    select
        {{ columns_of('powered', engine_keys + ['meter']) }},
        cast(coalesce(engine_intervals.covered_us, 0) / 1e6 as double) as found,
        'seconds with known tokens' as unit,
        'at least 0.9 of ' || cast(powered.covered_seconds as {{ dbt.type_string() }}) || ' s with power' as expected
    from powered
    left join engine_intervals
        on powered.engine = engine_intervals.engine
        and {{ int_div(epoch_us('powered.interval_start_at'), grid_us()) }} = engine_intervals.interval_number
    where powered.is_tokens_complete = 0
        and coalesce(engine_intervals.covered_us, 0) / 1e6 < 0.9 * cast(powered.covered_seconds as double) - 1e-3

)

select
    date,
    'energy_ledger' as table_name,
    {{ row_key(['engine', 'meter', 'interval_start_at']) }} as row_key,
    found,
    unit,
    expected
from broken
