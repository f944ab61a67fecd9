{{ config(
    severity='warn',
    meta={
        'description':
            'Every rank, profile, bound and time can be read. One that cannot is booked as unknown, read by its '
            ~ 'digits or unit, or refused: the book goes on. Samples that are no numbers at all are counted with '
            ~ 'the landing (series_are_healthy).',
        'dagster': {'ref': {'name': 'unreadable_values'}},
        'expected': 'numbers, times and profiles as their exporters document them',
        'remedy':
            'correct the exporter, or relabel at the scraper; marts.unreadable_values lists the series. A real '
            ~ 'engine above the limit of tokens a second: raise limits.tokens_per_second in the fleet file'
    }
) }}

select
    date,
    metric,
    coalesce(label, 'sample') as label,
    min(value) as value,
    expected,
    outcome,
    count(*) as series,
    min(series_id) as series_id,
    sum(samples) as samples
from {{ ref('unreadable_values') }}
where {{ in_run('date') }} and value is not null
group by date, metric, label, case when label is not null then value end, expected, outcome
