{{ config(
    severity='warn',
    meta={
        'description':
            'What a series measured is booked under the meter or engine that its labels name. These names come '
            ~ 'from a parsing of the labels that is independent of the book\'s: two boards taken for one, or a '
            ~ 'counter that is never read, show here.',
        'expected':
            'every series of power, energy or tokens behind a booked row of its meter or engine (more than 5 % '
            ~ 'above it is listed)',
        'remedy':
            'see outcome and reason in marts.series_daily: a series whose labels name no meter or engine needs a '
            ~ 'row in dbt_project/seeds/label_catalog.csv or an entry in the fleet file; boards without a UUID or '
            ~ 'serial number need the label of their node'
    }
) }}

{{ in_doubt_for('unaccounted_joules') }}
union all
{{ in_doubt_for('unaccounted_tokens') }}
