{{ config(
    severity='warn',
    meta={
        'description':
            'Of no type at a site more accelerators are committed all day long than there are, used or not, metered or not.',
        'expected': 'at most as many committed GPUs as the book has of the type at the site',
        'remedy':
            'correct gpus or the dates under commitments of the fleet file; if the GPUs are there, add their meters or '
            ~ 'nodes[].gpus. Until then they are paid for and cannot be used (`__unused_commitment__`)'
    }
) }}

{{ in_doubt_for('missing_gpus') }}
