-- The fleet per day and site: what all models, idle and unknown energy add up to.
with model_days as (

    select * from {{ ref('model_daily') }} where {{ in_run('date') }}

),

summed as (

    select
        date,
        site,
        meter_scope,
        count(distinct case when substr(model, 1, 2) <> '__' then model end) as models,
        {{ summed_facts() }}
    from model_days
    group by date, site, meter_scope

),

final as (

    select
        date,
        site,
        meter_scope,
        cast(models as integer) as models,
        {{ (energy_facts() + token_facts()) | join(', ') }},
        {{ model_ratios(is_of_rows=false) }},
        false as is_opening_balance
    from summed

)

select * from final
