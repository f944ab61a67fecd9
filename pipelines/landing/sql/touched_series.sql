-- Series of which the landing changed what is known of their day.
create or replace temp table touched_series as
with facts_before as (
    select series_id, samples, first_at, first_value, last_at, last_value from chunks_before
),
facts_after as (
    select series_id, samples, first_at, first_value, last_at, last_value from chunks_after
),
changes as (
    (select * from facts_before except select * from facts_after)
    union all
    (select * from facts_after except select * from facts_before)
)
select distinct series_id from changes
