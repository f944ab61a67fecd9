-- What each tenant used of each model, and what no logged request explains: shares of each hour, summed to dates.
-- Money and time are shared at market prices of tokens, joules and grams by the joules that tokens take.
-- tenant_daily adds the full cost. Keys of tenants are random: who has a share's last digit follows who asked first.
{% set keys = ['date', 'billing_month'] + model_keys() %}
{% set classes = tenant_token_facts() %}
{% set facts = tenant_facts() %}
{% set by_energy = ['energy_joules', 'location_gco2e', 'doubted_joules'] %}
{% set at_ends = ['energy_joules_at_low_weight', 'energy_joules_at_high_weight'] %}
{% set weights = ['price', 'low', 'middle', 'high'] %}
{% set logged = ['requests', 'logged_input_tokens', 'logged_cached_input_tokens', 'logged_output_tokens'] %}
{% set token_doubts = ['doubted_tokens', 'unbooked_tokens'] %}
{% set hour_keys = ['hour_start_at', 'billing_month'] + model_keys() %}

with hours as (

    select * from {{ ref('model_hourly') }} where {{ in_run('date') }}

),

concurrencies as (

    select * from {{ ref('int_model_concurrency') }}

),

-- What an input token weighs. Where an engine does not count cached tokens, a cache may have had all.
weighed_hours as (

    select
        hours.*,
        {{ input_token_weight() }}e0 as price_weight,
        {{ input_energy_weight_at('low', 'concurrencies.concurrency') }}
            * case when hours.cached_input_tokens is null then {{ cached_of_computed() }} else 1 end as low_weight,
        {{ input_energy_weight_at('middle', 'concurrencies.concurrency') }} as middle_weight,
        {{ input_energy_weight_at('high', 'concurrencies.concurrency') }} as high_weight
    from hours
    left join concurrencies on {{ equal_keys('hours', 'concurrencies', ['date', 'model']) }}

),

model_hours as (

    select
        date,
        hour_start_at,
        coalesce(billing_month, cast(date_trunc('month', date) as date)) as billing_month,
        {{ (model_keys() + classes + facts + doubt_facts()) | join(', ') }},
        doubt_reasons,
        {% for fact in token_doubts -%}
        {{ ratio(fact, booked_tokens()) }} as {{ fact }}_part,
        {% endfor -%}
        {% for weight in weights -%}
        {{ weight }}_weight,
        {{ exact(priced_tokens(
            'coalesce(computed_input_tokens, input_tokens, 0)',
            'coalesce(cached_input_tokens, 0)',
            'coalesce(output_tokens, 0)',
            weight ~ '_weight'
        )) }} as {{ weight }}_tokens{{ ',' if not loop.last }}
        {% endfor %}
    from weighed_hours

),

tenant_hours as (

    select * from {{ ref('int_tenant_hours') }}

),

landings as (

    select * from {{ source('raw', 'landings') }} where asset = 'raw/requests'

),

-- What a log that was read does not have was not asked for; without one that is unknown.
log_dates as (

    select distinct cast(window_start_at as date) as date
    from landings
    where outcome not in ('failed', 'given_up')

),

-- An engine that does not count cached tokens counts them as computed ones, so the log's are weighed in the same way.
asked as (

    select
        {{ columns_of('model_hours', ['date'] + hour_keys + classes + facts + ['doubted_joules', 'unbooked_tokens_part']) }},
        model_hours.doubt_reasons as hour_reasons,
        model_hours.doubted_tokens_part as hour_doubted_tokens_part,
        {% for weight in weights -%}
        model_hours.{{ weight }}_tokens as {{ weight }}_engine_tokens,
        {{ exact(priced_tokens(
            'case when model_hours.cached_input_tokens is null then tenant_hours.logged_input_tokens'
                ~ ' else tenant_hours.logged_computed_input_tokens end',
            'case when model_hours.cached_input_tokens is null then 0 else tenant_hours.logged_cached_input_tokens end',
            'tenant_hours.logged_output_tokens',
            'model_hours.' ~ weight ~ '_weight'
        )) }} as {{ weight }}_tokens,
        {% endfor -%}
        tenant_hours.request_team,
        tenant_hours.tenant,
        tenant_hours.requests,
        tenant_hours.first_asked,
        {{ ratio(
            'tenant_hours.contradicted_tokens',
            '(tenant_hours.logged_input_tokens + tenant_hours.logged_output_tokens)'
        ) }} as contradicted_part,
        {{ columns_of(
            'tenant_hours',
            [
                'logged_input_tokens',
                'logged_cached_input_tokens',
                'logged_computed_input_tokens',
                'logged_output_tokens'
            ]
        ) }}
    from tenant_hours
    inner join model_hours
        on tenant_hours.hour_start_at = model_hours.hour_start_at
        and tenant_hours.billing_month = model_hours.billing_month
        {% for key in model_keys() -%}
        and tenant_hours.{{ key }} is not distinct from model_hours.{{ key }}
        {% endfor -%}
    where tenant_hours.is_served

),

running as (

    select
        *,
        {% for class in classes -%}
        sum(logged_{{ class }}) over running_window as {{ class }}_to,
        greatest(coalesce({{ class }}, 0), sum(logged_{{ class }}) over hour_window) as all_{{ class }},
        {% endfor -%}
        {% for weight in weights -%}
        sum({{ weight }}_tokens) over running_window as {{ weight }}_tokens_to,
        greatest({{ weight }}_engine_tokens, sum({{ weight }}_tokens) over hour_window) as all_{{ weight }}_tokens{{ ',' if not loop.last }}
        {% endfor %}
    from asked
    window
        hour_window as (partition by {{ hour_keys | join(', ') }}),
        running_window as (
            partition by {{ hour_keys | join(', ') }}
            order by coalesce(request_team, ''), request_team, first_asked, price_tokens, tenant
            rows unbounded preceding
        )

),

-- Who asked for no token has no share, also where the whole hour had none.
shares as (

    select
        {{ keys | join(', ') }},
        request_team,
        tenant,
        requests,
        logged_input_tokens,
        logged_cached_input_tokens,
        logged_output_tokens,
        {% for class in classes -%}
        {{ shared_up_to(class, class ~ '_to', 'all_' ~ class, class) }}
            - {{ shared_up_to(
                class,
                '(' ~ class ~ '_to - logged_' ~ class ~ ')',
                'all_' ~ class,
                class
            ) }} as {{ class }},
        {% endfor -%}
        {% for fact in facts + ['doubted_joules'] + at_ends -%}
        {%- set shared = 'energy_joules' if fact in at_ends else fact -%}
        {%- set weight = {at_ends[0]: 'low', at_ends[1]: 'high'}.get(fact, 'middle' if fact in by_energy else 'price') -%}
        {{ shared_up_to(shared, weight ~ '_tokens_to', 'all_' ~ weight ~ '_tokens', fact) }}
            - {{ shared_up_to(
                shared,
                '(' ~ weight ~ '_tokens_to - ' ~ weight ~ '_tokens)',
                'all_' ~ weight ~ '_tokens',
                fact
            ) }} as {{ fact }},
        {% endfor -%}
        -- What the log itself contradicts is in doubt of who asked, not of the engine.
        case when contradicted_part > 0 then concat_ws(',', hour_reasons, 'contradicted_totals') else hour_reasons end as doubt_reasons,
        greatest(hour_doubted_tokens_part, nullif(contradicted_part, 0)) as doubted_tokens_part,
        unbooked_tokens_part
    from running

),

-- Of the tokens that it has of an hour, as much is in doubt as of the hour's, or of its own log.
doubted_shares as (

    select
        *,
        {% for fact in token_doubts -%}
        {{ exact('cast(' ~ tenant_tokens() ~ ' as double) * ' ~ fact ~ '_part') }} as {{ fact }}{{ ',' if not loop.last }}
        {% endfor %}
    from shares

),

tenants as (

    select
        {{ (keys + ['request_team', 'tenant']) | join(', ') }},
        {% for count in logged -%}
        {{ exact_sum(count) }} as {{ count }},
        {% endfor -%}
        {% for fact in classes + facts + at_ends -%}
        {{ fact_sum(fact) }} as {{ fact }},
        {% endfor -%}
        {{ summed_doubts() }}
    from doubted_shares
    group by {{ (keys + ['request_team', 'tenant']) | join(', ') }}

),

explained as (

    select
        {{ keys | join(', ') }},
        {% for fact in classes + facts + at_ends + doubt_facts() -%}
        {{ fact_sum(fact) }} as {{ fact }}{{ ',' if not loop.last }}
        {% endfor %}
    from tenants
    group by {{ keys | join(', ') }}

),

days as (

    select
        {{ keys | join(', ') }},
        {% for fact in classes + facts -%}
        {{ fact_sum(fact) }} as {{ fact }},
        {% endfor -%}
        {{ summed_doubts() }}
    from model_hours
    group by {{ keys | join(', ') }}

),

-- The difference, so that the rows of a model and date add up to model_daily to the last digit.
rest as (

    select
        {{ columns_of('days', keys) }},
        case when explained.date is null then {{ no_requests() }} else {{ unattributed() }} end as tenant,
        case when explained.date is not null or log_dates.date is not null then 0 end as logged,
        {% for fact in classes + facts -%}
        days.{{ fact }} - coalesce(explained.{{ fact }}, 0) as {{ fact }},
        {% endfor -%}
        {% for fact in at_ends -%}
        days.energy_joules - coalesce(explained.{{ fact }}, 0) as {{ fact }},
        {% endfor -%}
        -- Parts are rounded, and their sum may be a millionth more.
        {% for fact in doubt_facts() -%}
        days.{{ fact }} - least(coalesce(explained.{{ fact }}, 0), days.{{ fact }}) as {{ fact }},
        {% endfor -%}
        days.listed_reasons
    from days
    left join explained
        on days.date = explained.date
        and days.billing_month = explained.billing_month
        {% for key in model_keys() -%}
        and days.{{ key }} is not distinct from explained.{{ key }}
        {% endfor -%}
    left join log_dates on days.date = log_dates.date

),

all_rows as (

    select
        {{ (keys + ['request_team', 'tenant']) | join(', ') }},
        true as is_served,
        {{ (logged + classes + facts + at_ends) | join(', ') }},
        {{ (doubt_facts() + ['listed_reasons']) | join(', ') }}
    from tenants
    union all
    select
        {{ keys | join(', ') }},
        cast(null as {{ dbt.type_string() }}) as request_team,
        tenant,
        true as is_served,
        logged as requests,
        logged as logged_input_tokens,
        logged as logged_cached_input_tokens,
        logged as logged_output_tokens,
        {{ (classes + facts + at_ends + doubt_facts() + ['listed_reasons']) | join(', ') }}
    from rest
    union all
    select
        {{ (keys + ['request_team', 'tenant']) | join(', ') }},
        false as is_served,
        {{ exact_sum('requests') }} as requests,
        {{ exact_sum('logged_input_tokens') }} as logged_input_tokens,
        {{ exact_sum('logged_cached_input_tokens') }} as logged_cached_input_tokens,
        {{ exact_sum('logged_output_tokens') }} as logged_output_tokens,
        {% for fact in classes + facts + at_ends + doubt_facts() -%}
        cast(null as {{ fact_type(fact) }}) as {{ fact }},
        {% endfor -%}
        cast(null as {{ dbt.type_string() }}) as listed_reasons
    from tenant_hours
    where not is_served
    group by {{ (keys + ['request_team', 'tenant']) | join(', ') }}

),

final as (

    select
        {{ (keys + ['request_team', 'tenant', 'is_served']) | join(', ') }},
        {% for fact in logged + classes + facts + at_ends -%}
        cast({{ fact }} as {{ fact_type(fact) }}) as {{ fact }},
        {% endfor -%}
        {{ doubt_columns(tokens=tenant_tokens()) }},
        cast('{{ var("method_version") }}' as {{ dbt.type_string() }}) as method_version
    from all_rows

)

select * from final
