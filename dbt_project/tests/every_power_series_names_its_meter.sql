{{ config(
    severity='warn',
    meta={
        'description':
            'Every series of power and energy of a known metric has the name of a board or node. Without one it '
            ~ 'cannot be booked; the rest of the day is.',
        'dagster': {'ref': {'name': 'series_daily'}},
        'expected': 'a label that names a board or a node',
        'remedy':
            'add the label to dbt_project/seeds/label_catalog.csv, or name the node in the fleet file '
            ~ '(seeds/README.md)'
    }
) }}
-- depends_on: {{ ref('series_daily') }}, the mart whose check this is

select
    series.source,
    series.source_kind,
    series.metric,
    count(distinct series.series_id) as unplaced_series
from {{ ref('stg_series') }} as series
inner join {{ source('raw', 'series_chunks') }} as chunks on series.series_id = chunks.series_id
where series.stream = 'power'
    and series.quantity in ('energy', 'power')
    and series.meter is null
    and chunks.chunk_start_at >= {{ run_start_at() }}
    and chunks.chunk_start_at < {{ run_end_at() }}
    and chunks.samples > 0
group by series.source, series.source_kind, series.metric
