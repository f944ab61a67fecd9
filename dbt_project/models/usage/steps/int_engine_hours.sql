-- What each engine moved and drew in each hour, under the names of its curve: joins latency, tokens, joules and the
-- activity of its boards. An engine over two types of device, sites or meter scopes has no row; one without metered
-- power is of device type `none`.
with ledger as (

    select * from {{ ref('energy_ledger') }}
    where {{ in_run('date') }} and engine not in ({{ unallocated() }}, {{ unknown() }})

),

tokens as (

    select * from {{ ref('token_ledger') }} where {{ in_run('date') }}

),

-- Metrics of a whole board only; those of a MIG instance, or of one of several pods, do not describe their board.
activity_series as (

    select * from {{ ref('int_activity_series') }} where quantity = 'activity' and mig_instance is null and not is_of_pod

),

chosen_activity as (

    select *
    from activity_series
    qualify rank() over (partition by date, meter order by rank, source, metric) = 1

),

board_activity as (

    select
        chosen_activity.meter,
        {{ int_div(epoch_us('samples.observed_at'), grid_us()) }} as interval_number,
        least({{ ratio(exact_sum('samples.value * chosen_activity.factor'), 'count(*)') }}, 1) as activity_ratio
    from {{ source('raw', 'power_samples') }} as samples
    inner join chosen_activity
        on samples.series_id = chosen_activity.series_id
        and {{ int_div(epoch_us('samples.observed_at'), day_us()) }}
        = {{ int_div(epoch_us('cast(chosen_activity.date as ' ~ timestamp_type() ~ ')'), day_us()) }}
    where samples.observed_at >= {{ run_start_at() }}
        and samples.observed_at < {{ run_end_at() }}
        and {{ is_valid_sample('samples.value') }}
        and {{ is_believed_gauge("'activity'", 'samples.value * chosen_activity.factor') }}
    group by chosen_activity.meter, {{ int_div(epoch_us('samples.observed_at'), grid_us()) }}

),

matched_ledger as (

    select
        ledger.*,
        coalesce(ledger.device_type, {{ unknown() }}) as named_device_type,
        case when ledger.is_matched then ledger.productive_joules + ledger.idle_joules end as matched_joules,
        case when ledger.is_matched then ledger.gpu_seconds end as matched_gpu_seconds,
        case when ledger.is_matched then board_activity.activity_ratio end as activity_ratio
    from ledger
    left join board_activity
        on ledger.meter_scope = 'board'
        and ledger.meter = board_activity.meter
        and {{ int_div(epoch_us('ledger.interval_start_at'), grid_us()) }} = board_activity.interval_number

),

energy_hours as (

    select
        date,
        date_trunc('hour', interval_start_at) as hour_start_at,
        engine,
        role,
        min(site) as site,
        min(deployment) as deployment,
        min(model) as model,
        min(named_device_type) as device_type,
        min(meter_scope) as meter_scope,
        min(named_device_type) = max(named_device_type) and min(meter_scope) = max(meter_scope)
        and min(site) = max(site) as is_of_one_type,
        {{ exact_sum('matched_joules') }} as matched_joules,
        {{ exact_sum('matched_gpu_seconds') }} as matched_gpu_seconds,
        {{ exact_sum(exact('activity_ratio * cast(gpu_seconds as double)')) }} as busy_gpu_seconds,
        {{ exact_sum('case when activity_ratio is not null then gpu_seconds end') }} as observed_gpu_seconds
    from matched_ledger
    group by 1, 2, 3, 4

),

token_hours as (

    select
        date,
        date_trunc('hour', interval_start_at) as hour_start_at,
        engine,
        role,
        min(site) as site,
        min(deployment) as deployment,
        min(model) as model,
        {{ exact_sum("case when token_class = 'output' then tokens end") }} as output_tokens,
        {{ exact_sum("case when token_class = 'output' and is_matched then tokens end") }} as matched_output_tokens,
        {{ exact_sum("case when token_class in ('input', 'output') and is_matched then tokens end") }} as matched_counted_tokens,
        -- A decoder's input tokens are in the row of its prefill engine.
        max(case when token_class = 'input' or role = 'decode' then 1 else 0 end) as has_input
    from tokens
    group by 1, 2, 3, 4

),

final as (

    select
        token_hours.date,
        token_hours.hour_start_at,
        token_hours.engine,
        coalesce(energy_hours.site, token_hours.site) as site,
        coalesce(energy_hours.deployment, token_hours.deployment) as deployment,
        coalesce(energy_hours.model, token_hours.model) as model,
        coalesce(energy_hours.device_type, 'none') as device_type,
        coalesce(energy_hours.meter_scope, 'none') as meter_scope,
        token_hours.role,
        token_hours.output_tokens,
        token_hours.matched_output_tokens,
        case when token_hours.has_input = 1 then token_hours.matched_counted_tokens end as matched_total_tokens,
        energy_hours.matched_gpu_seconds,
        energy_hours.matched_joules,
        energy_hours.busy_gpu_seconds,
        energy_hours.observed_gpu_seconds
    from token_hours
    left join energy_hours on {{ equal_keys('token_hours', 'energy_hours', ['hour_start_at', 'engine', 'role']) }}
    where coalesce(energy_hours.is_of_one_type, token_hours.output_tokens > 0)

)

select * from final
