{{ config(
    severity='warn',
    meta={
        'description':
            'Tokens that an engine moved between its last sample and its end are in no counter. Where engines '
            ~ 'restart often or live for minutes, these are a part of all of their tokens, and joules per token are'
            ~ ' too high by it.',
        'dagster': {'ref': {'name': 'token_reconciliation_daily'}},
        'expected': 'at most 1 % of the tokens of a model between the last sample of a process and its end',
        'remedy':
            'look why its engines end; scrape them more often, or land the requests of the gateway before them, '
            ~ 'which has every request'
    }
) }}

with tails as (

    select * from {{ ref('token_reconciliation_daily') }} where {{ in_run('date') }}

),

engine_days as (

    select * from {{ ref('int_engine_days') }}

)

select
    tails.date,
    engine_days.model,
    tails.token_class,
    count(*) as engines,
    sum(tails.restarts) as restarts,
    sum(tails.unseen_seconds) as unseen_seconds,
    sum(tails.booked_tokens) as booked_tokens,
    round(sum(tails.unseen_tokens), 0) as unseen_tokens,
    round({{ ratio('sum(tails.unseen_tokens)', 'sum(tails.booked_tokens) + sum(tails.unseen_tokens)') }}, 3) as unseen_ratio
from tails
inner join engine_days on tails.date = engine_days.date and tails.engine = engine_days.engine
group by tails.date, engine_days.model, tails.token_class
having {{ ratio('sum(tails.unseen_tokens)', 'sum(tails.booked_tokens) + sum(tails.unseen_tokens)') }} > 0.01
