-- The tokens of each engine and class, with the counters that they were booked from.
select
    engine,
    token_class,
    string_agg(distinct token_metric, ', ' order by token_metric) as metrics,
    sum(tokens) filter ({only}) as tokens
from marts.token_ledger
where {condition} and token_class in ({classes})
group by all
having tokens is not null
order by tokens desc, engine, token_class
