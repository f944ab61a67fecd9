{{ config(
    severity='warn',
    meta={
        'description':
            'The samples of a gauge cover at least nine tenths of the time between its first and last one of a '
            ~ 'date. Otherwise energy is lost that nothing else shows. Sources of run windows are left out: a '
            ~ 'benchmark\'s log has nothing between its runs.',
        'dagster': {'ref': {'name': 'series_daily'}},
        'expected': 'at least 90 % of the seconds between the first and the last sample of the date',
        'remedy':
            'see whether the exporter or its scrape was down. If the meter is read less often than the fleet file '
            ~ 'states, set interval_seconds of its source to the longest usual time between two samples, and re-book '
            ~ 'the date'
    }
) }}

-- depends_on: {{ ref('series_daily') }}, the mart whose check this is

with windows as (

    select * from {{ source('raw', 'run_windows') }} where {{ overlaps_run('start_at', 'end_at') }}

),

ledger as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }}

),

amounts as (

    select * from {{ ref('int_series_amounts') }} where quantity = 'power' and last_us > first_us

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

)

select
    amounts.date,
    amounts.source,
    amounts.metric,
    amounts.meter,
    -- The labels of a board change with its pods; its series together are its reading.
    round(sum(cast(amounts.covered_seconds as double)) * 1e6 / (max(amounts.last_us) - min(amounts.first_us)), 3) as covered_ratio,
    {{ from_epoch_us('min(amounts.first_us)') }} as first_sample_at,
    {{ from_epoch_us('max(amounts.last_us)') }} as last_sample_at
from amounts
left join windowed_sources on amounts.date = windowed_sources.date and amounts.source = windowed_sources.source
where windowed_sources.source is null
group by amounts.date, amounts.source, amounts.metric, amounts.meter
having sum(cast(amounts.covered_seconds as double)) < 0.9 * (max(amounts.last_us) - min(amounts.first_us)) / 1e6
order by covered_ratio, amounts.meter, amounts.metric
