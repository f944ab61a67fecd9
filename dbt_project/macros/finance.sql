-- The words of schema finance: what a reader without a manual sees where the book has a name of its own.

{# A name of the book (site, deployment, model, tenant) in plain words; what a source or the fleet file calls something
   keeps its name. `what`: the word for it where it is not known. #}
{% macro plain_name(name, what) -%}
    case {{ name }}
        when {{ unknown() }} then 'Unknown {{ what }}'
        when {{ unallocated() }} then 'Free accelerators'
        when {{ remainder() }} then 'Free accelerators'
        when {{ unused_commitment() }} then 'Unused commitment'
        when {{ unmetered() }} then 'Unmetered accelerators'
        when {{ no_requests() }} then 'No request log'
        when {{ unattributed() }} then 'Not in the request log'
        else {{ name }}
    end
{%- endmacro %}

{# Who pays: the first of these teams that is known. What no model holds is no claimant's. #}
{% macro payer(deployment, teams) -%}
    case
        when {{ deployment }} in ({{ unallocated() }}, {{ beside_the_models() }}) then {{ plain_name(deployment, 'deployment') }}
        else coalesce({{ teams | join(', ') }}, 'No team')
    end
{%- endmacro %}

{# Of a month, one amount of the rows of cost_daily on a basis. #}
{% macro on_basis(basis, column='cost_usd', also='true') -%}
    {{ money_sum("case when basis = '" ~ basis ~ "' and " ~ also ~ " then " ~ column ~ " end") }}
{%- endmacro %}

{# What of a month paid for idleness; unknown where it is unknown of a row that has a cost. #}
{% macro known_idle_cost() -%}
    case
        when count(case when basis = 'fully_loaded' then cost_usd end) = count(case when basis = 'fully_loaded' then idle_cost_usd end)
            then {{ on_basis('fully_loaded', 'idle_cost_usd') }}
    end
{%- endmacro %}

{# The closings that hold: of a month the newest event, if it closed the month. #}
{% macro active_closings() -%}
    select
        month,
        event,
        closed_at,
        figures_hash
    from (
        select
            *,
            row_number() over (partition by month order by event desc) as newest
        from {{ source('published', 'closings') }}
    ) as events
    where newest = 1 and action = 'closed'
{%- endmacro %}

{# The columns that name a row of `cost` and of `chargeback`; the last is the key. #}
{% macro cost_names() %}{{ return(['site', 'team', 'deployment', 'model', 'part', 'marts_key']) }}{% endmacro %}
{% macro chargeback_names() %}{{ return(['site', 'payer', 'tenant', 'model', 'marts_key']) }}{% endmacro %}

{# What each month cost as it is known now, whose it is and by part. Usage and variable charge for work: of what no model
   holds they have nothing. #}
{% macro known_costs() -%}
    select
        billing_month as month,
        {{ plain_name('site', 'site') }} as site,
        {{ payer('deployment', ['team']) }} as team,
        {{ plain_name('deployment', 'deployment') }} as deployment,
        {{ plain_name('model', 'model') }} as model,
        part,
        site || ' | ' || coalesce(team, '') || ' | ' || deployment || ' | ' || model as marts_key,
        {{ on_basis('fully_loaded') }} as known_cost_usd,
        {{ on_basis('allocation') }} as allocation_cost_usd,
        {{ on_basis('usage', also='deployment not in (' ~ beside_the_models() ~ ')') }} as usage_cost_usd,
        {{ on_basis('variable', also='deployment not in (' ~ beside_the_models() ~ ')') }} as variable_cost_usd,
        {{ known_idle_cost() }} as idle_cost_usd,
        {{ on_basis('fully_loaded', 'billed_cost_usd') }} as billed_cost_usd,
        bool_and(is_cash) as is_cash,
        bool_and(is_cost_complete) as is_cost_complete
    from {{ ref('cost_daily') }}
    group by 1, 2, 3, 4, 5, 6, 7
{%- endmacro %}

{# The month and the key of a row of tenant_daily in chargeback. #}
{% macro chargeback_month() -%}
    coalesce(billing_month, cast(date_trunc('month', date) as date))
{%- endmacro %}

{% macro chargeback_key() -%}
    site || ' | ' || case
                when deployment = {{ unallocated() }} then ' | ' || {{ remainder() }} || ' | ' || {{ remainder() }}
                else coalesce(request_team, team, '') || ' | ' || tenant || ' | ' || model
            end
{%- endmacro %}

{# Who pays for each month as it is known now, and what he got for it. Energy of free boards is in tenant_daily, their
   cost in cost_daily. #}
{% macro known_chargebacks() -%}
    select
        month,
        site,
        payer,
        tenant,
        model,
        marts_key,
        {{ exact_sum('requests') }} as requests,
        {{ exact_sum('input_tokens') }} as input_tokens,
        {{ exact_sum('cached_input_tokens') }} as cached_input_tokens,
        {{ exact_sum('output_tokens') }} as output_tokens,
        {{ exact('cast(sum(energy_joules) as double) / 3.6e6') }} as energy_kwh,
        {{ exact('cast(sum(location_gco2e) as double) / 1000') }} as location_kgco2e,
        {{ money_sum('known_cost_usd') }} as known_cost_usd,
        {{ money_sum('allocation_cost_usd') }} as allocation_cost_usd,
        {{ money_sum('usage_cost_usd') }} as usage_cost_usd,
        bool_and(is_cost_complete) as is_cost_complete
    from (
        select
            {{ chargeback_month() }} as month,
            {{ plain_name('site', 'site') }} as site,
            {{ payer('deployment', ['request_team', 'team']) }} as payer,
            case
                when deployment = {{ unallocated() }} then {{ plain_name('deployment', 'tenant') }}
                else {{ plain_name('tenant', 'tenant') }}
            end as tenant,
            {{ plain_name('model', 'model') }} as model,
            {{ chargeback_key() }} as marts_key,
            requests,
            input_tokens,
            cached_input_tokens,
            output_tokens,
            energy_joules,
            location_gco2e,
            fully_loaded_cost_usd as known_cost_usd,
            allocation_cost_usd,
            usage_cost_usd,
            coalesce(is_cost_complete, true) as is_cost_complete
        from {{ ref('tenant_daily') }}
        union all by name
        select
            billing_month as month,
            {{ plain_name('site', 'site') }} as site,
            {{ payer('deployment', ['team']) }} as payer,
            {{ plain_name('deployment', 'tenant') }} as tenant,
            {{ plain_name('model', 'model') }} as model,
            site || ' |  | ' || deployment || ' | ' || model as marts_key,
            case when basis = 'fully_loaded' then cost_usd end as known_cost_usd,
            case when basis = 'allocation' then cost_usd end as allocation_cost_usd,
            is_cost_complete
        from {{ ref('cost_daily') }}
        where deployment in ({{ beside_the_models() }}) and basis in ('allocation', 'fully_loaded')
    ) as paid
    group by month, site, payer, tenant, model, marts_key
{%- endmacro %}

{# Rows of a month as it is known, as it was closed, and with what was adjusted in it: one row for each that one of them
   has. Needs the CTEs `known`, `closings`, `frozen` and `adjusted`. #}
{% macro closed_and_known(names) -%}
    select
        keys.month,
        {{ columns_of('keys', names) }},
        case when known.month is null then 0 else known.known_cost_usd end as known_cost_usd,
        case
            -- What came after the closing was charged 0; what had no price then, at no amount.
            when closings.month is not null then case when frozen.month is null then 0 else frozen.closed_cost_usd end
            when known.known_cost_usd is not null or adjusted.adjustment_usd is not null
                then coalesce(known.known_cost_usd, 0) + coalesce(adjusted.adjustment_usd, 0)
        end as closed_cost_usd,
        coalesce(adjusted.adjustment_usd, 0) as adjustment_usd
    from (
        select month, {{ names | join(', ') }} from known
        union
        select month, {{ names | join(', ') }} from frozen
        union
        select month, {{ names | join(', ') }} from adjusted
    ) as keys
    left join closings on keys.month = closings.month
    left join known on {{ equal_keys('keys', 'known', ['month'] + names) }}
    left join frozen on {{ equal_keys('keys', 'frozen', ['month'] + names) }}
    left join adjusted on {{ equal_keys('keys', 'adjusted', ['month'] + names) }}
{%- endmacro %}

{# What was adjusted in a month of earlier ones. #}
{% macro adjusted_in(table, names) -%}
    select
        booked_month as month,
        {{ names | join(', ') }},
        {{ money_sum('adjustment_usd') }} as adjustment_usd
    from {{ source('published', table) }}
    group by booked_month, {{ names | join(', ') }}
{%- endmacro %}

{# The rows of a month as it was closed; adjustment_usd of that is for earlier months. #}
{% macro frozen_rows(table, names) -%}
    select
        closed.month,
        {{ columns_of('closed', names) }},
        closed.closed_cost_usd,
        closed.adjustment_usd
    from {{ source('published', table) }} as closed
    inner join closings on closed.event = closings.event
{%- endmacro %}

{# Of closed months, what is known now less what was closed and adjusted since: what the next publication adjusts, in the
   first month after it that is open. Needs the CTEs `known`, `closings` and `frozen`. What has no price any more is
   adjusted once it has one. #}
{% macro due_adjustments(table, names) -%}
made as (

    select
        month,
        {{ names | join(', ') }},
        {{ money_sum('adjustment_usd') }} as adjustment_usd
    from {{ source('published', table) }}
    group by month, {{ names | join(', ') }}

),

keys as (

    select month, {{ names | join(', ') }} from known where month in (select month from closings)
    union
    select month, {{ names | join(', ') }} from frozen
    union
    select month, {{ names | join(', ') }} from made where month in (select month from closings)

),

open_months as (

    select
        closings.month,
        min(cast(closings.month + to_months(cast(steps.step as integer)) as date)) as booked_month
    from closings
    cross join range(1, 241) as steps(step)
    where cast(closings.month + to_months(cast(steps.step as integer)) as date) not in (select month from closings)
    group by closings.month

),

final as (

    select
        keys.month,
        open_months.booked_month,
        {{ columns_of('keys', names) }},
        cast(
            coalesce(known.known_cost_usd, 0)
                - coalesce(frozen.closed_cost_usd - frozen.adjustment_usd, 0)
                - coalesce(made.adjustment_usd, 0) as {{ money_type() }}
        ) as adjustment_usd
    from keys
    inner join open_months on keys.month = open_months.month
    left join known on {{ equal_keys('keys', 'known', ['month'] + names) }}
    left join frozen on {{ equal_keys('keys', 'frozen', ['month'] + names) }}
    left join made on {{ equal_keys('keys', 'made', ['month'] + names) }}
    where (known.month is null or known.known_cost_usd is not null)
        and coalesce(known.known_cost_usd, 0)
        <> coalesce(frozen.closed_cost_usd - frozen.adjustment_usd, 0) + coalesce(made.adjustment_usd, 0)

)
{%- endmacro %}

{# The rows of `cost`: as closed and as known. CTEs known to amounts. #}
{% macro closed_and_known_costs() -%}
known as (

    {{ known_costs() }}

),

closings as (

    {{ active_closings() }}

),

frozen as (

    {{ frozen_rows('closed_costs', cost_names()) }}

),

adjusted as (

    {{ adjusted_in('adjustments', cost_names()) }}

),

amounts as (

    {{ closed_and_known(cost_names()) }}

)
{%- endmacro %}

{# The rows of `in_usd` with these amounts in the reporting currency, at the rate of the row's month. #}
{% macro with_currency(amounts, has_key=true) -%}
    select
        in_usd.*{{ ' exclude (marts_key)' if has_key }},
        currency_rates.currency,
        currency_rates.usd_per_unit,
        {% for amount in amounts -%}
        {{ money('cast(in_usd.' ~ amount ~ ' as double) / currency_rates.usd_per_unit') }} as {{ amount | replace('_usd', '_in_currency') }}
            {{- ',' if has_key or not loop.last }}
        {% endfor %}
        {%- if has_key %}in_usd.marts_key{% endif %}
    from in_usd
    left join {{ source('fleet', 'currency_rates') }} as currency_rates on in_usd.month = currency_rates.month
{%- endmacro %}
