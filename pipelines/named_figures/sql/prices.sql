-- What models pay themselves of each part, by price: the quantity that is paid for, and its unit price.
select
    x_Part as part,
    BillingAccountId as site,
    case when ResourceType = 'GPU Pool' then ResourceName end as device_type,
    PricingUnit as unit,
    SkuPriceId like '%/blended' as is_blended,
    ListUnitPrice as unit_price_usd,
    sum(PricingQuantity) as quantity,
    sum(EffectiveCost) as usd
from marts.focus_cost_and_usage
where {condition}
group by all
having usd <> 0
order by all
