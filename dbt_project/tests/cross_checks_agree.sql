{{ config(
    severity='warn',
    meta={
        'description':
            'Two meters of one device report the same energy within 5 %. Otherwise one of them is wrong; the book'
            ~ ' uses the better one.',
        'expected': 'at most 5 % between the two meters',
        'remedy':
            'compare both readings of this meter with what the board reports itself (nvidia-smi); a wrong one can be '
            ~ 'left out by the source\'s matchers'
    }
) }}

{{ in_doubt_for('meters_disagree') }}
