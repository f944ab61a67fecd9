-- The fleet per day and site: what all models, idle and unknown energy add up to.
with model_days as (

    select * from {{ ref('model_daily') }} where {{ in_run('date') }}

),

unplaced as (

    select
        date,
        site,
        meter_scope,
        {{ exact_sum('energy_joules') }} as unplaced_joules,
        {{ exact_sum('error_joules') }} as error_joules,
        {{ exact_sum('covered_seconds') }} as covered_seconds
    from {{ ref('int_costed_energy') }}
    where unknown_reason = 'unplaced_meter'
    group by date, site, meter_scope

),

summed as (

    select
        date,
        site,
        meter_scope,
        count(distinct case when substr(model, 1, 2) <> '__' then model end) as models,
        {{ summed_facts() }},
        {{ summed_doubts() }}
    from model_days
    group by date, site, meter_scope

),

-- The energy of an unplaced meter has a column of its own: it is probably that of boards whose energy is summed here.
placed as (

    select
        summed.date,
        summed.site,
        summed.meter_scope,
        summed.models,
        coalesce(unplaced.unplaced_joules, {{ exact('0') }}) as unplaced_joules,
        nullif(summed.doubted_joules - coalesce(unplaced.unplaced_joules, {{ exact('0') }}), 0) as doubted_joules,
        summed.doubted_tokens,
        summed.unbooked_tokens,
        summed.listed_reasons,
        {% for fact in energy_facts() + token_facts() -%}
        {% if fact in ['energy_joules', 'unknown_joules', 'error_joules', 'covered_seconds'] -%}
        summed.{{ fact }}
            - coalesce(
                unplaced.{{ 'unplaced_joules' if fact in ['energy_joules', 'unknown_joules'] else fact }},
                {{ exact('0') }}
            ) as {{ fact }}
        {%- else -%}
        summed.{{ fact }}
        {%- endif %}{{ ',' if not loop.last }}
        {% endfor %}
    from summed
    left join unplaced on {{ equal_keys('summed', 'unplaced', ['date', 'site', 'meter_scope']) }}

),

final as (

    select
        date,
        site,
        meter_scope,
        cast(models as integer) as models,
        {% for fact in energy_facts() + token_facts() -%}
        cast({{ fact }} as {{ fact_type(fact) }}) as {{ fact }},
        {% endfor -%}
        cast(unplaced_joules as {{ exact_type() }}) as unplaced_joules,
        {{ model_ratios(is_of_rows=false) }},
        {{ doubt_columns() }},
        false as is_opening_balance
    from placed

)

select * from final
