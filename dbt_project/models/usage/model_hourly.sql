-- Energy, tokens, CO2 and money per hour and model: the finest grain that has them all in one row.
with tokens as (

    select * from {{ ref('token_ledger') }} where {{ in_run('date') }}

),

site_intervals as (

    select * from {{ ref('int_site_intervals') }}

),

costed_pieces as (

    select * from {{ ref('int_cost_pieces') }}

),

engine_prices as (

    select * from {{ ref('int_engine_prices') }}

),

energy_hours as (

    select
        date,
        hour_start_at,
        billing_month,
        {% for key in model_keys() -%}
        {{ key }},
        {% endfor -%}
        {% for fact in energy_facts() if fact not in ('fully_loaded_cost_usd', 'matched_fully_loaded_cost_usd') -%}
        {{ fact_sum(fact) }} as {{ fact }},
        {% endfor -%}
        {{ money_sum('matched_allocation_cost_usd') }} as matched_allocation_cost_usd,
        {{ exact_sum('matched_gpu_seconds') }} as matched_gpu_seconds,
        {{ money_sum('case when not is_held then allocation_cost_usd end') }} as remainder_cost_usd,
        {{ exact_sum('case when is_held and allocation_cost_usd is not null then claimed_gpu_seconds end') }} as own_gpu_seconds
    from costed_pieces
    group by date, hour_start_at, billing_month{% for key in model_keys() %}, {{ key }}{% endfor %}

),

-- Unallocated capacity of a site and hour is charged, by GPU-seconds, to whoever claims accelerators there at a known
-- cost. A pod that holds its board keeps its own cost, also where its activity is unknown.
site_hours as (

    select
        *,
        sum(own_gpu_seconds) over site_window as site_gpu_seconds,
        coalesce(sum(remainder_cost_usd) over site_window, 0) as site_remainder_cost_usd,
        coalesce(sum(own_gpu_seconds) over running_window, 0) as gpu_seconds_to
    from energy_hours
    window
        site_window as (partition by hour_start_at, billing_month, site),
        running_window as (
            partition by hour_start_at, billing_month, site
            order by deployment, namespace nulls last, team nulls last, model, device_type, meter_scope, role
            rows unbounded preceding
        )

),

carried_hours as (

    select
        *,
        case
            when own_gpu_seconds > 0
                then {{ carried_up_to('site_remainder_cost_usd', 'gpu_seconds_to') }}
                    - {{ carried_up_to('site_remainder_cost_usd', '(gpu_seconds_to - own_gpu_seconds)') }}
            else cast(0 as {{ money_type() }})
        end as carried_cost_usd
    from site_hours

),

loaded_hours as (

    select
        *,
        allocation_cost_usd
        - case when site_gpu_seconds > 0 then coalesce(remainder_cost_usd, 0) else 0 end
        + carried_cost_usd as fully_loaded_cost_usd,
        matched_allocation_cost_usd
        + {{ money('cast(carried_cost_usd as double) * coalesce(' ~ ratio('matched_gpu_seconds', 'own_gpu_seconds') ~ ', 0)') }}
        as matched_fully_loaded_cost_usd
    from carried_hours

),

token_hours as (

    select
        tokens.date,
        date_trunc('hour', tokens.interval_start_at) as hour_start_at,
        site_intervals.billing_month,
        tokens.site,
        tokens.deployment,
        tokens.namespace,
        tokens.team,
        tokens.model,
        tokens.device_type,
        tokens.meter_scope,
        tokens.role,
        {{ exact_sum("case when token_class = 'input' then tokens end") }} as input_tokens,
        {{ exact_sum("case when token_class = 'cached_input' then tokens end") }} as cached_input_tokens,
        {{ exact_sum("case when token_class = 'computed_input' then tokens end") }} as computed_input_tokens,
        {{ exact_sum("case when token_class = 'output' then tokens end") }} as output_tokens,
        {{ exact_sum("case when token_class in ('input', 'output') then tokens end") }} as total_tokens,
        {{ exact_sum(
            "case when token_class in ('input', 'output') then case when engine_prices.is_of_several_rows then tokens else 0 end end"
        ) }} as shared_tokens,
        {{ exact_sum("case when token_class = 'output' and is_matched then tokens end") }} as matched_output_tokens,
        {{ exact_sum("case when token_class in ('input', 'output') and is_matched then tokens end") }} as matched_total_tokens,
        {% for flag in ['priced', 'tariffed', 'carbon_known'] -%}
        {{ exact_sum(
            "case when token_class = 'output' and is_matched then case when engine_prices.is_" ~ flag
                ~ " then tokens else 0 end end"
        ) }}
        as {{ flag }}_output_tokens,
        {% endfor -%}
        {{ exact_sum(
            "case when token_class in ('cached_input', 'computed_input') and is_matched then tokens end"
        ) }} as matched_parts_tokens,
        -- A decoder's input tokens are in the row of its prefill engine.
        max(case when token_class = 'input' or tokens.role = 'decode' then 1 else 0 end) as has_input,
        -- A prompt may be counted twice, and by how much is unknown.
        max(case when tokens.role_basis = 'conflicting' then 1 else 0 end) = 1 as has_unclear_input
    from tokens
    left join engine_prices
        on tokens.interval_start_at = engine_prices.interval_start_at and tokens.engine = engine_prices.engine
    left join site_intervals
        on tokens.site = site_intervals.site and tokens.interval_start_at = site_intervals.interval_start_at
    group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    -- Intervals with neither power nor tokens produce no row.
    having max(tokens.meter_scope) <> 'none' or sum(tokens.tokens) > 0

),

-- Some engines report only the parts of their input.
completed_tokens as (

    select
        *,
        case when has_input = 0 then cached_input_tokens + computed_input_tokens end as parts_tokens,
        case when has_input = 0 then cached_input_tokens + computed_input_tokens else 0 end as missing_input_tokens
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
        {% for fact in energy_facts() -%}
        loaded_hours.{{ fact }},
        {% endfor -%}
        coalesce(token_hours.input_tokens, token_hours.parts_tokens) as input_tokens,
        token_hours.cached_input_tokens,
        coalesce(token_hours.computed_input_tokens, token_hours.input_tokens - token_hours.cached_input_tokens) as computed_input_tokens,
        token_hours.output_tokens,
        -- Without any word of the input the total is not known.
        token_hours.total_tokens + token_hours.missing_input_tokens as total_tokens,
        token_hours.shared_tokens,
        token_hours.matched_output_tokens,
        token_hours.priced_output_tokens,
        token_hours.tariffed_output_tokens,
        token_hours.carbon_known_output_tokens,
        case
            when token_hours.has_unclear_input then null
            when token_hours.has_input = 1 then token_hours.matched_total_tokens
            when token_hours.parts_tokens is not null then token_hours.matched_total_tokens + token_hours.matched_parts_tokens
        end as matched_total_tokens
    from loaded_hours
    full outer join completed_tokens as token_hours
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
        {%- if key in model_keys() -%}{{ key }}{%- else -%}cast({{ key }} as {{ fact_type(key) }}) as {{ key }}{%- endif -%},
        {% endfor -%}
        {{ model_ratios() }},
        false as is_opening_balance
    from joined

)

select * from final
