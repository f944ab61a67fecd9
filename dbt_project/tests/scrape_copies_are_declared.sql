{{ config(
    severity='warn',
    meta={
        'description':
            'Two scrape targets whose counters are equal over at least 20 increments are one process, unless the '
            ~ 'fleet file names two. Both are booked until it states that they are one.',
        'expected': 'no two targets with equal token counters',
        'remedy':
            'if they are one process, name the engine and its addresses in the fleet file (`engines: [{engine: …, '
            ~ 'targets: [\"host:port\"]}]`), or scrape it once'
    }
) }}

{{ in_doubt_for('scraped_twice') }}
