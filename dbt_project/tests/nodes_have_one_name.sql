{{ config(
    severity='warn',
    meta={
        'description':
            'Boards, sockets and the wall meter of a host have one name for it. Under several names its joules '
            ~ 'are booked twice or thrice. Compared are names that differ in case, domain or a mark of the BMC, and'
            ~ ' bare addresses beside named hosts with boards.',
        'expected': 'one name for all meters of a host',
        'remedy':
            'give the host its other names in the fleet file: nodes: [{name: <node>, aliases: [<other name>]}], '
            ~ 'then re-book the date'
    }
) }}

{{ in_doubt_for('second_name') }}
