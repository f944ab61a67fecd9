-- Boards whose stated limit raw contradicts on a date, found without the book's steps: int_metered_readings accepts up
-- to twice as much of them. One row per date and board.
{# As a constant the least limit is looked at while samples are read: see int_impossible_samples. #}
{{ config(pre_hook="set variable least_doubtful = (
    select min({{ possible_power_factor() }} * device_types.power_limit_watts / series.factor)
    from {{ ref('int_label_identities') }} as series
    inner join {{ ref('stg_device_types') }} as device_types on series.meter_device_type = device_types.device_type
    where series.stream = 'power' and series.quantity = 'power' and series.meter_scope = 'board'
)" if target.type == 'duckdb' else []) }}

with boards as (

    select
        series_id,
        meter,
        factor,
        kind,
        {{ possible_power_factor() }} * max(device_types.power_limit_watts) over (partition by meter) as limit_watts
    from {{ ref('int_label_identities') }} as series
    left join {{ ref('stg_device_types') }} as device_types on series.meter_device_type = device_types.device_type
    where series.stream = 'power' and series.quantity in ('energy', 'power') and series.meter_scope = 'board' and series.meter is not null

),

above as (

    select
        cast(samples.observed_at as date) as date,
        boards.meter,
        count(*) as samples
    from {{ source('raw', 'power_samples') }} as samples
    inner join boards on samples.series_id = boards.series_id
    where boards.kind = 'gauge'
        and samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
        and samples.value > {{ "coalesce(getvariable('least_doubtful'), 0)" if target.type == 'duckdb' else '0' }}
        and samples.value * boards.factor > boards.limit_watts
        and samples.value * boards.factor <= boards.limit_watts * {{ doubted_limit_factor() }}
    group by 1, 2

),

board_days as (

    select
        cast(chunks.chunk_start_at as date) as date,
        boards.meter,
        max(boards.limit_watts) as limit_watts,
        sum(case when boards.kind = 'gauge' then chunks.samples else 0 end) as gauge_samples,
        {{ exact_sum(
            "case when boards.kind = 'counter' and chunks.falls = 0 then (chunks.last_value - chunks.first_value) * boards.factor end"
        ) }} as joules,
        sum(
            case
                when boards.kind = 'counter' and chunks.falls = 0
                    then {{ epoch_us('chunks.last_at') }} - {{ epoch_us('chunks.first_at') }}
            end
        ) / 1e6 as seconds
    from {{ source('raw', 'series_chunks') }} as chunks
    inner join boards on chunks.series_id = boards.series_id
    where chunks.samples > 0
        and chunks.chunk_start_at >= {{ run_start_at() }}
        and chunks.chunk_start_at < {{ run_end_at() }}
    group by 1, 2

),

final as (

    select
        board_days.date,
        board_days.meter
    from board_days
    left join above on board_days.date = above.date and board_days.meter = above.meter
    where case
        when board_days.gauge_samples > 0 then above.samples >= 0.9 * board_days.gauge_samples
        else cast(board_days.joules as double) > board_days.limit_watts * board_days.seconds
            and cast(board_days.joules as double) <= board_days.limit_watts * board_days.seconds * {{ doubted_limit_factor() }}
    end

)

select * from final
