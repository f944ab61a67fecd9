-- Energy, tokens, CO2 and money per hour and model: the finest grain that has them all in one row.
with tokens as (

    select * from {{ ref('token_ledger') }} where {{ in_run('date') }}

),

doubted_hours as (

    select * from {{ ref('int_doubted_hours') }}

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
        {% for fact in energy_facts() -%}
        {{ fact_sum(fact) }} as {{ fact }}{{ ',' if not loop.last }}
        {% endfor %}
    from costed_pieces
    group by date, hour_start_at, billing_month{% for key in model_keys() %}, {{ key }}{% endfor %}

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
        coalesce(energy_hours.date, token_hours.date) as date,
        coalesce(energy_hours.hour_start_at, token_hours.hour_start_at) as hour_start_at,
        coalesce(energy_hours.billing_month, token_hours.billing_month) as billing_month,
        {% for key in model_keys() -%}
        coalesce(energy_hours.{{ key }}, token_hours.{{ key }}) as {{ key }},
        {% endfor -%}
        {% for fact in energy_facts() -%}
        energy_hours.{{ fact }},
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
    from energy_hours
    full outer join completed_tokens as token_hours
        on energy_hours.hour_start_at = token_hours.hour_start_at
        and energy_hours.billing_month is not distinct from token_hours.billing_month
        {% for key in model_keys() -%}
        and energy_hours.{{ key }} is not distinct from token_hours.{{ key }}
        {% endfor %}

),

doubted as (

    select
        joined.*,
        {% for fact in doubt_facts() -%}
        doubted_hours.{{ fact }},
        {% endfor -%}
        case when joined.energy_joules is not null or joined.output_tokens is not null or doubted_hours.has_refuted_meter = 1
            then coalesce(substr(
            ''
            {%- for reason in doubt_reasons() %}
            || case when doubted_hours.has_{{ reason }} = 1 then ',{{ reason }}' else '' end
            {%- endfor %}, 2
        ), '') end as listed_reasons
    from joined
    left join doubted_hours
        on joined.hour_start_at = doubted_hours.hour_start_at
        {% for key in model_keys() -%}
        and joined.{{ key }} is not distinct from doubted_hours.{{ key }}
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
        {{ doubt_columns() }},
        false as is_opening_balance
    from doubted

)

select * from final
