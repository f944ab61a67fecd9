-- Whether every part of every board of an engine has a price in an interval, and whether its boards are in several rows
-- of model_hourly. One row per interval and engine with tokens or matched energy.
with costed_energy as (

    select * from {{ ref('int_costed_energy') }}

),

tokens as (

    select * from {{ ref('token_ledger') }} where {{ in_run('date') }}

),

token_engines as (

    select distinct engine from tokens

),

final as (

    select
        costed_energy.interval_start_at,
        costed_energy.engine,
        min(coalesce(device_type, {{ unknown() }})) <> max(coalesce(device_type, {{ unknown() }}))
        or min(meter_scope) <> max(meter_scope)
        or min(site) <> max(site) as is_of_several_rows,
        {% for flag in ['is_priced', 'is_tariffed', 'is_carbon_known'] -%}
        min(case when {{ flag }} then 1 else 0 end) = 1 as {{ flag }},
        max(case when {{ flag }} then 1 else 0 end) = 1 as {{ flag }}_in_part{{ ',' if not loop.last }}
        {% endfor %}
    from costed_energy
    left join token_engines on costed_energy.engine = token_engines.engine
    where token_engines.engine is not null or costed_energy.is_matched
    group by costed_energy.interval_start_at, costed_energy.engine

)

select * from final
