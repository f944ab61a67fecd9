-- What was adjusted of closed months, as FOCUS has corrections: in the billing month that got it, for the whole closed
-- month. Closings without a frozen FOCUS file have none: their file follows what is known.
{% set sites_of = ['billing_month', 'site', 'part'] %}
with closings as (

    {{ active_closings() }}

),

frozen_months as (

    select distinct closings.month, closings.closed_at
    from closings
    inner join {{ source('published', 'closed_focus') }} as frozen on closings.event = frozen.event

),

-- The key of a row of cost has the names of the book.
adjustments as (

    select
        adjustments.*,
        split_part(adjustments.marts_key, ' | ', 1) as book_site,
        nullif(split_part(adjustments.marts_key, ' | ', 2), '') as book_team,
        split_part(adjustments.marts_key, ' | ', 3) as book_deployment,
        split_part(adjustments.marts_key, ' | ', 4) as book_model
    from {{ source('published', 'adjustments') }} as adjustments
    inner join frozen_months
        on adjustments.month = frozen_months.month and adjustments.adjusted_at > frozen_months.closed_at

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

-- FOCUS writes its names in PascalCase.
-- noqa: disable=CP02
-- How much of the cost of a part invoices show: an adjustment has no device type, so a deployment with bought and rented
-- accelerators has one share.
billed as (

    select
        billing_month,
        BillingAccountId as site,
        x_Deployment as deployment,
        x_Part as part,
        {{ money_sum('BilledCost') }} as billed_usd,
        {{ money_sum('EffectiveCost') }} as effective_usd
    from {{ ref('focus_cost_and_usage') }}
    group by billing_month, BillingAccountId, x_Deployment, x_Part

),

site_billed as (

    select
        {{ sites_of | join(', ') }},
        {{ money_sum('billed_usd') }} as billed_usd,
        {{ money_sum('effective_usd') }} as effective_usd
    from billed
    group by {{ sites_of | join(', ') }}

),

described as (

    select
        adjustments.*,
        coalesce(
            {{ ratio('billed.billed_usd', 'billed.effective_usd') }},
            {{ ratio('site_billed.billed_usd', 'site_billed.effective_usd') }},
            case when adjustments.part in ({{ notional_parts() }}) then 0 else 1 end
        ) as billed_ratio,
        adjustments.part not in ({{ notional_parts() }}) as is_cash,
        {% for column in ['name', 'frequency', 'method'] -%}
        case adjustments.part
            {%- for part, sku in focus_skus().items() %}
            when '{{ part }}' then '{{ sku[column] }}'
            {%- endfor %}
        end as sku_{{ column }},
        {% endfor -%}
        case
            when adjustments.book_deployment not in ({{ beside_the_models() }}) then adjustments.book_deployment
        end as allocated_name,
        '{"model":' || {{ json_text('adjustments.book_model') }} || ',"namespace":null,"team":'
            || {{ json_text('adjustments.book_team') }} || '}' as tags_json,
        {% for start, month in {
            'charge_start_us': 'adjustments.month',
            'charge_end_us': "(adjustments.month + interval '1' month)",
            'billing_start_us': 'adjustments.booked_month',
            'billing_end_us': "(adjustments.booked_month + interval '1' month)"
        }.items() -%}
        {{ utc_us_of_local(month, "coalesce(sites.time_zone, 'UTC')") }} as {{ start }}{{ ',' if not loop.last }}
        {% endfor %}
    from adjustments
    left join sites on adjustments.book_site = sites.site
    left join billed
        on adjustments.month = billed.billing_month
        and adjustments.book_site = billed.site
        and adjustments.book_deployment = billed.deployment
        and adjustments.part = billed.part
    left join site_billed
        on adjustments.month = site_billed.billing_month
        and adjustments.book_site = site_billed.site
        and adjustments.part = site_billed.part

),

-- FOCUS writes its names in PascalCase.
final as (

    select
        month,
        booked_month,
        case
            when billed_ratio = 1 then cast(adjustment_usd as {{ money_type() }})
            else {{ money('cast(adjustment_usd as double) * billed_ratio') }}
        end as BilledCost,
        book_site as BillingAccountId,
        book_site as BillingAccountName,
        'Site' as BillingAccountType,
        'USD' as BillingCurrency,
        {{ from_epoch_us('billing_end_us') }} as BillingPeriodEnd,
        {{ from_epoch_us('billing_start_us') }} as BillingPeriodStart,
        'Usage' as ChargeCategory,
        'Correction' as ChargeClass,
        sku_name || ': ' || model || ', correction of ' || strftime(month, '%Y-%m') || ' (' || reason || ')' as ChargeDescription,
        sku_frequency as ChargeFrequency,
        {{ from_epoch_us('charge_end_us') }} as ChargePeriodEnd,
        {{ from_epoch_us('charge_start_us') }} as ChargePeriodStart,
        cast(adjustment_usd as {{ money_type() }}) as ContractedCost,
        cast(adjustment_usd as {{ money_type() }}) as EffectiveCost,
        'Self-hosted' as InvoiceIssuerName,
        cast(adjustment_usd as {{ money_type() }}) as ListCost,
        'Self-hosted' as ProviderName,
        'Self-hosted' as PublisherName,
        book_site as RegionId,
        book_site as RegionName,
        'site/' || book_site as ResourceId,
        book_site as ResourceName,
        'Site' as ResourceType,
        'AI and Machine Learning' as ServiceCategory,
        'LLM Inference' as ServiceName,
        'Generative AI' as ServiceSubcategory,
        tags_json as Tags,
        sku_method as x_AllocatedMethodId,
        case when allocated_name is not null then book_site || '/' || allocated_name end as x_AllocatedResourceId,
        allocated_name as x_AllocatedResourceName,
        case when allocated_name is not null then tags_json end as x_AllocatedTags,
        'fully_loaded' as x_Basis,
        book_deployment as x_Deployment,
        is_cash as x_IsCash,
        book_model as x_Model,
        part as x_Part,
        book_team as x_Team,
        method_version as x_MethodVersion,
        publication_id as x_PublicationId
    from described

)

select * from final
