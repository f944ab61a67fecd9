-- Bills and credits, each with the span that it is for.
select
    site,
    kind,
    usd,
    {{ epoch_us('start_at') }} as start_us,
    {{ epoch_us('end_at') }} as end_us
from {{ source('raw', 'bills') }}
