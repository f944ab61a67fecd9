-- Who pays for the newest month that cost something, and what he got for it; the twelve with the most, then the rest together.
with
newest as (
    select max(month) as month from finance.chargeback where closed_cost_usd <> 0
),

payers as (
    select
        payer,
        sum(closed_cost_usd) as closed_cost_usd,
        sum(output_tokens) / 1e6 as output_mtok,
        sum(energy_kwh) as energy_kwh,
        sum(location_kgco2e) as location_kgco2e,
        bool_and(is_cost_complete) as is_cost_complete
    from finance.chargeback
    where month = (select month from newest)
    group by payer
),

ranked as (
    select *, least(row_number() over (order by closed_cost_usd desc nulls last, payer), 13) as place from payers
)

select
    (select month from newest) as month,
    case when place <= 12 then min(payer) end as payer,
    place,
    sum(closed_cost_usd) as closed_cost_usd,
    sum(output_mtok) as output_mtok,
    sum(energy_kwh) as energy_kwh,
    sum(location_kgco2e) as location_kgco2e,
    bool_and(is_cost_complete) as is_cost_complete
from ranked
group by place
having sum(closed_cost_usd) <> 0
order by place
