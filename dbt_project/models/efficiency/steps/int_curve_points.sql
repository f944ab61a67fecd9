-- The intervals of the lookback that saw tokens, each with the half octave of load that it belongs to.
with intervals as (

    select * from {{ ref('model_intervals') }}

),

lookback as (

    select * from {{ ref('int_lookback') }}

),

run_windows as (

    select
        *,
        {{ epoch_us('start_at') }} as start_us,
        {{ epoch_us('end_at') }} as end_us
    from {{ source('raw', 'run_windows') }}

),

ledger as (

    select
        *,
        {{ epoch_us('interval_start_at') }} as start_us,
        {{ epoch_us('interval_start_at') }} + cast(interval_seconds as bigint) * 1000000 as end_us
    from {{ ref('energy_ledger') }}
    where is_matched

),

points as (

    select
        lookback.as_of_date,
        intervals.date,
        intervals.interval_start_at,
        intervals.engines,
        {{ columns_of('intervals', curve_keys()) }},
        {{ curve_tokens_basis() }} as tokens_basis,
        {{ curve_tokens() }} as tokens,
        intervals.matched_gpu_seconds as gpu_seconds,
        intervals.matched_joules as joules
    from intervals
    cross join lookback
    where {{ in_lookback('intervals.date', 'lookback.as_of_date') }}

),

-- Most dates have no window, and their part of the ledger is not read.
window_dates as (

    select
        dates.date,
        run_windows.node,
        run_windows.engine,
        run_windows.model,
        run_windows.start_us,
        run_windows.end_us
    from (select distinct date from points) as dates
    inner join run_windows
        on run_windows.start_at < cast(dates.date + interval 1 day as {{ timestamp_type() }})
        and run_windows.end_at > cast(dates.date as {{ timestamp_type() }})

),

-- An engine is in a window by the node, engine or model that selects the window's meters, and by its model where the
-- window has one as well.
window_engines as (

    select
        ledger.interval_start_at,
        {{ columns_of('ledger', curve_keys() | reject('equalto', 'device_type')) }},
        coalesce(ledger.device_type, {{ unknown() }}) as device_type,
        count(distinct ledger.engine) as window_engines
    from ledger
    inner join window_dates
        on ledger.date = window_dates.date
        and ledger.start_us >= window_dates.start_us
        and ledger.end_us <= window_dates.end_us
        and {{ is_of_window('ledger', 'window_dates') }}
        and (window_dates.model is null or ledger.model = window_dates.model)
    group by all

),

-- Watts, J/token and tok/s of one accelerator, so that a deployment that grows or shrinks stays on one curve. No work
-- takes 0 J: its best load would be none.
rated as (

    select
        *,
        {{ ratio('tokens', 'gpu_seconds') }} as tokens_per_second_per_gpu,
        {{ ratio('joules', 'tokens') }} as joules_per_token,
        {{ ratio('joules', 'gpu_seconds') }} as watts_per_gpu
    from points
    where tokens > 0 and gpu_seconds > 0 and joules > 0

),

-- Where one of a deployment's engines was in no window, its load is not the window's.
final as (

    select
        rated.as_of_date,
        rated.date,
        {{ columns_of('rated', curve_keys()) }},
        rated.tokens_basis,
        rated.tokens,
        rated.gpu_seconds,
        rated.joules,
        rated.tokens_per_second_per_gpu,
        rated.joules_per_token,
        rated.watts_per_gpu,
        {{ load_bin('rated.tokens_per_second_per_gpu') }} as load_bin,
        coalesce(window_engines.window_engines >= rated.engines, false) as is_in_window
    from rated
    left join window_engines on {{ equal_keys('rated', 'window_engines', ['interval_start_at'] + curve_keys()) }}

)

select * from final
