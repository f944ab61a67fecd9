-- The capacity and its cost of capital that a mean price was charged for, by what paid for it: each model takes its share
-- of every source of its site, type and hour, each at its own price. One row per UTC date, billing month, model_hourly's
-- keys, is_held, source, commitment and price. What has one price is in int_priced_cost_days.
-- depends_on: {{ ref('held_back_dates') }}
{% set keys = ['date', 'billing_month'] + model_keys() + ['is_held'] %}
{% set of_source = ['capacity_source', 'commitment'] %}
{% set hour = ['site', 'device_type', 'hour_start_at', 'local_date'] %}
with drivers as (

    select * from {{ ref('cost_drivers_hourly') }}
    where {{ in_run_months('billing_month') }}
        and (rate_usd_per_gpu_hour is null or deployment = {{ unused_commitment() }})

),

sources as (

    select * from {{ ref('capacity_sources_hourly') }} where {{ in_run_months('billing_month') }}

),

-- What is not there is paid by commitments alone.
weighed as (

    select
        {{ columns_of('drivers', keys + ['hour_start_at', 'local_date']) }},
        {{ columns_of('drivers', ['claimed_gpu_seconds', 'capacity_cost_usd', 'cost_of_capital_usd']) }},
        drivers.rate_usd_per_gpu_hour as mean_usd_per_gpu_hour,
        sources.capacity_source,
        sources.commitment,
        sources.usd_per_gpu_hour,
        sources.capital_usd_per_gpu_hour,
        case
            when drivers.deployment = {{ unused_commitment() }} then sources.gpu_seconds - sources.used_gpu_seconds
            else sources.used_gpu_seconds
        end as source_gpu_seconds
    from drivers
    left join sources
        on {{ equal_keys('drivers', 'sources', hour) }}
        and (drivers.deployment <> {{ unused_commitment() }} or sources.capacity_source = 'commitment')

),

summed as (

    select
        *,
        sum(source_gpu_seconds) over up_to_source as gpu_seconds_to,
        sum(source_gpu_seconds) over of_row as all_gpu_seconds,
        sum({{ money('cast(source_gpu_seconds as double) / 3600 * usd_per_gpu_hour') }}) over up_to_source as usd_to,
        sum({{ money('cast(source_gpu_seconds as double) / 3600 * usd_per_gpu_hour') }}) over of_row as all_usd,
        row_number() over up_to_source as number_of_source,
        count(*) over of_row as number_of_sources
    from weighed
    window
        of_row as (partition by {{ (keys + ['hour_start_at', 'local_date']) | join(', ') }}),
        up_to_source as (
            partition by {{ (keys + ['hour_start_at', 'local_date']) | join(', ') }}
            order by capacity_source, commitment
            rows unbounded preceding
        )

),

-- The last source takes what is left, so that the sources add up to the row.
shared as (

    select
        *,
        case
            when number_of_source = number_of_sources then claimed_gpu_seconds
            else coalesce({{ shared_up_to('claimed_gpu_seconds', 'gpu_seconds_to', 'all_gpu_seconds', '_seconds') }}, 0)
        end as claimed_to,
        case
            when number_of_source = number_of_sources then capacity_cost_usd
            else coalesce({{ shared_up_to('capacity_cost_usd', 'usd_to', 'all_usd') }}, capacity_cost_usd * 0)
        end as cost_to_usd
    from summed

),

-- Where the hours were booked before there were sources, the price is the mean.
pieces as (

    select
        *,
        coalesce(usd_per_gpu_hour, mean_usd_per_gpu_hour) as own_price_usd_per_gpu_hour,
        case
            when deployment = {{ unused_commitment() }} then source_gpu_seconds
            else claimed_to - coalesce(lag(claimed_to) over of_row, 0)
        end as own_gpu_seconds,
        cost_to_usd - coalesce(lag(cost_to_usd) over of_row, cost_to_usd * 0) as own_cost_usd,
        -- Only what costs the rate has a cost of capital.
        case when coalesce(capacity_source, 'rate') = 'rate' then cost_of_capital_usd end as own_capital_cost_usd
    from shared
    window of_row as (
        partition by {{ (keys + ['hour_start_at', 'local_date']) | join(', ') }}
        order by capacity_source, commitment
    )

),

final as (

    select
        {{ keys | join(',\n        ') }},
        {{ of_source | join(',\n        ') }},
        {{ to_a_billionth('own_price_usd_per_gpu_hour') }} as usd_per_gpu_hour,
        {{ to_a_billionth('capital_usd_per_gpu_hour') }} as capital_usd_per_gpu_hour,
        {{ exact_sum('own_gpu_seconds') }} as gpu_seconds,
        {{ money_sum('own_cost_usd') }} as capacity_usd,
        {{ money_sum('nullif(own_capital_cost_usd, 0)') }} as cost_of_capital_usd
    from pieces
    where coalesce(source_gpu_seconds, 1) > 0 or own_cost_usd <> 0 or own_capital_cost_usd <> 0
    group by
        {{ (keys + of_source) | join(', ') }},
        {{ to_a_billionth('own_price_usd_per_gpu_hour') }},
        {{ to_a_billionth('capital_usd_per_gpu_hour') }}

)

select * from final
