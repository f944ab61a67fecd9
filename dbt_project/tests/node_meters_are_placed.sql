{{ config(
    severity='warn',
    meta={
        'description':
            'Every wall meter is of a known host. One that no host is known for, beside boards without one, is in'
            ~ ' no total of the fleet until a line of the fleet file places it.',
        'expected': 'every wall meter is of a node that a board, an engine or the fleet file names',
        'remedy':
            'write the line that `remedy` of marts.doubts has into the fleet file, with the node that the meter '
            ~ 'measures, then re-book the date; a host without boards is named alone, nodes: [{name: <meter>}]'
    }
) }}

{{ in_doubt_for('unplaced_meter') }}
