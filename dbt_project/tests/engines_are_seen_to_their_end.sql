{{ config(
    severity='warn',
    meta={
        'description':
            'Tokens that an engine moved between its last sample and its end are in no counter. Where engines '
            ~ 'restart often or live for minutes, these are a part of all of their tokens, and joules per token are'
            ~ ' too high by it.',
        'expected': 'at most 1 % of the tokens of a model between the last sample of a process and its end',
        'remedy':
            'look why its engines end; scrape them more often, or land the requests of the gateway before them, '
            ~ 'which has every request'
    }
) }}

select
    date,
    site,
    deployment,
    model,
    output_tokens,
    round(unbooked_tokens, 0) as unbooked_tokens,
    round(doubted_tokens_ratio, 3) as doubted_tokens_ratio
from {{ ref('model_daily') }}
where {{ in_run('date') }} and position(',unseen_tokens,' in ',' || doubt_reasons || ',') > 0
