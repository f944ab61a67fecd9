-- Who pays: the full cost of each model and date by the team and tenant whose requests it served, on each basis, and
-- what no request explains. Whole billing months that the run touched, as cost_daily.
-- depends_on: {{ ref('held_back_dates') }}
{{ config(replaces='billing_months') }}
{% set keys = ['date', 'billing_month'] + model_keys() %}
{# Keys of tenants are random: who has a cost's last digit follows what they used. DuckDB and Spark order NULLs otherwise. #}
{% set used = ['requests', 'logged_input_tokens', 'logged_output_tokens', 'claimed_gpu_seconds', 'energy_joules'] %}
{# What the hours of a model's date are weighed by: what a basis charges for. #}
{% set weights = {
    'variable': 'variable_cost_usd',
    'usage': 'active_seconds',
    'allocation': 'compute_cost_usd',
    'fully_loaded': 'compute_cost_usd'
} %}

with usages as (

    select * from {{ ref('tenant_usage_daily') }} where {{ in_run_months('billing_month') }} and is_served

),

cost_parts as (

    select * from {{ ref('cost_daily') }}
    where {{ in_run_months('billing_month') }} and deployment not in ({{ beside_the_models() }})

),

costs as (

    select
        {{ keys | join(', ') }},
        {% for basis in cost_bases() -%}
        {{ money_sum("case when basis = '" ~ basis ~ "' then cost_usd end") }} as {{ basis }}_cost_usd,
        {% endfor -%}
        min(case when is_cost_complete then 1 else 0 end) = 1 as is_cost_complete
    from cost_parts
    group by {{ keys | join(', ') }}

),

based as (

    select
        usages.*,
        case when tenant in ({{ unattributed() }}, {{ no_requests() }}) then 1 else 0 end as is_rest,
        {% for basis in cost_bases() -%}
        sum({{ weights[basis] }}) over row_window as all_{{ basis }},
        min({{ weights[basis] }}) over row_window < 0 as has_negative_{{ basis }},
        {% endfor -%}
        sum(claimed_gpu_seconds) over row_window as all_gpu_seconds
    from usages
    window row_window as (partition by {{ keys | join(', ') }})

),

-- By what model_hourly's hours cost, on the basis `usage` by their active time; without either, by claimed time; without
-- any, it is explained by no request. A negative cost is no weight: where an hour has one, each tenant has what its
-- hours cost, and of the rest its claimed time.
weighed as (

    select
        *,
        {% for basis in cost_bases() -%}
        case
            when all_{{ basis }} > 0 and not has_negative_{{ basis }} then coalesce({{ weights[basis] }}, 0)
            when all_gpu_seconds > 0 then coalesce(claimed_gpu_seconds, 0)
            else is_rest
        end as {{ basis }}_weight,
        cast(case when has_negative_{{ basis }} then coalesce({{ weights[basis] }}, 0) else 0 end as {{ money_type() }})
        as {{ basis }}_own_usd{{ ',' if not loop.last }}
        {% endfor %}
    from based

),

running as (

    select
        *,
        {% for basis in cost_bases() -%}
        sum({{ basis }}_weight) over row_window as all_{{ basis }}_weight,
        sum({{ basis }}_own_usd) over row_window as all_{{ basis }}_own_usd,
        sum({{ basis }}_weight) over running_window as {{ basis }}_weight_to{{ ',' if not loop.last }}
        {% endfor %}
    from weighed
    window
        row_window as (partition by {{ keys | join(', ') }}),
        running_window as (
            partition by {{ keys | join(', ') }}
            order by is_rest, coalesce(request_team, ''), request_team,
                {% for fact in used -%}coalesce({{ fact }}, -1), {% endfor -%}
                tenant
            rows unbounded preceding
        )

),

final as (

    select
        {{ columns_of('running', keys) }},
        {{ columns_of('running', ['request_team', 'tenant', 'requests']) }},
        {{ columns_of('running', tenant_token_facts()) }},
        {{ columns_of('running', [
            'claimed_gpu_seconds', 'energy_joules', 'energy_joules_at_low_weight', 'energy_joules_at_high_weight', 'location_gco2e'
        ]) }},
        {% for basis in cost_bases() -%}
        {% set usd = '(costs.' ~ basis ~ '_cost_usd - running.all_' ~ basis ~ '_own_usd)' -%}
        {% set weight = 'running.' ~ basis ~ '_weight' -%}
        {% set weight_to = 'running.' ~ basis ~ '_weight_to' -%}
        cast(
            running.{{ basis }}_own_usd
            + {{ shared_up_to(usd, weight_to, 'running.all_' ~ basis ~ '_weight') }}
            - {{ shared_up_to(usd, '(' ~ weight_to ~ ' - ' ~ weight ~ ')', 'running.all_' ~ basis ~ '_weight') }} as {{ money_type() }}
        ) as {{ basis }}_cost_usd,
        {% endfor -%}
        costs.is_cost_complete,
        {{ columns_of('running', doubt_facts() + doubt_names()) }},
        running.method_version
    from running
    left join costs
        on running.date = costs.date
        and running.billing_month = costs.billing_month
        {% for key in model_keys() -%}
        and running.{{ key }} is not distinct from costs.{{ key }}
        {% endfor %}

)

select * from final
