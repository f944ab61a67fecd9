-- Software Carbon Intensity (ISO/IEC 21031) of each model and date: (E × I + M) / R, of all that is provisioned for it.
with model_days as (

    select * from {{ ref('model_daily') }} where {{ in_run('date') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

provisioned as (

    select
        model_days.*,
        device_types.embodied_life_years,
        {{ exact(embodied_gco2e('model_days.claimed_gpu_seconds')) }} as scope3_embodied_gco2e
    from model_days
    left join device_types on model_days.device_type = device_types.device_type

),

based as (

    select
        *,
        cast(location_gco2e + scope3_embodied_gco2e as {{ exact_type() }}) as sci_gco2e,
        case
            when energy_joules is null then 'no_energy'
            when carbon_unknown_joules > 0 or location_gco2e is null then 'no_grid_factor'
            when scope3_embodied_gco2e is null then 'no_embodied_figure'
            when coalesce(output_tokens, 0) = 0 then 'no_tokens'
            else 'complete'
        end as sci_basis
    from provisioned

),

final as (

    select
        date,
        {{ model_keys() | join(',\n        ') }},
        facility_energy_kwh,
        carbon_unknown_joules,
        location_gco2e as scope2_location_gco2e,
        claimed_gpu_seconds,
        embodied_life_years,
        scope3_embodied_gco2e,
        case when sci_basis in ('complete', 'no_tokens') then sci_gco2e end as sci_gco2e,
        output_tokens,
        total_tokens,
        {{ ratio("case when sci_basis = 'complete' then sci_gco2e end", 'output_tokens') }} * 1e6 as sci_gco2e_per_output_mtok,
        {{ ratio("case when sci_basis = 'complete' then sci_gco2e end", 'total_tokens') }} * 1e6 as sci_gco2e_per_total_mtok,
        sci_basis,
        coverage_ratio,
        cast('{{ var("method_version") }}' as {{ dbt.type_string() }}) as method_version
    from based

)

select * from final
