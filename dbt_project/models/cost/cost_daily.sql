-- The full cost of each model and date, by basis and part, and what of the fleet's cost a basis gives to no model.
-- Whole billing months that the run touched: a demand charge follows the highest load of its month, so earlier dates of
-- the month change with it.
{{ config(replaces='billing_months') }}
{% set keys = ['date', 'billing_month'] + model_keys() %}
{% set remainder_keys = ['date', 'billing_month', 'site', 'part'] %}
{% set time_parts = [] %}
{% for part in cost_parts() if part.by == 'time' %}{% do time_parts.append("'" ~ part.name ~ "'") %}{% endfor %}

with days as (

    select * from {{ ref('int_cost_days') }}

),

fees as (

    select * from {{ ref('int_site_fees') }}

),

bill_months as (

    select * from {{ ref('int_bill_months') }}

),

bill_kinds as (

    select * from {{ ref('bill_kinds') }}

),

parts as (

    {% for part in cost_parts() -%}
    select '{{ part.name }}' as part, {{ part.is_cash }} as is_cash{{ ' union all' if not loop.last }}
    {% endfor %}

),

bases as (

    {% for basis in cost_bases() -%}
    select '{{ basis }}' as basis{{ ' union all' if not loop.last }}
    {% endfor %}

),

part_days as (

    select
        {% for key in keys -%}
        days.{{ key }},
        {% endfor -%}
        days.is_held,
        days.rate_source,
        case when parts.part = 'cooling' then days.cooling_basis end as cooling_basis,
        parts.part,
        parts.is_cash,
        {%- for what, column in {
            'own_usd': '_usd',
            'own_idle_usd': '_idle_usd',
            'memo_usd': '_memo_usd',
            'carried_usd': '_carried_usd',
            'carried_idle_usd': '_carried_idle_usd',
            'is_complete': '_is_complete'
        }.items() %}
        case parts.part
            {%- for part in cost_parts() %}
            when '{{ part.name }}' then days.{{ part.name }}{{ column }}
            {%- endfor %}
        end as {{ what }},
        {%- endfor %}
        case parts.part
            {%- for part in cost_parts() if part.by == 'energy' %}
            when '{{ part.name }}' then days.{{ part.name }}_variable_usd
            {%- endfor %}
            else {{ money('0') }}
        end as variable_usd,
        case parts.part
            {%- for part in cost_parts() %}
            when '{{ part.name }}' then days.{{ part.name }}{{ '_usage_usd' if part.by == 'time' else '_usd' }}
            {%- endfor %}
        end as usage_usd
    from days
    cross join parts

),

-- A part that a site does not have is no row. Electricity and capacity every model has: NULL where their price is
-- unknown. A model without a part of its own may carry what is not held of it: the licences of free boards of another
-- type. An unmetered accelerator draws an unknown share of each part that its site pays by energy.
present as (

    select
        {{ (keys + [
            'is_held', 'rate_source', 'cooling_basis', 'part', 'is_cash', 'memo_usd', 'carried_usd', 'carried_idle_usd',
            'variable_usd', 'is_complete'
        ]) | join(',\n        ') }},
        case when part in ('capacity', 'energy', 'overhead') or carried_usd is null then own_usd else coalesce(own_usd, 0) end as own_usd,
        case
            when part in ('capacity', 'energy', 'overhead') or carried_usd is null then usage_usd
            else coalesce(usage_usd, 0)
        end as usage_usd,
        case
            when coalesce(own_usd, case when part not in ('capacity', 'energy', 'overhead') then carried_usd * 0 end) = 0 then 0
            else own_idle_usd
        end as own_idle_usd
    from part_days
    where own_usd is not null
        or memo_usd is not null
        or carried_usd is not null
        or part in ('capacity', 'energy', 'overhead')
        or (deployment = {{ unmetered() }} and part <> 'cost_of_capital' and not is_complete)

),

model_rows as (

    select
        {% for key in keys -%}
        present.{{ key }},
        {% endfor -%}
        bases.basis,
        present.part,
        case bases.basis
            when 'variable' then case when present.own_usd is not null then present.variable_usd end
            when 'usage' then present.usage_usd
            when 'allocation' then present.own_usd
            else present.own_usd + coalesce(present.carried_usd, 0)
        end as cost_usd,
        -- Usage pays for a model's own idle energy, not for its idle time.
        case bases.basis
            when 'variable' then case when present.own_usd is not null then 0 end
            when 'usage'
                then case when present.part in ({{ time_parts | join(', ') }}) then present.own_idle_usd * 0 else present.own_idle_usd end
            when 'allocation' then present.own_idle_usd
            else present.own_idle_usd + coalesce(present.carried_idle_usd, 0)
        end as idle_cost_usd,
        present.memo_usd,
        case when present.memo_usd is not null then present.rate_source end as included_in,
        present.cooling_basis,
        present.is_cash,
        present.own_usd is not null and present.is_complete as is_complete
    from present
    cross join bases
    where present.is_held

),

-- Committed GPUs that are not there cost their capacity; those that are there without a meter also energy, of which
-- nothing is known.
beside_the_models as (

    select
        {% for key in keys -%}
        present.{{ key }},
        {% endfor -%}
        bases.basis,
        present.part,
        present.own_usd as cost_usd,
        present.own_idle_usd as idle_cost_usd,
        cast(null as {{ money_type() }}) as memo_usd,
        cast(null as {{ dbt.type_string() }}) as included_in,
        present.cooling_basis,
        present.is_cash,
        present.own_usd is not null and present.is_complete as is_complete
    from present
    cross join bases
    where (present.deployment = {{ unused_commitment() }} and present.part = 'capacity')
        or (present.deployment = {{ unmetered() }} and (present.part in ('capacity', 'cost_of_capital') or not present.is_complete))

),

-- A site's fee of an hour in which no row could share it.
unshared_fees as (

    {% for part in cost_parts() if part.fee -%}
    select
        date,
        billing_month,
        site,
        '{{ part.name }}' as part,
        {{ money_sum('case when ' ~ part.among ~ ' > 0 then 0 else ' ~ part.fee ~ ' end') }} as cost_usd,
        {{ money_sum('case when ' ~ part.among ~ ' > 0 then 0 else ' ~ part.fee ~ ' end') }} as idle_cost_usd,
        count({{ part.fee }}) = count(*) as is_complete
    from fees
    where {{ part.charged }} is not null
    group by date, billing_month, site
    {{ 'union all' if not loop.last }}
    {% endfor %}

),

fleet_parts as (

    select
        date,
        billing_month,
        site,
        part,
        own_usd as cost_usd,
        own_idle_usd as idle_cost_usd,
        own_usd is not null and is_complete as is_complete
    from present
    union all
    select date, billing_month, site, part, cost_usd, idle_cost_usd, is_complete from unshared_fees

),

fleet_costs as (

    select
        date,
        billing_month,
        site,
        part,
        {{ money_sum('cost_usd') }} as fleet_usd,
        {{ money_sum('idle_cost_usd') }} as fleet_idle_usd,
        min(case when is_complete then 1 else 0 end) = 1 as is_complete
    from fleet_parts
    group by date, billing_month, site, part

),

kind_months as (

    select
        fleet_costs.billing_month,
        fleet_costs.site,
        bill_kinds.kind,
        {{ money_sum('fleet_costs.fleet_usd') }} as computed_usd
    from fleet_costs
    inner join parts on fleet_costs.part = parts.part
    inner join bill_kinds on fleet_costs.part = bill_kinds.part
    where parts.is_cash
    group by fleet_costs.billing_month, fleet_costs.site, bill_kinds.kind

),

-- Of a month that is booked and billed whole: dollars of the bill per computed dollar of the parts that it pays for.
billed_parts as (

    select
        kind_months.billing_month,
        kind_months.site,
        bill_kinds.part,
        {{ ratio('bill_months.billed_usd', 'kind_months.computed_usd') }} as billed_ratio
    from kind_months
    inner join bill_months on {{ equal_keys('kind_months', 'bill_months', ['billing_month', 'site', 'kind']) }}
    inner join bill_kinds on kind_months.kind = bill_kinds.kind
    where bill_months.is_booked_whole and bill_months.is_billed

),

given_rows as (

    select * from model_rows
    union all
    select * from beside_the_models

),

given_costs as (

    select
        date,
        billing_month,
        site,
        part,
        basis,
        {{ money_sum('cost_usd') }} as given_usd,
        {{ money_sum('idle_cost_usd') }} as given_idle_usd
    from given_rows
    group by date, billing_month, site, part, basis

),

-- Basis and remainder are the fleet's cost, to the last digit.
remainders as (

    select
        fleet_costs.date,
        fleet_costs.billing_month,
        fleet_costs.site,
        {{ remainder() }} as deployment,
        cast(null as {{ dbt.type_string() }}) as namespace,
        cast(null as {{ dbt.type_string() }}) as team,
        {{ remainder() }} as model,
        'none' as device_type,
        'none' as meter_scope,
        'unified' as role,
        bases.basis,
        fleet_costs.part,
        fleet_costs.fleet_usd - coalesce(given_costs.given_usd, 0) as cost_usd,
        fleet_costs.fleet_idle_usd - coalesce(given_costs.given_idle_usd, 0) as idle_cost_usd,
        cast(null as {{ money_type() }}) as memo_usd,
        cast(null as {{ dbt.type_string() }}) as included_in,
        cast(null as {{ dbt.type_string() }}) as cooling_basis,
        parts.is_cash,
        fleet_costs.is_complete
    from fleet_costs
    cross join bases
    inner join parts on fleet_costs.part = parts.part
    left join given_costs
        on fleet_costs.date = given_costs.date
        and fleet_costs.billing_month = given_costs.billing_month
        and fleet_costs.site = given_costs.site
        and fleet_costs.part = given_costs.part
        and bases.basis = given_costs.basis

),

all_rows as (

    select * from given_rows
    union all
    select * from remainders

),

final as (

    select
        {% for key in keys + ['basis', 'part'] -%}
        all_rows.{{ key }},
        {% endfor -%}
        cast(all_rows.cost_usd as {{ money_type() }}) as cost_usd,
        cast(all_rows.idle_cost_usd as {{ money_type() }}) as idle_cost_usd,
        case
            when all_rows.is_cash and billed_parts.billed_ratio is not null
                then {{ money('cast(all_rows.cost_usd as double) * billed_parts.billed_ratio') }}
        end as billed_cost_usd,
        all_rows.memo_usd as memo_cost_usd,
        all_rows.included_in,
        all_rows.cooling_basis,
        all_rows.is_cash,
        all_rows.is_complete as is_cost_complete,
        cast('{{ var("method_version") }}' as {{ dbt.type_string() }}) as method_version
    from all_rows
    left join billed_parts on {{ equal_keys('all_rows', 'billed_parts', ['billing_month', 'site', 'part']) }}

)

select * from final
