-- The prefill and the decode pool of a deployment side by side, hour by hour: which of the two is full.
{{ config(replaces='all') }}
{% set keys = ['as_of_date', 'date', 'hour_start_at', 'site', 'deployment', 'model', 'meter_scope'] %}

with intervals as (

    select * from {{ ref('model_intervals') }} where role in ('prefill', 'decode')

),

lookback as (

    select * from {{ ref('int_lookback') }}

),

capacities as (

    select * from {{ ref('slo_capacity') }}

),

-- A pool may have several types of device, each with a capacity of its own.
device_hours as (

    select
        lookback.as_of_date,
        intervals.date,
        date_trunc('hour', intervals.interval_start_at) as hour_start_at,
        {{ columns_of('intervals', curve_keys()) }},
        {{ exact_sum('intervals.matched_gpu_seconds') }} as gpu_seconds,
        {{ exact_sum('intervals.matched_productive_joules') }} as productive_joules,
        case when count({{ curve_tokens() }}) = count(*) then {{ exact_sum(curve_tokens()) }} end as tokens,
        cast(count(*) as bigint) * {{ var('grid_seconds') }} as seen_seconds
    from intervals
    cross join lookback
    where {{ in_lookback('intervals.date', 'lookback.as_of_date') }}
    group by
        lookback.as_of_date,
        intervals.date,
        date_trunc('hour', intervals.interval_start_at),
        {{ columns_of('intervals', curve_keys()) }}

),

measured as (

    select
        device_hours.*,
        capacities.capacity_basis,
        case when capacities.is_lower_bound then 1 else 0 end as is_lower_bound,
        {{ exact('cast(device_hours.gpu_seconds as double) * capacities.capacity_tokens_per_second_per_gpu') }} as capacity_tokens
    from device_hours
    left join capacities on {{ equal_keys('device_hours', 'capacities', curve_keys()) }}

),

pools as (

    select
        {{ keys | join(', ') }}
        {%- for pool in ['prefill', 'decode'] %},
        cast(
            {{ exact_sum(
                "case when role = '" ~ pool ~ "' then " ~ exact(ratio('gpu_seconds', 'seen_seconds')) ~ " end"
            ) }} as double
        ) as {{ pool }}_gpus,
        {%- for fact in ['gpu_seconds', 'productive_joules'] %}
        {{ exact_sum("case when role = '" ~ pool ~ "' then " ~ fact ~ " end") }} as {{ pool }}_{{ fact }},
        {%- endfor %}
        {%- for fact in ['tokens', 'capacity_tokens'] %}
        case when count(case when role = '{{ pool }}' then {{ fact }} end) = count(case when role = '{{ pool }}' then 1 end)
            then {{ exact_sum("case when role = '" ~ pool ~ "' then " ~ fact ~ " end") }} end as {{ pool }}_{{ fact }},
        {%- endfor %}
        case when min(case when role = '{{ pool }}' then capacity_basis end) = max(case when role = '{{ pool }}' then capacity_basis end)
            then min(case when role = '{{ pool }}' then capacity_basis end) end as {{ pool }}_capacity_basis,
        max(case when role = '{{ pool }}' then is_lower_bound end) as {{ pool }}_is_lower_bound
        {%- endfor %}
    from measured
    group by {{ keys | join(', ') }}

),

rated as (

    select
        *
        {%- for pool in ['prefill', 'decode'] %},
        {{ ratio(pool ~ '_tokens', pool ~ '_gpu_seconds') }} as {{ pool }}_tokens_per_second_per_gpu,
        {{ ratio(pool ~ '_productive_joules', pool ~ '_gpu_seconds') }} as {{ pool }}_productive_watts_per_gpu,
        {{ ratio(pool ~ '_tokens', pool ~ '_capacity_tokens') }} as {{ pool }}_capacity_ratio
        {%- endfor %}
    from pools

),

-- The fuller pool runs out first. What it runs out of is known only where more load was seen to break the SLO: the
-- highest load that was ever seen is reached by every pool at some hour, and proves nothing.
compared as (

    select
        *,
        case
            when coalesce(prefill_capacity_ratio, 0) < {{ full_pool_ratio() }}
                and coalesce(decode_capacity_ratio, 0) < {{ full_pool_ratio() }}
                then null
            when coalesce(prefill_capacity_ratio, 0) > coalesce(decode_capacity_ratio, 0) then 'prefill'
            else 'decode'
        end as fuller_pool
    from rated

),

reasoned as (

    select
        *,
        case
            when fuller_pool is null and prefill_capacity_ratio is not null and decode_capacity_ratio is not null then 'room_in_both'
            when fuller_pool is null then 'load_or_capacity_not_known'
            when case fuller_pool when 'prefill' then prefill_is_lower_bound else decode_is_lower_bound end = 1 then 'capacity_not_found'
            else 'pool_is_full'
        end as reason_code
    from compared

),

final as (

    select
        {{ keys | join(', ') }},
        {% for pool in ['prefill', 'decode'] -%}
        {{ pool }}_gpus,
        {{ pool }}_tokens_per_second_per_gpu,
        {{ pool }}_productive_watts_per_gpu,
        {{ pool }}_capacity_ratio,
        {{ pool }}_capacity_basis,
        {% endfor -%}
        case when reason_code = 'pool_is_full' then fuller_pool end as pool_to_scale,
        reason_code
    from reasoned

)

select * from final
