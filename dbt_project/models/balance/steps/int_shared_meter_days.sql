-- Dates on which several readings of a meter, or the node's meter and its boards, take turns: from the second parsing
-- of raw, none of the book's steps. One row per date and meter.
with readings as (

    select * from {{ ref('int_metered_readings') }}

),

final as (

    select
        date,
        meter_scope,
        meter,
        min(start_us) as start_us,
        min(end_us) as end_us,
        max(node) as node,
        max(case when is_node_shared then 1 else 0 end) = 1 as is_node_shared,
        max(node_cap_us) as node_cap_us,
        max(device_type) as device_type,
        min(least(start_us, case when kind = 'counter' then coalesce(previous_us, first_us) end)) as from_us,
        max(greatest(end_us - 1, case when kind = 'counter' then coalesce(next_us, last_us) end)) as to_us
    from readings
    where is_shared
    group by date, meter_scope, meter

)

select * from final
