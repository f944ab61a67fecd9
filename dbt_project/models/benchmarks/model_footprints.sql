-- What a model needs of memory: its weights and what each token of context adds, from the fleet file, else from the
-- published model that it is served as.
{{ config(replaces='all') }}
with stated as (

    select * from {{ source('fleet', 'models') }}

),

model_aliases as (

    select * from {{ source('fleet', 'model_aliases') }}

),

published as (

    select * from {{ ref('models') }}

),

weight_precisions as (

    select * from {{ ref('weight_precisions') }}

),

served_models as (

    select model from stated
    union
    select model from {{ ref('model_daily') }} where model not in ({{ unallocated() }}, {{ unknown() }})
    union
    -- Not from benchmark_efficiency: were it held back, all that reads a footprint would be, too.
    select model from {{ ref('int_benchmark_results') }} where model is not null and watts > 0 and output_tokens_per_second > 0

),

{{ described_models_ctes('served_models') }},

final as (

    select
        served_models.model,
        described.published_model,
        described.precision,
        described.precision_basis,
        described.parameters,
        described.active_parameters,
        described.layers,
        cast(described.attention_heads as integer) as max_tensor_parallel,
        described.kv_heads,
        coalesce(stated.weights_gib, described.parameters * described.weight_bytes_per_parameter / 1073741824.0) as weights_gib,
        coalesce(stated.weights_gib, described.parameters * described.weight_bytes_per_parameter / 1073741824.0)
        * {{ ratio('described.active_parameters', 'described.parameters') }} as active_weights_gib,
        case
            when stated.weights_gib is not null then 'fleet_file'
            when described.model is not null then 'seed'
            else 'unknown'
        end as weights_basis,
        coalesce(stated.kv_bytes_per_token, described.kv_bytes_per_token) as kv_bytes_per_token,
        case
            when stated.kv_bytes_per_token is not null then 'fleet_file' when described.model is not null then 'seed' else 'unknown'
        end as kv_basis,
        stated.context_tokens,
        described.source
    from served_models
    left join stated on served_models.model = stated.model
    left join described on served_models.model = described.model

)

select * from final
