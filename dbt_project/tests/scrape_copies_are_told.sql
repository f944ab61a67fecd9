-- Two scrape targets whose counters run alike over at least 20 increments are one process, or the fleet file says otherwise. A warning: nothing
-- states that they are one, so both are booked.
{{ config(severity='warn', meta={'dagster': {'ref': {'name': 'scrape_copies_daily'}}, 'expected': 'no two targets whose token counters run alike', 'remedy': 'if they are one process, name the engine and its addresses in the fleet file (`engines: [{engine: …, targets: [\"host:port\"]}]`), or scrape it once'}) }}
-- depends_on: {{ ref('scrape_copies_daily') }}, the mart whose check this is

select
    date,
    engine,
    other_engine,
    target,
    other_target,
    increments
from {{ ref('int_scrape_pairs') }}
where basis = 'suspected'
