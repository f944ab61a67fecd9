-- What a phase of a load test gave and what it cost: the requests of a run window beside the window's exact energy and
-- its price.
{{ config(replaces='windows') }}
{% set latencies = [
    'ttft_p50_seconds', 'ttft_p90_seconds', 'ttft_p99_seconds', 'end_to_end_p50_seconds', 'end_to_end_p90_seconds', 'end_to_end_p99_seconds'
] %}

with windows as (

    select
        *,
        {{ epoch_us('start_at') }} as start_us,
        {{ epoch_us('end_at') }} as end_us
    from {{ ref('run_windows') }}
    where {{ overlaps_run('start_at', 'end_at') }}

),

requests as (

    select
        source,
        window_id as stated_window_id,
        started_at,
        model,
        engine,
        is_ok,
        input_tokens,
        cached_input_tokens,
        output_tokens,
        end_to_end_seconds,
        stated_concurrency,
        case when is_ok then ttft_seconds end as ok_ttft_seconds,
        case when is_ok then end_to_end_seconds end as ok_end_to_end_seconds,
        -- What one user sees once the first token is there: 1 / time per output token.
        case
            when is_ok and output_tokens > 1 and end_to_end_seconds > ttft_seconds
                then (output_tokens - 1) / (end_to_end_seconds - ttft_seconds)
        end as user_output_tokens_per_second,
        case
            when is_ok and output_tokens > 1 and end_to_end_seconds > ttft_seconds
                then (end_to_end_seconds - ttft_seconds) / (output_tokens - 1)
        end as seconds_per_output_token,
        case when is_ok and input_tokens is null then 1 else 0 end as is_input_unknown,
        case when is_ok and output_tokens is null then 1 else 0 end as is_output_unknown
    from {{ ref('stg_requests') }}

),

ledger as (

    select
        interval_start_at,
        {{ epoch_us('interval_start_at') }} as start_us,
        {{ epoch_us('interval_start_at') }} + cast(interval_seconds as bigint) * 1000000 as end_us,
        meter_scope,
        meter,
        node,
        engine,
        model,
        device_type,
        gpu_seconds,
        energy_joules,
        {{ row_energy_cost_usd() }} as energy_cost_usd,
        {{ row_charged_energy_cost_usd() }} as charged_energy_cost_usd,
        {{ row_capacity_cost_usd() }} as capacity_cost_usd
    from {{ ref('int_costed_energy') }}
    -- Most days have no window, and pay nothing for the question.
    where interval_start_at > (select min(start_at) - interval {{ var('grid_seconds') }} second from windows)
        and interval_start_at < (select max(end_at) from windows)

),

-- A load generator names the window of its requests; requests of a log belong to the windows of an engine or a model by
-- time.
window_requests as (

    select
        windows.window_id,
        'stated' as requests_basis,
        requests.*
    from windows
    inner join requests on windows.window_id = requests.stated_window_id
    union all
    select
        windows.window_id,
        'time' as requests_basis,
        requests.*
    from windows
    inner join requests
        on requests.started_at >= windows.start_at
        and requests.started_at < windows.end_at
        and (windows.engine is null or requests.engine = windows.engine)
        and (windows.model is null or requests.model = windows.model)
    where requests.stated_window_id is null and (windows.engine is not null or windows.model is not null)

),

source_phases as (

    select
        window_id,
        requests_basis,
        source as requests_source,
        count(*) as requests,
        sum(case when is_ok then 0 when not is_ok then 1 end) as failed_requests,
        case when max(is_input_unknown) = 0 then {{ exact_sum('input_tokens') }} end as input_tokens,
        {{ exact_sum('cached_input_tokens') }} as cached_input_tokens,
        case when max(is_output_unknown) = 0 then {{ exact_sum('output_tokens') }} end as output_tokens,
        {{ exact_sum('end_to_end_seconds') }} as request_seconds,
        max(stated_concurrency) as stated_concurrency,
        {%- for quantity in ['ttft', 'end_to_end'] %}
        {%- for percent in [50, 90, 99] %}
        percentile_cont({{ percent / 100 }}) within group (order by ok_{{ quantity }}_seconds) as {{ quantity }}_p{{ percent }}_seconds,
        {%- endfor %}
        {%- endfor %}
        percentile_cont(0.5) within group (order by user_output_tokens_per_second) as output_tokens_per_second_per_user,
        percentile_cont(0.99) within group (order by seconds_per_output_token) as tpot_p99_seconds
    from window_requests
    group by window_id, requests_basis, source

),

-- A gateway and an engine may both have logged the same requests: one source answers for a window.
phases as (

    select *
    from source_phases
    qualify row_number() over (partition by window_id order by requests_basis, requests desc, requests_source) = 1

),

window_meters as (

    select distinct
        windows.window_id,
        windows.start_us,
        windows.end_us,
        ledger.meter_scope,
        ledger.meter
    from windows
    inner join ledger
        on ledger.start_us < windows.end_us
        and ledger.end_us > windows.start_us
        and {{ is_of_window('ledger', 'windows') }}

),

-- The ledger's own prices of these meters in these intervals, by the part of each interval that is in the window.
window_intervals as (

    select
        window_meters.window_id,
        ledger.interval_start_at,
        ledger.device_type,
        ledger.gpu_seconds,
        ledger.energy_joules,
        ledger.energy_cost_usd,
        ledger.capacity_cost_usd,
        ledger.charged_energy_cost_usd,
        (least(window_meters.end_us, ledger.end_us) - greatest(window_meters.start_us, ledger.start_us))
        / cast(ledger.end_us - ledger.start_us as double) as share
    from window_meters
    inner join ledger
        on window_meters.meter_scope = ledger.meter_scope
        and window_meters.meter = ledger.meter
        and ledger.start_us < window_meters.end_us
        and ledger.end_us > window_meters.start_us

),

prices as (

    select
        window_id,
        {{ exact_sum(exact('energy_joules * share')) }} as priced_joules,
        case when min(device_type) = max(device_type) then min(device_type) end as device_type,
        {{ exact_sum(exact('gpu_seconds * share')) }} as gpu_seconds,
        {%- for cost in ['energy_cost_usd', 'charged_energy_cost_usd', 'capacity_cost_usd'] %}
        case when count({{ cost }}) = count(*) then {{ money_sum(money(cost ~ ' * share')) }} end as {{ cost }}{{ ',' if not loop.last }}
        {%- endfor %}
    from window_intervals
    group by window_id

),

-- The run may hold a part of the window only: capacity is priced by the second.
priced_seconds as (

    select
        window_id,
        {{ exact_sum('interval_share_seconds') }} as priced_seconds
    from (
        select window_id, interval_start_at, max(share) * {{ var('grid_seconds') }} as interval_share_seconds
        from window_intervals
        group by window_id, interval_start_at
    ) as intervals
    group by window_id

),

costed as (

    select
        windows.*,
        (windows.end_us - windows.start_us) / 1e6 as duration_seconds,
        phases.requests,
        phases.failed_requests,
        phases.requests_source,
        phases.requests_basis,
        phases.stated_concurrency,
        phases.request_seconds,
        phases.input_tokens,
        phases.cached_input_tokens,
        coalesce(phases.output_tokens, {{ exact('windows.output_tokens') }}) as known_output_tokens,
        cast(
            coalesce(
                phases.input_tokens + phases.output_tokens,
                {{ exact('windows.total_tokens') }}
            ) as {{ exact_type() }}
        ) as known_total_tokens,
        case when phases.output_tokens is not null then 'requests' else windows.tokens_basis end as output_tokens_basis,
        {{ columns_of('phases', latencies) }},
        phases.output_tokens_per_second_per_user,
        phases.tpot_p99_seconds,
        prices.device_type,
        {{ ratio('prices.gpu_seconds', 'priced_seconds.priced_seconds') }} as gpus,
        {{ money('windows.energy_joules * ' ~ ratio('prices.energy_cost_usd', 'prices.priced_joules')) }} as energy_cost_usd,
        {{ money(
            'windows.energy_joules * ' ~ ratio('prices.charged_energy_cost_usd', 'prices.priced_joules')
        ) }} as charged_energy_cost_usd,
        {{ money('(windows.end_us - windows.start_us) / 1e6 * ' ~ ratio('prices.capacity_cost_usd', 'priced_seconds.priced_seconds')) }}
        as capacity_cost_usd
    from windows
    inner join phases on windows.window_id = phases.window_id
    left join prices on windows.window_id = prices.window_id
    left join priced_seconds on windows.window_id = priced_seconds.window_id

),

held_back as (

    select
        window_id as held_back_window_id,
        held_back_dates
    from windows

),

final as (

    select
        date,
        window_id,
        start_at,
        end_at,
        node,
        engine,
        model,
        device_type,
        gpus,
        duration_seconds,
        stated_concurrency,
        {{ ratio('request_seconds', 'duration_seconds') }} as mean_concurrency,
        requests_source,
        requests_basis,
        cast(requests as bigint) as requests,
        cast(failed_requests as bigint) as failed_requests,
        input_tokens,
        cached_input_tokens,
        known_output_tokens as output_tokens,
        known_total_tokens as total_tokens,
        output_tokens_basis as tokens_basis,
        {{ ratio('known_output_tokens', 'duration_seconds') }} as output_tokens_per_second,
        {{ ratio('known_total_tokens', 'duration_seconds') }} as total_tokens_per_second,
        output_tokens_per_second_per_user,
        tpot_p99_seconds,
        {{ latencies | join(', ') }},
        meter_scope,
        mean_watts,
        mean_watts_basis,
        energy_joules,
        {{ ratio('energy_joules', 'known_output_tokens') }} as joules_per_output_token,
        {{ ratio('energy_joules', 'known_total_tokens') }} as joules_per_total_token,
        energy_cost_usd,
        capacity_cost_usd,
        cast(capacity_cost_usd + charged_energy_cost_usd as {{ money_type() }}) as compute_cost_usd,
        {{ ratio('energy_cost_usd', 'known_output_tokens') }} * 1e6 as energy_cost_usd_per_output_mtok,
        {{ ratio('capacity_cost_usd', 'known_output_tokens') }} * 1e6 as capacity_cost_usd_per_output_mtok,
        {{ ratio('capacity_cost_usd + charged_energy_cost_usd', 'known_output_tokens') }} * 1e6 as compute_cost_usd_per_output_mtok,
        reason_code = 'ok' as is_valid,
        reason_code,
        held_back.held_back_dates,
        held_back.held_back_dates is null as is_complete
    from costed
    left join held_back on costed.window_id = held_back.held_back_window_id

)

select * from final
