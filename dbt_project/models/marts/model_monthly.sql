-- The headline per model and billing month, on the site's own calendar: whole months that the run touched, from the hours.
{{ config(replaces='months') }}

with hours as (

    select * from {{ ref('model_hourly') }} where {{ in_run_months('billing_month') }}

),

summed as (

    select
        billing_month as month,
        {% for key in model_keys() -%}
        {{ key }},
        {% endfor -%}
        count(distinct date) as booked_days,
        {{ summed_facts() }}
    from hours
    group by billing_month{% for key in model_keys() %}, {{ key }}{% endfor %}

),

final as (

    select
        month,
        cast(booked_days as integer) as booked_days,
        {% for key in model_keys() + energy_facts() + token_facts() -%}
        {{ key }},
        {% endfor -%}
        {{ model_ratios() }}
    from summed

)

select * from final
