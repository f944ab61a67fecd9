-- Requests at once of the engines that served a model, while any ran: one row per date and model where it is counted. By
-- it a request, and a tenant's share, has what its input weighs.
with claims as (

    select distinct
        date,
        engine,
        model
    from {{ ref('int_claims') }}

),

token_weights as (

    select * from {{ ref('int_token_weights') }} where concurrency is not null

),

final as (

    select
        claims.date,
        claims.model,
        {{ ratio(exact_sum(exact('token_weights.concurrency')), 'count(*)') }} as concurrency
    from claims
    inner join token_weights on {{ equal_keys('claims', 'token_weights', ['date', 'engine']) }}
    where claims.model is not null
    group by claims.date, claims.model

)

select * from final
