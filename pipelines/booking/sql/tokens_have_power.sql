with orphans as (
    select engine, model, date, sum(tokens) as tokens
    from marts.token_ledger join run_days using (date)
    where not has_power and token_class in ('input', 'output') group by all
)
select engine, model, date, tokens from orphans where tokens > 0 order by tokens desc, engine, date
