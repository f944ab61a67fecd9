-- Which publication this is, and which dates, sites and models it has.
select
    publication.*,
    (select min(date) from marts.model_daily) as first_date,
    (select max(date) from marts.model_daily) as last_date,
    (select count(distinct site) from marts.model_daily) as sites,
    (select count(distinct model) filter (not starts_with(model, '__')) from marts.model_daily) as models
from published.publication
