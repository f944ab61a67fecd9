{{ config(
    severity='warn',
    meta={
        'description':
            'What shows the role of an engine agrees: what the cluster calls it, how many tokens it writes per '
            ~ 'request, and where the prompts of another engine came from. Until the fleet file states the role, '
            ~ 'ratios with input tokens are NULL.',
        'expected': 'signs that agree whether these engines are prefill and decode pools',
        'remedy':
            'state it in the fleet file, such as `engines: [{engine: llm/a-*, role: prefill}, {engine: llm/b-*, '
            ~ 'role: decode}]`, or `role: unified` for each'
    }
) }}

{{ in_doubt_for('conflicting_role') }}
