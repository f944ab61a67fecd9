-- The balance of tokens: the token book has what an engine moved on a date according to raw, to a millionth (a
-- thousandth of a token is rounding).
select
    date,
    'token_reconciliation_daily' as table_name,
    {{ row_key(['engine', 'token_class']) }} as row_key,
    cast(booked_tokens as double) as found,
    'tokens booked' as unit,
    coalesce(cast(metered_tokens as {{ dbt.type_string() }}), 'none') || ' metered' as expected
from {{ ref('token_reconciliation_daily') }}
where {{ in_run('date') }}
    and (
        abs(cast(difference_tokens as double)) > 1e-6 * abs(cast(coalesce(metered_tokens, 0) as double)) + 1e-3
        or (metered_tokens is null and booked_tokens is not null)
    )
