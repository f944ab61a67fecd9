-- Booked gauges whose samples cover less than nine tenths of the time between the first and the last one of a date: what
-- they drew in between is in no table. A source of run windows is left out, as a benchmark's log has nothing between its
-- runs. One row per date and meter.
with windows as (

    select * from {{ source('raw', 'run_windows') }} where {{ overlaps_run('start_at', 'end_at') }}

),

ledger as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }}

),

booked as (

    select distinct
        date,
        source,
        metric,
        meter_scope,
        meter
    from {{ ref('int_meter_choices') }}
    where purpose = 'booked'

),

amounts as (

    select amounts.*
    from {{ ref('int_series_amounts') }} as amounts
    inner join booked on {{ equal_keys('amounts', 'booked', ['date', 'source', 'metric', 'meter_scope', 'meter']) }}
    where amounts.quantity = 'power'

),

windowed_meters as (

    select distinct
        ledger.date,
        ledger.meter_scope,
        ledger.meter
    from ledger
    inner join windows
        on ledger.date >= cast(windows.start_at as date)
        and ledger.date <= cast(windows.end_at as date)
        and {{ is_of_window('ledger', 'windows') }}

),

windowed_sources as (

    select distinct
        amounts.date,
        amounts.source
    from amounts
    inner join windowed_meters on {{ equal_keys('amounts', 'windowed_meters', ['date', 'meter_scope', 'meter']) }}

),

-- The labels of a board change with its pods; its series together are its reading.
final as (

    select
        amounts.date,
        amounts.meter_scope,
        amounts.meter,
        sum(cast(amounts.covered_seconds as double)) * 1e6 / (max(amounts.last_us) - min(amounts.first_us)) as covered_ratio,
        min(amounts.first_us) as from_us,
        max(amounts.last_us) as to_us
    from amounts
    left join windowed_sources on amounts.date = windowed_sources.date and amounts.source = windowed_sources.source
    where windowed_sources.source is null and amounts.last_us > amounts.first_us
    group by amounts.date, amounts.source, amounts.metric, amounts.meter_scope, amounts.meter
    having sum(cast(amounts.covered_seconds as double)) < 0.9 * (max(amounts.last_us) - min(amounts.first_us)) / 1e6

)

select * from final
