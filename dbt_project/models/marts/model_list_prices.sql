-- What others charge for the fleet's models, by the lists that hold on each date.
with model_prices as (

    select * from {{ source('raw', 'model_prices') }}

),

model_aliases as (

    select * from {{ source('fleet', 'model_aliases') }}

),

run_dates as (

    select * from {{ ref('stg_run_dates') }}

),

lists as (

    select
        source,
        valid_from,
        coalesce(lead(valid_from) over (partition by source order by valid_from), date '9999-01-01') as until
    from (select distinct source, valid_from from model_prices) as named

),

names as (

    select distinct model, {{ name_behind_prefixes('alias') }} as short_name
    from model_aliases

),

final as (

    select
        run_dates.date,
        names.model,
        model_prices.source as price_source,
        model_prices.model as listed_model,
        model_prices.provider,
        model_prices.input_usd_per_mtok,
        model_prices.cached_input_usd_per_mtok,
        model_prices.output_usd_per_mtok,
        model_prices.as_of
    from model_prices
    inner join names on {{ name_behind_prefixes('model_prices.model') }} = names.short_name
    inner join lists on model_prices.source = lists.source and model_prices.valid_from = lists.valid_from
    inner join run_dates on run_dates.date >= lists.valid_from and run_dates.date < lists.until

)

select * from final
