{{ config(
    severity='warn',
    meta={
        'description':
            'Every wall meter is of a known host. One that no host is known for, beside boards without one, is in'
            ~ ' no total of the fleet until a line of the fleet file places it.',
        'dagster': {'ref': {'name': 'unplaced_meters'}},
        'expected': 'every wall meter is of a node that a board, an engine or the fleet file names',
        'remedy':
            'write fleet_file_line into the fleet file, with the node that the meter measures, then re-book the '
            ~ 'date; a host without boards is named alone, nodes: [{name: <meter>}]'
    }
) }}

select
    date,
    site,
    meter,
    round(mean_watts, 1) as mean_watts,
    unplaced_meters,
    nodes_without_wall_meter,
    proposal_basis,
    watts_correlation,
    fleet_file_line
from {{ ref('unplaced_meters') }}
where {{ in_run('date') }}
order by date, site, meter
