-- Booked meters under a name that seems to be another one of a host with finer meters, which would be booked twice.
-- Compared are names that differ in case, domain or a mark of the BMC, and bare addresses beside hosts with boards. One
-- row per date and meter.
with booked as (

    select distinct
        date,
        site,
        node,
        meter_scope,
        meter,
        regexp_extract(node, '^[0-9.]+$', 0) <> '' as is_address,
        case meter_scope when 'board' then 1 when 'module' then 2 else 3 end as coarseness
    from {{ ref('int_meter_choices') }}
    where purpose = 'booked' and meter_scope in ('board', 'module', 'node') and node is not null

),

named as (

    select
        *,
        min(coarseness) over (partition by date, site, node) as node_coarseness,
        case when is_address then node
            else regexp_replace(
                lower(split_part(node, '.', 1)),
                '^(bmc|ipmi|idrac|ilo|oob|mgmt)[-_]|[-_](bmc|ipmi|idrac|ilo|oob|mgmt)$',
                ''
            )
        end as short_name
    from booked

),

hosts as (

    select distinct
        date,
        site,
        node,
        short_name,
        node_coarseness
    from named
    where node_coarseness < 3 and not is_address

),

final as (

    select
        named.date,
        named.meter_scope,
        named.meter,
        case when named.is_address then 'an address; the host of boards such as those of ' else 'the same host as ' end
            || min(hosts.node) || '?' as evidence
    from named
    inner join hosts
        on named.date = hosts.date
        and named.site = hosts.site
        and named.node_coarseness > hosts.node_coarseness
        and (named.is_address or (named.short_name = hosts.short_name and named.node <> hosts.node))
    group by named.date, named.meter_scope, named.meter, named.is_address

)

select * from final
