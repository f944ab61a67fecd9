-- Each part of the cost per date and model, whatever its prices: one row per UTC date, billing month, model_hourly's
-- keys and is_held.
{% set keys = ['date', 'billing_month'] + model_keys() + ['is_held'] %}

with priced_days as (

    select * from {{ ref('int_priced_cost_days') }}

),

final as (

    select
        {{ keys | join(',\n        ') }},
        max(rate_source) as rate_source,
        case
            when min(cooling_basis) = max(cooling_basis) then min(cooling_basis)
            when min(cooling_basis) is not null then 'mixed'
        end as cooling_basis,
        {%- for part in cost_parts() %}
        {{ part_sums(part) }},
        min(case when {{ part.name }}_is_complete then 1 else 0 end) = 1 as {{ part.name }}_is_complete{{ ',' if not loop.last }}
        {%- endfor %}
    from priced_days
    group by {{ keys | join(', ') }}

)

select * from final
