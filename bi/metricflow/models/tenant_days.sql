-- What tenants pay. A row counts in a ratio where its tokens are known and each part of its cost has a price.
with rows_of_tenants as (
    select
        *,
        output_tokens is not null and is_cost_complete as is_counted
    from {{ source('marts', 'tenant_daily') }}
)

select
    date,
    site,
    deployment,
    namespace,
    team,
    model,
    device_type,
    meter_scope,
    role,
    request_team,
    tenant,
    fully_loaded_cost_usd,
    output_tokens,
    case when is_counted then fully_loaded_cost_usd end as counted_cost_usd,
    case when is_counted then output_tokens end as counted_output_tokens
from rows_of_tenants
