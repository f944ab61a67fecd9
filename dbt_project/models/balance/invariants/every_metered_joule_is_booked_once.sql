-- The balance: the book has what each meter measured on a date according to raw, to a millionth (a thousandth of a
-- joule is rounding). A meter that is missing on one side counts with 0 there, so a lost meter fails as a lost interval
-- does.
select
    date,
    'reconciliation_daily' as table_name,
    {{ row_key(['meter_scope', 'meter']) }} as row_key,
    cast(booked_joules as double) as found,
    'J booked' as unit,
    coalesce(cast(metered_joules as {{ dbt.type_string() }}), 'none') || ' metered' as expected
from {{ ref('reconciliation_daily') }}
where {{ in_run('date') }}
    and (
        abs(cast(difference_joules as double)) > 1e-6 * abs(cast(coalesce(metered_joules, 0) as double)) + 1e-3
        or (metered_joules is null and booked_joules is not null)
    )
