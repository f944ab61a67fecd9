-- What there is to do, and what it saves in a month: the advice to follow, in the order of money.
with sizes as (

    select * from {{ source('published', 'right_sizing') }} where is_preferred

),

consolidations as (

    select * from {{ source('published', 'consolidation') }} where is_preferred

),

{% set shared = [
    'as_of_date', 'kind', 'site', 'deployment', 'model', 'device_type', 'freed_gpus', 'saving_kwh_month', 'saving_energy_usd_month',
    'saving_usd_month_if_released', 'saving_kgco2e_month', 'confidence', 'reason_code', 'recommendation_id'
] -%}
advice as (

    select {{ shared | join(', ') }} from sizes
    union all
    select {{ shared | join(', ') }} from consolidations

),

final as (

    select
        cast(date_trunc('month', as_of_date) as date) as month,
        {{ plain_name('site', 'site') }} as site,
        deployment,
        {{ plain_name('model', 'model') }} as model,
        kind as advice,
        device_type,
        freed_gpus as freed_accelerators,
        saving_usd_month_if_released as accelerator_saving_usd_per_month,
        saving_energy_usd_month as energy_saving_usd_per_month,
        saving_kwh_month as saving_kwh_per_month,
        saving_kgco2e_month as saving_kgco2e_per_month,
        confidence,
        reason_code as reason,
        as_of_date,
        recommendation_id
    from advice

)

select * from final
