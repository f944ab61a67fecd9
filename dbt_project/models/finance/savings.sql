-- What there is to do, and what it saves in a month: at once, at the end of a commitment, or never. The split is
-- computed with the advice (pipelines/analysis/avoidable.py), because it is of all advice taken together.
with sizes as (

    select * from {{ source('published', 'right_sizing') }} where is_preferred

),

consolidations as (

    select * from {{ source('published', 'consolidation') }} where is_preferred

),

{% set shared = [
    'as_of_date', 'kind', 'site', 'deployment', 'model', 'device_type', 'freed_gpus', 'saving_kwh_month', 'saving_energy_usd_month',
    'avoidable_now_usd_month', 'avoidable_later_usd_month', 'avoidable_from', 'not_avoidable_usd_month', 'avoidable_basis',
    'saving_now_usd_month', 'saving_kgco2e_month', 'saving_low', 'saving_high', 'saving_interval_basis', 'confidence', 'reason_code',
    'recommendation_id'
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
        saving_now_usd_month as saving_now_usd_per_month,
        saving_energy_usd_month as energy_saving_usd_per_month,
        avoidable_now_usd_month + avoidable_later_usd_month + not_avoidable_usd_month as accelerator_saving_usd_per_month,
        avoidable_now_usd_month as avoidable_now_usd_per_month,
        avoidable_later_usd_month as avoidable_later_usd_per_month,
        avoidable_from,
        not_avoidable_usd_month as not_avoidable_usd_per_month,
        avoidable_basis,
        saving_kwh_month as saving_kwh_per_month,
        saving_low as saving_kwh_per_month_low,
        saving_high as saving_kwh_per_month_high,
        saving_interval_basis,
        saving_kgco2e_month as saving_kgco2e_per_month,
        confidence,
        reason_code as reason,
        as_of_date,
        recommendation_id
    from advice

)

select * from final
