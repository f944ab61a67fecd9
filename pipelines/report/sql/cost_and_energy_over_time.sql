-- Per date and model: the full cost over its output tokens, and the accelerators' energy over theirs. The models with the
-- highest cost have lines of their own; the line `others` adds up the rest, `fleet` everything, also what served nothing.
with
newest as (
    select max(date) as date from marts.fleet_daily
),

main_scope as (
    select meter_scope from marts.fleet_daily group by meter_scope order by sum(energy_joules) desc nulls last limit 1
),

costs as (
    select date, model, sum(cost_usd) as cost_usd, bool_and(is_cost_complete) as is_cost_complete
    from marts.cost_daily
    where basis = 'fully_loaded' and date > (select date - 28 from newest)
    group by date, model
),

energy as (
    select
        date,
        model,
        sum(output_tokens) as output_tokens,
        sum(matched_joules) filter (meter_scope = (from main_scope)) as matched_joules,
        sum(matched_output_tokens) filter (meter_scope = (from main_scope)) as matched_output_tokens
    from marts.model_daily
    where date > (select date - 28 from newest)
    group by date, model
),

paired as (
    select * from energy full join costs using (date, model)
),

ranked as (
    select model, row_number() over (order by sum(cost_usd) desc nulls last, sum(matched_joules) desc nulls last, model) as place
    from paired
    group by model
    having sum(output_tokens) > 0 and not starts_with(model, '__')
),

named as (
    select
        paired.*,
        case when place <= 6 then 'model' else 'others' end as line,
        case when place <= 6 then model end as name
    from paired inner join ranked using (model)
    union all by name
    select *, 'fleet' as line, null as name from paired
)

select
    date,
    line,
    name as model,
    min(place) as place,
    sum(cost_usd) as cost_usd,
    sum(output_tokens) / 1e6 as output_mtok,
    1e6 * sum(cost_usd) / nullif(sum(output_tokens), 0) as cost_usd_per_output_mtok,
    sum(matched_joules) / nullif(sum(matched_output_tokens), 0) / 3.6 as kwh_per_output_mtok,
    sum(matched_joules) / nullif(sum(matched_output_tokens), 0) as joules_per_output_token,
    coalesce(bool_and(is_cost_complete), false) as is_cost_complete,
    (select meter_scope from main_scope) as meter_scope
from named left join ranked on named.name = ranked.model
group by date, line, name
order by line <> 'fleet', line = 'others', place, date
