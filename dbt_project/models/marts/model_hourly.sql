-- Energy, tokens, CO2 and money per hour and model: the finest grain that has them all in one row.
{# Claimed time and its cost come from other models than the ledger's rows. #}
{% set of_claims = [
    'claimed_gpu_seconds', 'unpriced_gpu_seconds', 'capacity_cost_usd', 'usage_cost_usd', 'unknown_cost_usd', 'allocation_cost_usd',
    'fully_loaded_cost_usd'
] %}

with costed_energy as (

    select * from {{ ref('int_costed_energy') }}

),

tokens as (

    select * from {{ ref('token_ledger') }} where {{ in_run('date') }}

),

site_intervals as (

    select * from {{ ref('int_site_intervals') }}

),

claimed_hours as (

    select * from {{ ref('int_claimed_hours') }}

),

rates as (

    select * from {{ ref('int_cost_rates') }}

),

token_engines as (

    select distinct engine from tokens

),

-- An engine's tokens are in the row of the devices that it holds. They have a price if every part of every board of it has one.
engine_prices as (

    select
        costed_energy.interval_start_at,
        costed_energy.engine,
        min(coalesce(device_type, {{ unknown() }})) as device_type,
        min(meter_scope) as meter_scope,
        min(site) as site,
        {% for flag in ['is_priced', 'is_tariffed', 'is_carbon_known'] -%}
        min(case when {{ flag }} then 1 else 0 end) = 1 as {{ flag }},
        max(case when {{ flag }} then 1 else 0 end) = 1 as {{ flag }}_in_part{{ ',' if not loop.last }}
        {% endfor %}
    from costed_energy
    left join token_engines on costed_energy.engine = token_engines.engine
    where token_engines.engine is not null or costed_energy.is_matched
    group by costed_energy.interval_start_at, costed_energy.engine

),

-- Few engines hold boards of which only some have a price.
partly_priced as (

    select * from engine_prices
    where (is_priced_in_part and not is_priced) or (is_tariffed_in_part and not is_tariffed) or (is_carbon_known_in_part and not is_carbon_known)

),

matched_energy as (

    select
        costed_energy.*,
        {% for flag in ['is_priced', 'is_tariffed', 'is_carbon_known'] -%}
        costed_energy.is_matched and costed_energy.{{ flag }} and coalesce(partly_priced.{{ flag }}, true) as is_matched_and_{{ flag[3:] }}{{ ',' if not loop.last }}
        {% endfor %}
    from costed_energy
    left join partly_priced
        on costed_energy.interval_start_at = partly_priced.interval_start_at and costed_energy.engine = partly_priced.engine

),

energy_pieces as (

    select
        date,
        date_trunc('hour', interval_start_at) as hour_start_at,
        local_date,
        billing_month,
        site,
        deployment,
        namespace,
        team,
        model,
        coalesce(device_type, {{ unknown() }}) as device_type,
        meter_scope,
        role,
        is_held,
        count(*) as ledger_rows,
        {% for fact in energy_facts() if fact not in of_claims and not fact.startswith('matched_') -%}
        {{ fact_sum(fact) }} as {{ fact }},
        {% endfor -%}
        {{ money_sum('charged_energy_cost_usd') }} as charged_energy_cost_usd,
        {{ money_sum('capacity_cost_usd') }} as covered_capacity_cost_usd,
        {{ money_sum('active_capacity_cost_usd') }} as active_capacity_cost_usd,
        {{ money_sum('unknown_capacity_cost_usd') }} as unknown_capacity_cost_usd,
        {{ exact_sum('charged_gpu_seconds') }} as charged_gpu_seconds,
        {{ exact_sum('case when is_priced then 0 else gpu_seconds end') }} as unpriced_covered_gpu_seconds,
        {{ exact_sum('case when is_matched then productive_joules + idle_joules end') }} as matched_joules,
        {{ exact_sum('case when is_matched then productive_joules end') }} as matched_productive_joules,
        {{ exact_sum('case when is_matched_and_carbon_known then location_gco2e end') }} as matched_location_gco2e,
        {{ money_sum('case when is_matched_and_tariffed then marginal_cost_usd end') }} as matched_marginal_cost_usd,
        {{ money_sum('case when is_matched_and_priced then charged_energy_cost_usd + capacity_cost_usd end') }} as matched_allocation_cost_usd,
        {{ exact_sum('case when is_matched_and_priced then charged_gpu_seconds end') }} as matched_gpu_seconds
    from matched_energy
    group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13

),

-- Claimed time without coverage costs as much; whether it worked is unknown.
claimed_pieces as (

    select
        {% for key in ['date', 'hour_start_at', 'local_date', 'billing_month', 'is_held'] + model_keys() -%}
        coalesce(energy_pieces.{{ key }}, claimed_hours.{{ key }}) as {{ key }},
        {% endfor -%}
        {% for fact in energy_facts() if fact not in of_claims and fact != 'matched_fully_loaded_cost_usd' -%}
        energy_pieces.{{ fact }},
        {% endfor -%}
        energy_pieces.charged_energy_cost_usd,
        energy_pieces.active_capacity_cost_usd,
        energy_pieces.covered_capacity_cost_usd,
        energy_pieces.unknown_capacity_cost_usd,
        energy_pieces.unpriced_covered_gpu_seconds,
        energy_pieces.matched_allocation_cost_usd,
        energy_pieces.matched_gpu_seconds,
        coalesce(energy_pieces.ledger_rows, 0) > 0 as is_metered,
        claimed_hours.claimed_gpu_seconds,
        greatest(coalesce(claimed_hours.claimed_gpu_seconds, 0) - coalesce(energy_pieces.charged_gpu_seconds, 0), 0) as uncovered_gpu_seconds
    from energy_pieces
    full outer join claimed_hours
        on energy_pieces.hour_start_at = claimed_hours.hour_start_at
        and energy_pieces.local_date = claimed_hours.local_date
        and energy_pieces.is_held = claimed_hours.is_held
        {% for key in model_keys() -%}
        and energy_pieces.{{ key }} is not distinct from claimed_hours.{{ key }}
        {% endfor %}

),

priced_pieces as (

    select
        claimed_pieces.*,
        {{ money(
            'case when uncovered_gpu_seconds > 0 then cast(uncovered_gpu_seconds as double) / 3600 * rates.usd_per_gpu_hour else 0 end'
        ) }} as uncovered_cost_usd,
        rates.usd_per_gpu_hour is null as has_no_rate
    from claimed_pieces
    left join rates
        on claimed_pieces.device_type = rates.device_type
        and claimed_pieces.local_date >= rates.valid_from
        and claimed_pieces.local_date < rates.until

),

-- Where nothing was metered no energy is charged, and all that was claimed is uncovered.
costed_pieces as (

    select
        *,
        case when is_metered then covered_capacity_cost_usd else 0 end + uncovered_cost_usd as capacity_cost_usd,
        case when is_metered then unknown_capacity_cost_usd else 0 end + uncovered_cost_usd as unknown_cost_usd,
        case when is_metered then active_capacity_cost_usd + charged_energy_cost_usd end as usage_cost_usd,
        case when is_metered then covered_capacity_cost_usd + charged_energy_cost_usd else 0 end + uncovered_cost_usd as allocation_cost_usd,
        coalesce(unpriced_covered_gpu_seconds, 0) + case when has_no_rate then uncovered_gpu_seconds else 0 end as unpriced_gpu_seconds
    from priced_pieces

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

-- Unallocated capacity of a site and hour is charged, by GPU-seconds, to whoever claims accelerators there at a known cost. A pod that holds its
-- board keeps its own cost, also where its activity is unknown.
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
            order by deployment, namespace, team, model, device_type, meter_scope, role
            rows unbounded preceding
        )

),

carried_hours as (

    select
        *,
        case
            when own_gpu_seconds > 0
                then {{ remainder_cost_up_to('gpu_seconds_to') }} - {{ remainder_cost_up_to('(gpu_seconds_to - own_gpu_seconds)') }}
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
        coalesce(engine_prices.site, tokens.site) as site,
        tokens.deployment,
        tokens.namespace,
        tokens.team,
        tokens.model,
        coalesce(engine_prices.device_type, 'none') as device_type,
        coalesce(engine_prices.meter_scope, 'none') as meter_scope,
        tokens.role,
        {{ exact_sum("case when token_class = 'input' then tokens end") }} as input_tokens,
        {{ exact_sum("case when token_class = 'cached_input' then tokens end") }} as cached_input_tokens,
        {{ exact_sum("case when token_class = 'computed_input' then tokens end") }} as computed_input_tokens,
        {{ exact_sum("case when token_class = 'output' then tokens end") }} as output_tokens,
        {{ exact_sum("case when token_class in ('input', 'output') then tokens end") }} as total_tokens,
        {{ exact_sum("case when token_class = 'output' and is_matched then tokens end") }} as matched_output_tokens,
        {{ exact_sum("case when token_class in ('input', 'output') and is_matched then tokens end") }} as matched_total_tokens,
        {% for flag in ['priced', 'tariffed', 'carbon_known'] -%}
        {{ exact_sum("case when token_class = 'output' and is_matched then case when engine_prices.is_" ~ flag ~ " then tokens else 0 end end") }}
        as {{ flag }}_output_tokens,
        {% endfor -%}
        {{ exact_sum("case when token_class in ('cached_input', 'computed_input') and is_matched then tokens end") }} as matched_parts_tokens,
        -- A decoder's input tokens are in the row of its prefill engine.
        max(case when token_class = 'input' or tokens.role = 'decode' then 1 else 0 end) as has_input
    from tokens
    left join engine_prices
        on tokens.interval_start_at = engine_prices.interval_start_at and tokens.engine = engine_prices.engine
    left join site_intervals
        on coalesce(engine_prices.site, tokens.site) = site_intervals.site and tokens.interval_start_at = site_intervals.interval_start_at
    group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    -- Intervals with neither power nor tokens produce no row.
    having max(engine_prices.engine) is not null or sum(tokens.tokens) > 0

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
        token_hours.matched_output_tokens,
        token_hours.priced_output_tokens,
        token_hours.tariffed_output_tokens,
        token_hours.carbon_known_output_tokens,
        case
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
