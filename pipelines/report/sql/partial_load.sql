-- What a million tokens costs at a part of the load that the accelerators could carry: per deployment the stated loads, and
-- the load of the lookback (`is_actual`). The seven deployments with the highest price of a token.
with
loads as (
    select distinct
        site, deployment, model, device_type, meter_scope, role, tokens_basis, is_actual, capacity_ratio,
        effective_cost_usd_per_mtok, price_ratio, watts_basis, capacity_basis, is_capacity_lower_bound
    from marts.partial_load_cost
    where capacity_ratio is not null and effective_cost_usd_per_mtok is not null
),

ranked as (
    select
        site, deployment, model, device_type, meter_scope, role,
        row_number() over (order by max(effective_cost_usd_per_mtok) desc, site, deployment, model) as place,
        count(*) over (partition by model) as deployments
    from loads
    group by site, deployment, model, device_type, meter_scope, role
)

select
    place,
    case when deployments > 1 then loads.deployment else loads.model end as name,
    loads.is_actual, loads.capacity_ratio, loads.effective_cost_usd_per_mtok, loads.price_ratio, loads.tokens_basis,
    loads.watts_basis, loads.capacity_basis, loads.is_capacity_lower_bound
from loads inner join ranked using (site, deployment, model, device_type, meter_scope, role)
where place <= 7
order by place, loads.is_actual, loads.capacity_ratio
