-- The lists of prices that hold on each date of the run, by the short name of what they price.
with model_prices as (

    select * from {{ source('raw', 'model_prices') }}

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

final as (

    select
        run_dates.date,
        {{ name_behind_prefixes('model_prices.model') }} as short_name,
        model_prices.source as price_source,
        model_prices.model as listed_model,
        model_prices.provider,
        model_prices.input_usd_per_mtok,
        model_prices.cached_input_usd_per_mtok,
        model_prices.output_usd_per_mtok,
        model_prices.as_of
    from model_prices
    inner join lists on model_prices.source = lists.source and model_prices.valid_from = lists.valid_from
    inner join run_dates on run_dates.date >= lists.valid_from and run_dates.date < lists.until

)

select * from final
