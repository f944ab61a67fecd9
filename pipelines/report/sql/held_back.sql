-- Dates and tables that are held back, each with the rule that does not hold, and whether an earlier version is published.
select
    date, invariant, string_agg(distinct table_name, ', ' order by table_name) as tables,
    sum(broken_rows) as broken_rows, any_value(remedy) as remedy,
    date in (select date from marts.model_daily) as is_published
from marts.held_back_dates
group by date, invariant
union all
select null, invariant, string_agg(distinct table_name, ', ' order by table_name), sum(broken_rows), any_value(remedy), null
from marts.held_back_tables
group by invariant
order by date desc nulls last, invariant
