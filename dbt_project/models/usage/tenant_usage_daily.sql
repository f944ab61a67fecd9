-- What each tenant used of each model, and what no logged request explains: shares of each hour, summed to dates.
-- tenant_daily adds the full cost. Keys of tenants are random: who has a share's last digit follows who asked first.
{% set keys = ['date', 'billing_month'] + model_keys() %}
{% set classes = tenant_token_facts() %}
{% set facts = tenant_facts() %}
{% set token_doubts = ['doubted_tokens', 'unbooked_tokens'] %}
{% set hour_keys = ['hour_start_at', 'billing_month'] + model_keys() %}

with model_hours as (

    select
        date,
        hour_start_at,
        coalesce(billing_month, cast(date_trunc('month', date) as date)) as billing_month,
        {{ (model_keys() + classes + facts + doubt_facts()) | join(', ') }},
        doubt_reasons,
        {% for fact in token_doubts -%}
        {{ ratio(fact, booked_tokens()) }} as {{ fact }}_part,
        {% endfor -%}
        {{ weighted_tokens('coalesce(computed_input_tokens, input_tokens)', 'cached_input_tokens', 'output_tokens') }} as weighted_tokens
    from {{ ref('model_hourly') }}
    where {{ in_run('date') }}

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
        model_hours.weighted_tokens as engine_tokens,
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
        ) }},
        case
            when model_hours.cached_input_tokens is null
                then {{ weighted_tokens('tenant_hours.logged_input_tokens', '0', 'tenant_hours.logged_output_tokens') }}
            else {{ weighted_tokens(
                'tenant_hours.logged_computed_input_tokens',
                'tenant_hours.logged_cached_input_tokens',
                'tenant_hours.logged_output_tokens'
            ) }}
        end as asked_tokens
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
        sum(asked_tokens) over running_window as asked_tokens_to,
        greatest(engine_tokens, sum(asked_tokens) over hour_window) as all_tokens
    from asked
    window
        hour_window as (partition by {{ hour_keys | join(', ') }}),
        running_window as (
            partition by {{ hour_keys | join(', ') }}
            order by coalesce(request_team, ''), request_team, first_asked, asked_tokens, tenant
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
        {% for fact in facts + ['doubted_joules'] -%}
        {{ shared_up_to(fact, 'asked_tokens_to', 'all_tokens', fact) }}
            - {{ shared_up_to(
                fact,
                '(asked_tokens_to - asked_tokens)',
                'all_tokens',
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
        {% for count in ['requests', 'logged_input_tokens', 'logged_cached_input_tokens', 'logged_output_tokens'] -%}
        {{ exact_sum(count) }} as {{ count }},
        {% endfor -%}
        {% for fact in classes + facts -%}
        {{ fact_sum(fact) }} as {{ fact }},
        {% endfor -%}
        {{ summed_doubts() }}
    from doubted_shares
    group by {{ (keys + ['request_team', 'tenant']) | join(', ') }}

),

explained as (

    select
        {{ keys | join(', ') }},
        {% for fact in classes + facts + doubt_facts() -%}
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
        {{ (['requests', 'logged_input_tokens', 'logged_cached_input_tokens', 'logged_output_tokens'] + classes + facts) | join(', ') }},
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
        {{ (classes + facts + doubt_facts() + ['listed_reasons']) | join(', ') }}
    from rest
    union all
    select
        {{ (keys + ['request_team', 'tenant']) | join(', ') }},
        false as is_served,
        {{ exact_sum('requests') }} as requests,
        {{ exact_sum('logged_input_tokens') }} as logged_input_tokens,
        {{ exact_sum('logged_cached_input_tokens') }} as logged_cached_input_tokens,
        {{ exact_sum('logged_output_tokens') }} as logged_output_tokens,
        {% for fact in classes + facts + doubt_facts() -%}
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
        {% for fact in ['requests', 'logged_input_tokens', 'logged_cached_input_tokens', 'logged_output_tokens'] + classes + facts -%}
        cast({{ fact }} as {{ fact_type(fact) }}) as {{ fact }},
        {% endfor -%}
        {{ doubt_columns(tokens=tenant_tokens()) }},
        cast('{{ var("method_version") }}' as {{ dbt.type_string() }}) as method_version
    from all_rows

)

select * from final
