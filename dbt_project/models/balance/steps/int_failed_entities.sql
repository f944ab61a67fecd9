-- The meters and engines whose balance fails on a date of the run, with the evidence. Their rows stay as they are booked
-- and the date is published, unless it is no fault of single ones: none is named, or at least four fail that hold more
-- than a tenth of the date's joules. One row per date, invariant and broken row.
with broken as (

    {{ broken_rows({
        'every_metered_joule_is_booked_once':
            'Do not use the joules of this meter on this date: the book and its raw samples differ.'
            ' Book the date again after the next upgrade, and report it with these rows.',
        'tokens_are_booked_once':
            'Do not use the tokens of this engine on this date: the book and its raw samples differ.'
            ' Book the date again after the next upgrade, and report it with these rows.'
    }) }}

),

ledger as (

    select * from {{ ref('energy_ledger') }} where {{ in_run('date') }}

),

meters as (

    select
        date,
        {{ row_key(['meter_scope', 'meter']) }} as row_key,
        max(meter_scope) as meter_scope,
        max(nullif(meter, {{ unknown() }})) as meter,
        sum(greatest(coalesce(metered_joules, 0) - coalesce(booked_joules, 0), 0)) as lost_joules
    from {{ ref('reconciliation_daily') }}
    where {{ in_run('date') }}
    group by 1, 2

),

engines as (

    select
        date,
        {{ row_key(['engine', 'token_class']) }} as row_key,
        max(nullif(engine, {{ unknown() }})) as engine
    from {{ ref('token_reconciliation_daily') }}
    where {{ in_run('date') }}
    group by 1, 2

),

named as (

    select
        broken.*,
        meters.meter_scope,
        meters.meter,
        engines.engine,
        coalesce(meters.lost_joules, 0) as lost_joules
    from broken
    left join meters
        on broken.invariant = 'every_metered_joule_is_booked_once'
        and broken.date = meters.date
        and broken.row_key = meters.row_key
    left join engines
        on broken.invariant = 'tokens_are_booked_once'
        and broken.date = engines.date
        and broken.row_key = engines.row_key

),

-- Each joule once, also where a meter and the engine that holds it fail. What the book lost of a meter is no row of it.
failed_rows as (

    select
        ledger.date,
        sum(ledger.energy_joules) as joules,
        sum(case when failed_meters.meter is not null or failed_engines.engine is not null then ledger.energy_joules end) as failed_joules
    from ledger
    inner join (select distinct date from named) as dates on ledger.date = dates.date
    left join (select distinct date, meter_scope, meter from named) as failed_meters
        on {{ equal_keys('ledger', 'failed_meters', ['date', 'meter_scope', 'meter']) }}
    left join (select distinct date, engine from named) as failed_engines
        on {{ equal_keys('ledger', 'failed_engines', ['date', 'engine']) }}
    group by ledger.date

),

failed_dates as (

    select
        date,
        count(distinct coalesce(meter_scope || ' ' || meter, engine)) as entities,
        max(case when coalesce(meter, engine) is null then 1 else 0 end) = 1 as is_unnamed,
        sum(lost_joules) as lost_joules
    from named
    group by date

),

final as (

    select
        named.date,
        named.invariant,
        named.meter_scope,
        named.meter,
        named.engine,
        failed_dates.is_unnamed
        or (
            failed_dates.entities >= 4
            and cast(coalesce(failed_rows.failed_joules, 0) + failed_dates.lost_joules as double)
                > 0.1 * cast(coalesce(failed_rows.joules, 0) + failed_dates.lost_joules as double)
        ) as is_held_back,
        named.table_name,
        named.row_number,
        named.row_key,
        named.found,
        named.unit,
        named.expected,
        named.remedy,
        named.broken_rows
    from named
    inner join failed_dates on named.date = failed_dates.date
    left join failed_rows on named.date = failed_rows.date

)

select * from final
