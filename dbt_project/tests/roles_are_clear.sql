-- What shows an engine's role agrees: what the cluster calls it, how many tokens it writes per request, and where
-- another engine's prompts came from. A warning: until the fleet file states it, ratios with input tokens are NULL.
{{ config(
    severity='warn',
    meta={
        'expected': 'signs that agree whether these engines are prefill and decode pools',
        'remedy':
            'state it in the fleet file, such as `engines: [{engine: llm/a-*, role: prefill}, {engine: llm/b-*, '
            ~ 'role: decode}]`, or `role: unified` for each'
    }
) }}

select
    date,
    engine,
    model,
    role_basis
from {{ ref('token_ledger') }}
where {{ in_run('date') }} and role_basis = 'conflicting'
group by date, engine, model, role_basis
