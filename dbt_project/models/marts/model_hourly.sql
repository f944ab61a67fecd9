-- Energy, tokens, CO2 and money per hour and model: the finest grain at which they stand side by side.
with costed_energy as (

    select * from {{ ref('int_costed_energy') }}

),

tokens as (

    select * from {{ ref('token_ledger') }} where {{ in_run('date') }}

),

site_intervals as (

    select * from {{ ref('int_site_intervals') }}

),

-- Allocated deployments whose own cost is known carry the unallocated and unknown cost of their site and hour, by their GPU-seconds.
row_costs as (

    select
        *,
        case when state in ('unallocated', 'unknown') or allocation_cost_usd is null then null else gpu_seconds end as own_gpu_seconds
    from costed_energy

),

energy_hours as (

    select
        date,
        date_trunc('hour', interval_start_at) as hour_start_at,
        billing_month,
        site,
        deployment,
        namespace,
        team,
        model,
        coalesce(device_type, {{ unknown() }}) as device_type,
        meter_scope,
        role,
        {% for fact in energy_facts() if not fact.startswith('matched_') and fact not in ('idle_cost_usd', 'fully_loaded_cost_usd') -%}
        {{ exact_sum(fact) }} as {{ fact }},
        {% endfor -%}
        {{ exact_sum('idle_energy_cost_usd + idle_capacity_cost_usd') }} as idle_cost_usd,
        {{ exact_sum('own_gpu_seconds') }} as own_gpu_seconds,
        {{ exact_sum("case when state in ('unallocated', 'unknown') then allocation_cost_usd end") }} as remainder_cost_usd,
        {{ exact_sum('case when is_matched then productive_joules + idle_joules end') }} as matched_joules,
        {{ exact_sum('case when is_matched then productive_joules end') }} as matched_productive_joules,
        {{ exact_sum('case when is_matched then location_gco2e end') }} as matched_location_gco2e,
        {{ exact_sum('case when is_matched then marginal_cost_usd end') }} as matched_marginal_cost_usd,
        {{ exact_sum('case when is_matched then gpu_seconds end') }} as matched_gpu_seconds
    from row_costs
    group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11

),

site_hours as (

    select
        *,
        cast(sum(own_gpu_seconds) over site_window as double) as site_gpu_seconds,
        cast(sum(remainder_cost_usd) over site_window as double) as site_remainder_cost_usd,
        coalesce(cast(sum(own_gpu_seconds) over running_window as double), 0) as gpu_seconds_to
    from energy_hours
    window
        site_window as (partition by hour_start_at, billing_month, site),
        running_window as (
            partition by hour_start_at, billing_month, site
            order by deployment, namespace, team, model, device_type, meter_scope, role
            rows unbounded preceding
        )

),

loaded_hours as (

    select
        *,
        cast(case
            when coalesce(site_gpu_seconds, 0) = 0 then allocation_cost_usd
            else allocation_cost_usd - coalesce(remainder_cost_usd, {{ exact('0') }})
                + {{ exact('coalesce(site_remainder_cost_usd, 0) * (gpu_seconds_to / site_gpu_seconds)') }}
                - {{ exact('coalesce(site_remainder_cost_usd, 0) * ((gpu_seconds_to - coalesce(cast(own_gpu_seconds as double), 0)) / site_gpu_seconds)') }}
        end as {{ exact_type() }}) as fully_loaded_cost_usd
    from site_hours

),

-- An engine's tokens stand in the row of the devices that it holds; without power, in a row of their own.
engine_devices as (

    select
        interval_start_at,
        engine,
        min(coalesce(device_type, {{ unknown() }})) as device_type,
        min(meter_scope) as meter_scope,
        min(site) as site
    from costed_energy
    group by interval_start_at, engine

),

token_hours as (

    select
        tokens.date,
        date_trunc('hour', tokens.interval_start_at) as hour_start_at,
        site_intervals.billing_month,
        coalesce(engine_devices.site, tokens.site) as site,
        tokens.deployment,
        tokens.namespace,
        tokens.team,
        tokens.model,
        coalesce(engine_devices.device_type, 'none') as device_type,
        coalesce(engine_devices.meter_scope, 'none') as meter_scope,
        tokens.role,
        {{ exact_sum("case when token_class = 'input' then tokens end") }} as input_tokens,
        {{ exact_sum("case when token_class = 'cached_input' then tokens end") }} as cached_input_tokens,
        {{ exact_sum("case when token_class = 'computed_input' then tokens end") }} as computed_input_tokens,
        {{ exact_sum("case when token_class = 'output' then tokens end") }} as output_tokens,
        {{ exact_sum("case when token_class in ('input', 'output') then tokens end") }} as total_tokens,
        {{ exact_sum("case when token_class = 'output' and is_matched then tokens end") }} as matched_output_tokens,
        {{ exact_sum("case when token_class in ('input', 'output') and is_matched then tokens end") }} as matched_total_tokens,
        {{ exact_sum("case when token_class in ('cached_input', 'computed_input') and is_matched then tokens end") }} as matched_parts_tokens,
        -- A decoder's input stands with its prefill engine.
        max(case when token_class = 'input' or tokens.role = 'decode' then 1 else 0 end) as has_input
    from tokens
    left join engine_devices
        on tokens.interval_start_at = engine_devices.interval_start_at and tokens.engine = engine_devices.engine
    left join site_intervals
        on coalesce(engine_devices.site, tokens.site) = site_intervals.site and tokens.interval_start_at = site_intervals.interval_start_at
    group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    -- Silence without power is nobody's row.
    having max(engine_devices.engine) is not null or sum(tokens.tokens) > 0

),

-- Some engines tell only the parts of their input.
told_tokens as (

    select
        *,
        case when has_input = 0 then cached_input_tokens + computed_input_tokens end as parts_tokens,
        case when has_input = 0 then cached_input_tokens + computed_input_tokens else 0 end as untold_input_tokens
    from token_hours

),

joined as (

    select
        coalesce(loaded_hours.date, token_hours.date) as date,
        coalesce(loaded_hours.hour_start_at, token_hours.hour_start_at) as hour_start_at,
        coalesce(loaded_hours.billing_month, token_hours.billing_month) as billing_month,
        {% for key in model_keys() -%}
        coalesce(loaded_hours.{{ key }}, token_hours.{{ key }}) as {{ key }},
        {% endfor -%}
        {% for fact in energy_facts() if fact != 'matched_fully_loaded_cost_usd' -%}
        loaded_hours.{{ fact }},
        {% endfor -%}
        {{ exact('cast(loaded_hours.fully_loaded_cost_usd as double) * ' ~ ratio('loaded_hours.matched_gpu_seconds', 'loaded_hours.own_gpu_seconds')) }}
        as matched_fully_loaded_cost_usd,
        coalesce(token_hours.input_tokens, token_hours.parts_tokens) as input_tokens,
        token_hours.cached_input_tokens,
        coalesce(token_hours.computed_input_tokens, token_hours.input_tokens - token_hours.cached_input_tokens) as computed_input_tokens,
        token_hours.output_tokens,
        -- Without any word of the input the total is not known.
        token_hours.total_tokens + token_hours.untold_input_tokens as total_tokens,
        token_hours.matched_output_tokens,
        case
            when token_hours.has_input = 1 then token_hours.matched_total_tokens
            when token_hours.parts_tokens is not null then token_hours.matched_total_tokens + token_hours.matched_parts_tokens
        end as matched_total_tokens
    from loaded_hours
    full outer join told_tokens as token_hours
        on loaded_hours.hour_start_at = token_hours.hour_start_at
        and loaded_hours.billing_month is not distinct from token_hours.billing_month
        {% for key in model_keys() -%}
        and loaded_hours.{{ key }} is not distinct from token_hours.{{ key }}
        {% endfor %}

),

final as (

    select
        date,
        hour_start_at,
        billing_month,
        {% for key in model_keys() + energy_facts() + token_facts() -%}
        {%- if key in model_keys() -%}{{ key }}{%- else -%}cast({{ key }} as {{ exact_type() }}) as {{ key }}{%- endif -%},
        {% endfor -%}
        {{ model_ratios() }},
        false as is_opening_balance
    from joined

)

select * from final
