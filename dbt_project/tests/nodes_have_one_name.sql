{{ config(
    severity='warn',
    meta={
        'description':
            'Boards, sockets and the wall meter of a host have one name for it. Under several names its joules '
            ~ 'are booked twice or thrice. Compared are names that differ in case, domain or a mark of the BMC, and'
            ~ ' bare addresses beside named hosts with boards.',
        'dagster': {'ref': {'name': 'energy_ledger'}},
        'expected': 'one name for all meters of a host',
        'remedy':
            'give the host its other names in the fleet file: nodes: [{name: <node>, aliases: [<other name>]}], '
            ~ 'then re-book the date'
    }
) }}
-- depends_on: {{ ref('energy_ledger') }}, the mart whose check this is

with booked as (

    select
        date,
        site,
        node,
        regexp_extract(node, '^[0-9.]+$', 0) <> '' as is_address,
        min(meter_scope) as meter_scope,
        min(case meter_scope when 'board' then 1 when 'module' then 2 else 3 end) as coarseness
    from {{ ref('int_meter_choices') }}
    where purpose = 'booked' and meter_scope in ('board', 'module', 'node') and node is not null
    group by date, site, node

),

named as (

    select
        *,
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

    select * from named where coarseness < 3 and not is_address

),

same_names as (

    select
        named.date,
        named.node as other_name,
        named.meter_scope,
        hosts.node
    from named
    inner join hosts on {{ equal_keys('named', 'hosts', ['date', 'site', 'short_name']) }}
    where named.coarseness > hosts.coarseness and named.node <> hosts.node

),

addresses as (

    select
        named.date,
        named.node as other_name,
        named.meter_scope,
        min(hosts.node) as node
    from named
    inner join hosts on named.date = hosts.date and named.site = hosts.site
    where named.is_address and named.coarseness > hosts.coarseness
    group by named.date, named.node, named.meter_scope

)

select date, other_name, meter_scope, 'the same host as ' || node || '?' as question from same_names
union all
select date, other_name, meter_scope, 'an address; the host of boards such as those of ' || node || '?' as question from addresses
