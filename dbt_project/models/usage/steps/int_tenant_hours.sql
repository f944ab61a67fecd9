-- Who asked for how many tokens: requests of the run's dates at the rows of model_hourly that served them, per team and
-- tenant. Where no log has a model's hour, the counters of a gateway or frontend by tenant have it; how many requests those
-- were they do not state.
{% set classes = tenant_token_facts() %}
{% set asked_keys = ['date', 'hour_start_at', 'site', 'deployment', 'model', 'request_team', 'tenant'] %}

with requests as (

    select
        *,
        input_tokens - coalesce(cached_input_tokens, 0) as computed_input_tokens
    from {{ ref('int_requests') }}

),

engine_hours as (

    select * from {{ ref('int_engine_hours') }}

),

tenant_counters as (

    select * from {{ ref('int_tenant_counters') }}

),

model_hours as (

    select
        *,
        {{ weighted_tokens('coalesce(computed_input_tokens, input_tokens)', 'cached_input_tokens', 'output_tokens') }} as weighted_tokens
    from {{ ref('model_hourly') }}
    where {{ in_run('date') }} and deployment <> {{ unallocated() }}

),

engine_places as (

    {{ engine_places('engine_hours') }}

),

source_hours as (

    select
        {{ (asked_keys + ['source', 'names_who_asked']) | join(', ') }},
        {{ exact_sum('1') }} as requests,
        min(concat(cast({{ epoch_us('started_at') }} as {{ dbt.type_string() }}), ' ', coalesce(request_id, ''))) as first_asked,
        {% for class in classes -%}
        {{ exact_sum('coalesce(' ~ class ~ ', 0)') }} as {{ class }}{{ ',' if not loop.last }}
        {% endfor %},
        {{ exact_sum('contradicted_tokens') }} as contradicted_tokens,
        2 * names_who_asked + 1 as preference
    from requests
    group by {{ (asked_keys + ['source', 'names_who_asked']) | join(', ') }}
    union all
    select
        tenant_counters.date,
        tenant_counters.hour_start_at,
        engine_places.site,
        engine_places.deployment,
        coalesce(engine_places.model, tenant_counters.model) as model,
        tenant_counters.request_team,
        tenant_counters.tenant,
        tenant_counters.source,
        tenant_counters.names_who_asked,
        cast(null as {{ exact_type() }}) as requests,
        min(cast(tenant_counters.first_series_id as {{ dbt.type_string() }})) as first_asked,
        {% for class in classes -%}
        {{ exact_sum('coalesce(tenant_counters.' ~ class ~ ', 0)') }} as {{ class }},
        {% endfor -%}
        cast(0 as {{ exact_type() }}) as contradicted_tokens,
        2 * tenant_counters.names_who_asked as preference
    from tenant_counters
    -- A frontend or gateway without an engine's page behind it is booked itself.
    left join engine_places
        on tenant_counters.hour_start_at = engine_places.hour_start_at and tenant_counters.engine = engine_places.engine
    group by all

),

-- Counters count only where no log of a model's hour names as much of who asked, and then alone.
chosen_sources as (

    select *
    from source_hours
    qualify max(preference) over (partition by hour_start_at, model, source) = max(preference) over (partition by hour_start_at, model)
        and preference % 2 = max(preference) over (partition by hour_start_at, model) % 2

),

asked as (

    select
        {{ asked_keys | join(', ') }},
        {{ exact_sum('requests') }} as requests,
        {{ exact_sum('contradicted_tokens') }} as contradicted_tokens,
        min(first_asked) as first_asked,
        {% for class in classes -%}
        {{ exact_sum(class) }} as {{ class }}{{ ',' if not loop.last }}
        {% endfor %}
    from chosen_sources
    group by {{ asked_keys | join(', ') }}

),

-- Without the name of an engine all rows of the model may have served it: tokens of a class are divided by the tokens
-- of that class that the engines counted; where they counted none, equally.
placed as (

    select
        asked.date,
        asked.hour_start_at,
        coalesce(model_hours.billing_month, cast(date_trunc('month', asked.date) as date)) as billing_month,
        model_hours.model is not null as is_served,
        {% for key in model_keys() -%}
        {%- if key in ('site', 'deployment') -%}coalesce(model_hours.{{ key }}, {{ unknown() }})
        {%- elif key == 'model' -%}coalesce(model_hours.model, asked.model, {{ unknown() }})
        {%- elif key in ('device_type', 'meter_scope') -%}coalesce(model_hours.{{ key }}, 'none')
        {%- elif key == 'role' -%}coalesce(model_hours.role, 'unified')
        {%- else -%}model_hours.{{ key }}{%- endif %}{{ ' as ' ~ key if key not in ('namespace', 'team') }},
        {% endfor -%}
        asked.request_team,
        asked.tenant,
        asked.first_asked,
        {% for fact in ['requests', 'contradicted_tokens'] -%}
        {{ exact(
            'cast(asked.' ~ fact ~ ' as double) * coalesce('
                ~ ratio(
                    'coalesce(model_hours.weighted_tokens, 0)',
                    'sum(model_hours.weighted_tokens) over asked_window'
                )
            ~ ', 1e0 / count(*) over asked_window)'
        ) }} as {{ fact }},
        {% endfor -%}
        {% for class in classes -%}
        {{ exact(
            'cast(asked.' ~ class ~ ' as double) * coalesce('
                ~ ratio('coalesce(model_hours.' ~ class ~ ', 0)', 'sum(model_hours.' ~ class ~ ') over asked_window')
            ~ ', 1e0 / count(*) over asked_window)'
        ) }} as {{ class }}{{ ',' if not loop.last }}
        {% endfor %}
    from asked
    left join model_hours
        on asked.hour_start_at = model_hours.hour_start_at
        and asked.model = model_hours.model
        and (asked.deployment is null or (asked.deployment = model_hours.deployment and asked.site = model_hours.site))
    window asked_window as (partition by {{ columns_of('asked', asked_keys) }})

),

final as (

    select
        {{ (['date', 'hour_start_at', 'billing_month', 'is_served'] + model_keys() + ['request_team', 'tenant']) | join(', ') }},
        {{ exact_sum('requests') }} as requests,
        {{ exact_sum('contradicted_tokens') }} as contradicted_tokens,
        min(first_asked) as first_asked,
        {% for class in classes -%}
        {{ exact_sum(class) }} as logged_{{ class }}{{ ',' if not loop.last }}
        {% endfor %}
    from placed
    group by {{ (['date', 'hour_start_at', 'billing_month', 'is_served'] + model_keys() + ['request_team', 'tenant']) | join(', ') }}

)

select * from final
