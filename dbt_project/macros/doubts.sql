-- What is in doubt, for the checks and for the tables of finance.

{# The body of a check: what is in doubt for a reason, on the dates of the run; of a month's doubt, in the months that it
   touched. #}
{% macro in_doubt_for(reason, of_months=false) -%}
select
    date,
    entity_kind,
    entity,
    since_at,
    until_at,
    doubted_joules,
    doubted_tokens,
    doubted_usd,
    evidence
from {{ ref('doubts') }}
where reason = '{{ reason }}' and {{ in_run_months("cast(date_trunc('month', date) as date)") if of_months else in_run('date') }}
{%- endmacro %}

{# Sites of whose dollars of a month a hundredth or more is in doubt: one row per month, site and reason. A bill is about
   what each row of its site pays; a commitment that nothing uses has a row of its own. #}
{% macro money_doubts(has_commitments=true) -%}
    select
        doubts.month,
        doubts.site,
        doubts.reason
    from (
        select
            cast(date_trunc('month', date) as date) as month,
            entity as site,
            reason,
            {{ money_sum('doubted_usd') }} as doubted_usd
        from {{ ref('doubts') }}
        where reason in ('bill_differs'{{ ", 'missing_gpus'" if has_commitments }})
        group by 1, 2, 3
    ) as doubts
    inner join (
        select
            billing_month as month,
            site,
            {{ on_basis('fully_loaded') }} as cost_usd
        from {{ ref('cost_daily') }}
        group by 1, 2
    ) as costs on {{ equal_keys('doubts', 'costs', ['month', 'site']) }}
    where {{ ratio('doubts.doubted_usd', 'costs.cost_usd') }} >= {{ doubt_threshold() }}
{%- endmacro %}

{# Reasons of a row, with those for which a hundredth of its dollars or more is in doubt. #}
{% macro with_money_reasons(reasons, money_reasons) -%}
    case
        when {{ money_reasons }} is null then {{ reasons }}
        else array_to_string(list_sort(string_split(concat_ws(',', nullif({{ reasons }}, ''), {{ money_reasons }}), ',')), ',')
    end
{%- endmacro %}
