-- What others charge for the fleet's models, by the lists that hold on each date.
with prices as (

    select * from {{ ref('stg_model_prices') }}

),

names as (

    select distinct model, {{ name_behind_prefixes('alias') }} as short_name
    from {{ source('fleet', 'model_aliases') }}

),

final as (

    select
        prices.date,
        names.model,
        prices.price_source,
        prices.listed_model,
        prices.provider,
        prices.input_usd_per_mtok,
        prices.cached_input_usd_per_mtok,
        prices.output_usd_per_mtok,
        prices.as_of
    from prices
    inner join names on prices.short_name = names.short_name

)

select * from final
