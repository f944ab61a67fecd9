-- Which published model a served name is, and its sizes: used by model_footprints and int_token_weights.

{# CTEs up to `described`, one row per model of `served_models` (column model) whose name, or an alias of it, is a published
   model's. The query imports model_aliases, published and weight_precisions. #}
{% macro described_models_ctes(served_models) %}
{# Words behind a model's name that change neither its layers nor its parameters. #}
{% set endings = [
    'instruct', 'it', 'chat', 'base', 'hf', 'thinking', 'reasoning', 'exp', 'terminus', 'speciale', 'preview', 'qat',
    '[0-9]{4}', 'v[0-9][.][0-9]', 'bf16', 'fp16', 'fp8', 'int8', 'w8a8', 'w8a16', 'int4', 'w4a16', 'awq', 'gptq',
    'mxfp4', 'nvfp4', 'fp4', 'dynamic', 'block', 'quantized', 'autoround', 'marlin', 'g128'
] %}

names as (

    select
        model,
        regexp_replace({{ name_behind_prefixes('model') }}, '^meta-', '') as name
    from {{ served_models }}
    union
    select
        model,
        regexp_replace({{ name_behind_prefixes('alias') }}, '^meta-', '') as name
    from model_aliases

),

-- A name is a published model's if what follows the model's own name are such words.
candidates as (

    select
        names.model,
        names.name,
        published.model as published_model,
        substring(names.name, length(published.model) + 1) as suffix
    from names
    inner join (select distinct model from published) as published
        on substring(names.name, 1, length(published.model)) = lower(published.model)
    where regexp_replace(
        substring(names.name, length(published.model) + 1),
        '^([-._]({{ endings | join('|') }}))*$',
        ''
    ) = ''

),

named_precisions as (

    select
        candidates.*,
        weight_precisions.precision as named_precision,
        weight_precisions.weight_bytes_per_parameter as named_bytes
    from candidates
    left join weight_precisions on instr(candidates.suffix, weight_precisions.name_part) > 0
    qualify row_number() over (
        partition by candidates.model, candidates.name, candidates.published_model order by weight_precisions.rank nulls last
    ) = 1

),

-- Of a model's several names, the one that contains a precision is used.
chosen as (

    select *
    from named_precisions
    qualify row_number() over (
        partition by model
        order by case when named_precision is null then 1 else 0 end, length(published_model) desc, length(name) desc, name
    ) = 1

),

described as (

    select
        chosen.model,
        chosen.published_model,
        coalesce(chosen.named_precision, facts.precision) as precision,
        case when chosen.named_precision is null then 'published' else 'served_name' end as precision_basis,
        -- The model as its owner publishes it in that precision, else its parameters at that precision's usual size.
        case when chosen.named_precision is null or chosen.named_precision = facts.precision then facts.weight_bytes_per_parameter
            else chosen.named_bytes
        end as weight_bytes_per_parameter,
        facts.parameters,
        facts.active_parameters,
        facts.layers,
        facts.attention_heads,
        -- A latent cache has no heads to be cut by.
        case when facts.kv_latent_elements is null then facts.kv_heads else 1 end as kv_heads,
        coalesce(cast(facts.kv_latent_elements as double), 2.0 * facts.kv_heads * facts.head_dim) * facts.kv_layers
            * facts.kv_bytes_per_element as kv_bytes_per_token,
        facts.source
    from chosen
    inner join published as facts on chosen.published_model = facts.model
    qualify row_number() over (
        partition by chosen.model
        order by
            case when facts.precision = chosen.named_precision then 0 else 1 end,
            case when facts.is_default then 0 else 1 end,
            facts.precision
    ) = 1

)
{% endmacro %}
