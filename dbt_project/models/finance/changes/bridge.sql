-- Why a month cost more or less than the month before: the amounts between before_usd and after_usd add up to their
-- difference, in each row and in every sum of rows.
with costs as (

    select * from {{ ref('cost_daily') }} where basis in ('variable', 'usage', 'allocation', 'fully_loaded')

),

hours as (

    select * from {{ ref('site_power_hourly') }}

),

drivers as (

    select * from {{ ref('cost_drivers_hourly') }}

),

served as (

    select * from {{ ref('model_hourly') }}

),

months as (

    select * from {{ ref('model_monthly') }}

),

held_back as (

    select distinct date from {{ ref('held_back_dates') }}

),

{{ closed_and_known_costs() }},

-- What work is counted in for a part, and whether its price is that of an hour, or that of a month of whatever length.
parts as (

    {% for part in cost_parts() -%}
    select
        '{{ part.name }}' as part,
        '{{ part_unit(part) }}' as unit,
        {{ 'false' if part.fee or part.name == 'cost_of_capital' else 'true' }} as is_paid_by_hour{{ ' union all' if not loop.last }}
    {% endfor %}

),

{{ bridge_days() }},

side_costs as (

    select
        sides.month,
        sides.site,
        sides.is_after,
        case when costs.deployment in ({{ beside_the_models() }}) then costs.deployment else costs.model end as model,
        costs.part,
        {{ money_sum("case when costs.basis = 'fully_loaded' then costs.cost_usd end") }} as cost_usd,
        {{ money_sum("case when costs.basis = 'allocation' then costs.cost_usd end") }} as own_usd,
        -- What no model holds does no work, whatever a basis gives away of it.
        {{ money_sum(
            "case when costs.deployment not in (" ~ beside_the_models() ~ ", " ~ remainder() ~ ") and costs.basis = (case when"
            ~ " parts.unit = 'productive_kwh' then 'variable' else 'usage' end) then costs.cost_usd end"
        ) }} as work_usd,
        bool_and(costs.is_cost_complete) as is_cost_complete
    from sides
    inner join costs
        on sides.site = costs.site
        and sides.date = costs.date
        and (case when sides.is_after then sides.month else sides.compared_month end) = costs.billing_month
    inner join parts on costs.part = parts.part
    group by 1, 2, 3, 4, 5

),

side_drivers as (

    select
        sides.month,
        sides.site,
        sides.is_after,
        drivers.model,
        cast({{ exact_sum('drivers.active_gpu_seconds') }} as double) / 3600 as active_gpu_hours,
        cast({{ exact_sum('drivers.claimed_gpu_seconds') }} as double) / 3600 as claimed_gpu_hours,
        cast({{ exact_sum('drivers.facility_energy_kwh') }} as double) as facility_kwh
    from sides
    inner join drivers
        on sides.site = drivers.site
        and sides.date = drivers.date
        and (case when sides.is_after then sides.month else sides.compared_month end) = drivers.billing_month
    where drivers.is_held
    group by 1, 2, 3, 4

),

-- Of the month before, which part of a model's accelerators is written off by the month: owned ones alone have a cost
-- of capital. The row without a model is the site's, for what no model holds.
owned as (

    {% for model in ['drivers.model', 'cast(null as ' ~ dbt.type_string() ~ ')'] -%}
    select
        sides.month,
        sides.site,
        {{ model }} as model,
        {{ ratio(
            'sum(case when drivers.capital_rate_usd_per_gpu_hour is not null then drivers.capacity_cost_usd else 0 end)',
            'sum(drivers.capacity_cost_usd)'
        ) }} as owned_ratio
    from sides
    inner join drivers
        on sides.site = drivers.site and sides.date = drivers.date and sides.compared_month = drivers.billing_month
    where not sides.is_after
    group by 1, 2, 3
    {{ 'union all' if not loop.last }}
    {% endfor %}

),

side_work as (

    select
        sides.month,
        sides.site,
        sides.is_after,
        served.model,
        cast({{ exact_sum('served.productive_joules') }} as double) / 3.6e6 as productive_kwh,
        cast({{ exact_sum('served.total_tokens') }} as double) as total_tokens,
        {{ ratio('sum(served.gpu_seconds)', 'sum(served.claimed_gpu_seconds)') }} as metered_ratio
    from sides
    inner join served
        on sides.site = served.site
        and sides.date = served.date
        and (case when sides.is_after then sides.month else sides.compared_month end) = served.billing_month
    group by 1, 2, 3, 4

),

-- A part that a model did not have costs nothing; one without a price, an unknown amount.
keys as (

    select distinct month, site, model, part from side_costs

),

models as (

    select
        month,
        site,
        model,
        bool_or(is_after) as is_in_month,
        bool_or(not is_after) as is_in_compared
    from side_costs
    group by month, site, model

),

paired as (

    select
        keys.month,
        keys.site,
        keys.model,
        keys.part,
        parts.unit,
        models.is_in_month and models.is_in_compared as is_in_both,
        models.is_in_month,
        lengths.length_ratio * case
            when not parts.is_paid_by_hour then lengths.hour_of_month_ratio
            when keys.part = 'capacity'
                then 1 - coalesce(owned.owned_ratio, site_owned.owned_ratio, 0)
                    + coalesce(owned.owned_ratio, site_owned.owned_ratio, 0) * lengths.hour_of_month_ratio
            else 1
        end as paid_ratio,
        lengths.length_ratio,
        coalesce(
            case when parts.unit = 'productive_kwh' then after_work.metered_ratio / nullif(before_work.metered_ratio, 0) end, 1
        ) as metered_change,
        coalesce(after_costs.cost_usd, before_costs.cost_usd * 0) as after_usd,
        coalesce(before_costs.cost_usd, after_costs.cost_usd * 0) as before_usd,
        cast(coalesce(after_costs.work_usd, 0) as double) as after_work_usd,
        cast(coalesce(before_costs.work_usd, 0) as double) as before_work_usd,
        {% for side in ['after', 'before'] -%}
        case parts.unit
            when 'productive_kwh' then {{ side }}_work.productive_kwh
            when 'facility_kwh' then {{ side }}_drivers.facility_kwh
            else {{ side }}_drivers.active_gpu_hours
        end as {{ side }}_quantity,
        cast({{ side }}_costs.own_usd as double) as {{ side }}_own_usd,
        case when parts.unit = 'active_gpu_hours' then {{ side }}_drivers.claimed_gpu_hours else {{ side }}_drivers.facility_kwh end
            as {{ side }}_held_quantity,
        {{ side }}_work.total_tokens as {{ side }}_tokens,
        {% endfor -%}
        coalesce(after_costs.is_cost_complete, true) and coalesce(before_costs.is_cost_complete, true) as is_cost_complete
    from keys
    inner join parts on keys.part = parts.part
    inner join lengths on {{ equal_keys('keys', 'lengths', ['month', 'site']) }}
    inner join models on {{ equal_keys('keys', 'models', ['month', 'site', 'model']) }}
    left join owned on {{ equal_keys('keys', 'owned', ['month', 'site', 'model']) }}
    left join owned as site_owned
        on keys.month = site_owned.month and keys.site = site_owned.site and site_owned.model is null
    {% for side, is_after in [('after', ''), ('before', 'not ')] -%}
    left join side_costs as {{ side }}_costs
        on {{ equal_keys('keys', side ~ '_costs', ['month', 'site', 'model', 'part']) }} and {{ is_after }}{{ side }}_costs.is_after
    left join side_drivers as {{ side }}_drivers
        on {{ equal_keys('keys', side ~ '_drivers', ['month', 'site', 'model']) }} and {{ is_after }}{{ side }}_drivers.is_after
    left join side_work as {{ side }}_work
        on {{ equal_keys('keys', side ~ '_work', ['month', 'site', 'model']) }} and {{ is_after }}{{ side }}_work.is_after
    {% endfor %}

),

-- What the month before would have cost if it had been as long, and as much of it metered.
scaled as (

    select
        *,
        cast(before_usd as double) * paid_ratio as same_length_usd,
        cast(before_usd as double) * paid_ratio * metered_change as same_cover_usd,
        before_work_usd * paid_ratio * metered_change as base_work_usd,
        before_quantity * length_ratio * metered_change as base_quantity,
        before_own_usd * paid_ratio as base_own_usd,
        before_held_quantity * length_ratio as base_held_quantity,
        before_tokens * length_ratio as base_tokens
    from paired

),

-- With W for the cost of work, q for its quantity, v for tokens and C for the whole cost: what work and idleness cost by
-- the price alone is C1 - C1*(W0/q0)/(W1/q1), efficiency is W0/q0*(q1/v1 - q0/v0)*v1, and volume the rest of W1*(W0/q0)/(W1/q1) - W0.
-- Of a model that did no work the price is that of all hours that it claimed, or of all its kWh.
priced as (

    select
        *,
        case
            when after_quantity > 0 and base_quantity > 0 and after_work_usd > 0 and base_work_usd > 0
                then (base_work_usd / base_quantity) / (after_work_usd / after_quantity)
            when after_held_quantity > 0 and base_held_quantity > 0 and after_own_usd > 0 and base_own_usd > 0
                then (base_own_usd / base_held_quantity) / (after_own_usd / after_held_quantity)
        end as price_ratio
    from scaled

),

effects as (

    select
        *,
        {{ money('same_length_usd') }} - before_usd as calendar_usd,
        {{ money('same_cover_usd') }} - {{ money('same_length_usd') }} as coverage_usd,
        case
            when price_ratio is not null then {{ money('cast(after_usd as double) * (1 - price_ratio)') }}
            when base_work_usd = 0 and before_usd = 0 and after_quantity > 0 then after_usd
            else 0
        end as price_usd,
        case
            when price_ratio is not null and base_quantity > 0 and after_tokens > 0 and base_tokens > 0
                then {{ money('base_work_usd * (after_quantity / base_quantity - after_tokens / base_tokens)') }}
            else 0
        end as efficiency_usd,
        case
            when price_ratio is not null then {{ money('after_work_usd * price_ratio - base_work_usd') }}
            when base_work_usd = 0 and before_usd = 0 then 0
            else {{ money('after_work_usd - base_work_usd') }}
        end as work_change_usd
    from priced

),

-- A closed month is what it was closed with, an open one what is booked and adjusted in it.
adjustments as (

    select
        month,
        site,
        model,
        part,
        {{ money_sum('closed_cost_usd - known_cost_usd') }} as adjustment_usd
    from amounts
    group by month, site, model, part

),

bridged as (

    select
        month,
        {{ plain_name('site', 'site') }} as site,
        {{ plain_name('model', 'model') }} as model,
        part,
        before_usd,
        case when is_in_both then calendar_usd else no_usd end as calendar_usd,
        case when is_in_both then coverage_usd else no_usd end as coverage_usd,
        case when is_in_both then price_usd + no_usd else no_usd end as price_usd,
        case when is_in_both then work_change_usd - efficiency_usd + no_usd else no_usd end as volume_usd,
        case when is_in_both then efficiency_usd + no_usd else no_usd end as efficiency_usd,
        case
            when is_in_both then after_usd - before_usd - calendar_usd - coverage_usd - price_usd - work_change_usd
            else no_usd
        end as idle_usd,
        case when is_in_month and not is_in_both then after_usd else no_usd end as new_usd,
        case when not is_in_month then -before_usd else no_usd end as gone_usd,
        no_usd as adjustments_usd,
        after_usd,
        is_cost_complete
    from (select *, after_usd * 0 as no_usd from effects) as known_effects

),

whole_adjustments as (

    select
        compared.month,
        {{ plain_name('compared.site', 'site') }} as site,
        adjustments.model,
        adjustments.part,
        {{ money_sum('case when adjustments.month = compared.compared_month then adjustments.adjustment_usd else 0 end') }} as before_usd,
        {{ money_sum('case when adjustments.month = compared.month then adjustments.adjustment_usd else 0 end') }} as after_usd
    from compared
    inner join adjustments
        on adjustments.site = {{ plain_name('compared.site', 'site') }}
        and adjustments.month in (compared.month, compared.compared_month)
    where compared.is_whole
    group by 1, 2, 3, 4
    having bool_or(adjustments.adjustment_usd <> 0)

),

summed as (

    select
        month,
        site,
        model,
        part,
        {% for effect in bridge_effects() -%}
        sum({{ effect }}_usd) as {{ effect }}_usd,
        {% endfor -%}
        sum(adjustments_usd) as adjustments_usd,
        sum(before_usd) as before_usd,
        sum(after_usd) as after_usd,
        bool_and(is_cost_complete) as is_cost_complete
    from (
        select * from bridged
        union all by name
        select
            month,
            site,
            model,
            part,
            before_usd,
            {% for effect in bridge_effects() -%}
            0 as {{ effect }}_usd,
            {% endfor -%}
            after_usd - before_usd as adjustments_usd,
            after_usd,
            true as is_cost_complete
        from whole_adjustments
    ) as rows_of_both
    group by month, site, model, part

),

in_usd as (

    select
        summed.month,
        compared.compared_month,
        compared.is_whole as is_of_whole_months,
        lengths.days,
        summed.site,
        summed.model,
        summed.part,
        cast(summed.before_usd as {{ money_type() }}) as before_usd,
        {% for effect in bridge_effects() + ['adjustments'] -%}
        cast(summed.{{ effect }}_usd as {{ money_type() }}) as {{ effect }}_usd,
        {% endfor -%}
        cast(summed.after_usd as {{ money_type() }}) as after_usd,
        summed.is_cost_complete
    from summed
    inner join compared on summed.month = compared.month and summed.site = {{ plain_name('compared.site', 'site') }}
    inner join lengths on compared.month = lengths.month and compared.site = lengths.site

),

-- Each step is at the rate of the month: what the month before is worth more or less at that rate is a step of its own.
final as (

    select
        in_usd.*,
        rates.currency,
        rates.usd_per_unit,
        {{ money('cast(in_usd.before_usd as double) / compared_rates.usd_per_unit') }} as before_in_currency,
        {{ money('cast(in_usd.after_usd as double) / rates.usd_per_unit') }} as after_in_currency,
        {{ money(
            'cast(in_usd.before_usd as double) * (1 / rates.usd_per_unit - 1 / compared_rates.usd_per_unit)'
        ) }} as currency_in_currency
    from in_usd
    left join {{ source('fleet', 'currency_rates') }} as rates on in_usd.month = rates.month
    left join {{ source('fleet', 'currency_rates') }} as compared_rates on in_usd.compared_month = compared_rates.month

)

select * from final
