-- The cost of basis `allocation` as FOCUS 1.2 writes it: what cost_daily has per model and part, by the prices that
-- made it. Whole billing months that the run touched, as cost_daily; where that is held back, this is too.
-- depends_on: {{ ref('cost_daily') }}
{{ config(replaces='billing_months') }}
{% set keys = ['date', 'billing_month'] + model_keys() %}
{% set of_price = ['capacity_source', 'commitment'] %}
{% set token_classes = ['input_tokens', 'cached_input_tokens', 'output_tokens'] %}

with priced_days as (

    select * from {{ ref('int_priced_cost_days') }}

),

capacity_by_source as (

    select * from {{ ref('int_capacity_by_source') }}

),

fees as (

    select * from {{ ref('int_site_fees') }}

),

hours as (

    select * from {{ ref('model_hourly') }} where {{ in_run_months('billing_month') }}

),

sites as (

    select * from {{ source('fleet', 'sites') }}

),

{{ focus_part_days(keys) }},

-- What no model holds is the remainder of its site; a SKU of an accelerator keeps its type.
allocated as (

    select
        date,
        billing_month,
        site,
        {% for key in ['deployment', 'model'] -%}
        case when is_held or deployment in ({{ beside_the_models() }}) then {{ key }} else {{ remainder() }} end as {{ key }},
        {% endfor -%}
        case when is_held then namespace end as namespace,
        case when is_held then team end as team,
        case when is_held or deployment in ({{ beside_the_models() }}) then device_type else 'none' end as device_type,
        case when is_held then meter_scope else 'none' end as meter_scope,
        case when is_held then role else 'unified' end as role,
        part,
        {% for column in of_price + ['is_billed'] -%}
        {{ column }},
        {% endfor -%}
        is_cash,
        case
            when part in (
                {%- for part, sku in focus_skus().items() if sku.by == 'gpu_hours' -%}
                '{{ part }}'{{ ', ' if not loop.last }}
                {%- endfor -%}
            )
                then device_type
        end as sku_device_type,
        cost_usd,
        memo_usd,
        unit_price,
        gpu_seconds,
        facility_energy_kwh,
        facility_usd,
        location_gco2e
    from part_days

),

{{ focus_unshared_fees() }},

all_costs as (

    select * from allocated
    union all
    select * from unshared_fees

),

-- What another price includes has the one price 0, whatever its own is by the hour.
sku_days as (

    select
        {% for key in keys -%}
        {{ key }},
        {% endfor -%}
        part,
        {{ of_price | join(',\n        ') }},
        is_cash,
        sku_device_type,
        memo_usd is not null as is_included,
        case when memo_usd is null then unit_price end as unit_price,
        {{ money_sum('cost_usd') }} as cost_usd,
        {{ money_sum('case when is_billed then cost_usd else 0 end') }} as billed_usd,
        {{ money_sum('coalesce(memo_usd, cost_usd)') }} as worth_usd,
        {{ money_sum('case when unit_price <> 0 then memo_usd / unit_price end') }} as included_charges,
        {{ exact_sum('gpu_seconds') }} as gpu_seconds,
        {{ exact_sum('facility_energy_kwh') }} as facility_energy_kwh,
        {{ money_sum('facility_usd') }} as facility_usd,
        {{ exact_sum('location_gco2e') }} as location_gco2e
    from all_costs
    group by
        {{ keys | join(', ') }},
        part,
        {{ of_price | join(', ') }},
        is_cash,
        sku_device_type,
        memo_usd is not null,
        case when memo_usd is null then unit_price end

),

-- kWh of a part are the facility's by its share of their price. Where electricity is free all of them are the part
-- `energy`.
consumed as (

    select
        *,
        case
            when deployment = {{ unused_commitment() }} then 0
            {% for part, sku in focus_skus().items() -%}
            when part = '{{ part }}' then
                {% if sku.by == 'gpu_hours' -%}
                cast(gpu_seconds as double) / 3600
                {%- elif sku.by == 'kwh' -%}
                case
                    when facility_usd <> 0
                        then cast(facility_energy_kwh as double) * {{ ratio('worth_usd', 'facility_usd') }}
                    else {{ 'cast(facility_energy_kwh as double)' if part == 'energy' else '0' }}
                end
                {%- else -%}
                case
                    when is_included then coalesce(cast(included_charges as double), 0)
                    when unit_price <> 0 then cast(worth_usd as double) / unit_price
                    else 0
                end
                {%- endif %}
            {% endfor -%}
        end as consumed_quantity
    from sku_days

),

-- What is paid for is cost ÷ price, so that price × quantity is the cost to the last digit. Without one price for all
-- of it the price is the mean.
quantified as (

    select
        *,
        case
            when not is_included and unit_price <> 0 then cast(cost_usd as double) / unit_price
            when not is_included and unit_price is null and cost_usd <> 0 and coalesce(consumed_quantity, 0) = 0 then 1
            when deployment = {{ unused_commitment() }} then cast(gpu_seconds as double) / 3600
            else coalesce(consumed_quantity, 0)
        end as pricing_quantity
    from consumed

),

priced as (

    select
        *,
        case
            when is_included then {{ money('0') }}
            when unit_price is not null then {{ money('unit_price') }}
            when pricing_quantity > 0 then {{ money('cast(cost_usd as double) / pricing_quantity') }}
            else {{ money('0') }}
        end as list_unit_price,
        part || coalesce('/' || sku_device_type, '') as sku_id,
        case when sku_device_type is null then 'site/' || site else 'site/' || site || '/' || sku_device_type end as resource_id
    from quantified

),

named as (

    select
        *,
        sku_id || case
            when capacity_source = 'commitment' then '/commitments/' || commitment
            when capacity_source = 'spot' then '/spot'
            else ''
        end || case
            when is_included then '/included'
            when unit_price is null then '/blended'
            else '/' || {{ number_text('list_unit_price') }}
        end as sku_price_id,
        case
            when capacity_source = 'commitment' then resource_id || '/commitments/' || commitment
            when deployment = {{ unused_commitment() }} then resource_id || '/commitments'
        end as commitment_id
    from priced

),

-- The charge that was split among models is that of a resource at a price.
split as (

    select
        *,
        {{ ratio(
            'cost_usd', 'sum(cost_usd) over (partition by date, billing_month, resource_id, sku_price_id)'
        ) }} as allocated_ratio,
        row_number() over (partition by {{ keys | join(', ') }} order by sku_price_id) as row_in_day
    from named

),

tokens as (

    select
        {{ keys | join(', ') }},
        {% for class in token_classes -%}
        {{ exact_sum(class) }} as {{ class }}{{ ',' if not loop.last }}
        {% endfor %}
    from hours
    group by {{ keys | join(', ') }}

),

described as (

    select
        {{ columns_of('split', keys) }},
        split.part,
        {{ columns_of('split', of_price + ['billed_usd']) }},
        split.is_cash,
        split.commitment_id,
        split.sku_id,
        split.sku_price_id,
        split.resource_id,
        split.sku_device_type,
        split.is_included,
        split.unit_price,
        split.list_unit_price,
        split.cost_usd,
        split.deployment = {{ unused_commitment() }} as is_unused,
        {{ quantity('split.pricing_quantity') }} as pricing_quantity,
        {{ quantity('coalesce(split.consumed_quantity, 0)') }} as consumed_quantity,
        case when split.part = 'energy' then split.facility_energy_kwh end as facility_energy_kwh,
        split.location_gco2e,
        {% for class in token_classes -%}
        case when split.row_in_day = 1 then tokens.{{ class }} end as {{ class }},
        {% endfor -%}
        {% for column in ['name', 'unit', 'frequency', 'method'] -%}
        case split.part
            {%- for part, sku in focus_skus().items() %}
            when '{{ part }}' then '{{ sku[column] }}'
            {%- endfor %}
        end as sku_{{ column }},
        {% endfor -%}
        {{ money('split.allocated_ratio') }} as allocated_ratio,
        case when split.deployment not in ({{ beside_the_models() }}) then split.deployment end as allocated_name,
        '{"model":' || {{ json_text('split.model') }} || ',"namespace":' || {{ json_text('split.namespace') }}
            || ',"team":' || {{ json_text('split.team') }} || '}' as tags_json,
        {{ utc_us_of_local('split.billing_month', "coalesce(sites.time_zone, 'UTC')") }} as month_start_us,
        {{ utc_us_of_local("(split.billing_month + interval '1' month)", "coalesce(sites.time_zone, 'UTC')") }} as month_end_us,
        {{ epoch_us('cast(split.date as ' ~ timestamp_type() ~ ')') }} as date_start_us
    from split
    left join sites on split.site = sites.site
    left join tokens
        on split.date = tokens.date
        and split.billing_month = tokens.billing_month
        {% for key in model_keys() -%}
        and split.{{ key }} is not distinct from tokens.{{ key }}
        {% endfor %}

),

-- FOCUS writes its names in PascalCase.
-- noqa: disable=CP02
final as (

    select
        date,
        billing_month,
        cast(billed_usd as {{ money_type() }}) as BilledCost,
        site as BillingAccountId,
        site as BillingAccountName,
        'Site' as BillingAccountType,
        'USD' as BillingCurrency,
        {{ from_epoch_us('month_end_us') }} as BillingPeriodEnd,
        {{ from_epoch_us('month_start_us') }} as BillingPeriodStart,
        'Usage' as ChargeCategory,
        cast(null as {{ dbt.type_string() }}) as ChargeClass,
        sku_name || ': ' || case
            when is_unused then 'committed, and no GPU there to use it'
            when deployment = {{ unmetered() }} then 'GPUs that no meter shows'
            when deployment = {{ remainder() }} then 'allocated to no model'
            else model
        end as ChargeDescription,
        sku_frequency as ChargeFrequency,
        {{ from_epoch_us('least(date_start_us + ' ~ day_us() ~ ', month_end_us)') }} as ChargePeriodEnd,
        {{ from_epoch_us('greatest(date_start_us, month_start_us)') }} as ChargePeriodStart,
        case when commitment_id is not null then 'Usage' end as CommitmentDiscountCategory,
        commitment_id as CommitmentDiscountId,
        case
            when commitment is not null then commitment
            when commitment_id is not null then 'Commitments of ' || sku_device_type || ' at ' || site
        end as CommitmentDiscountName,
        case when commitment_id is not null then pricing_quantity end as CommitmentDiscountQuantity,
        case when is_unused then 'Unused' when commitment_id is not null then 'Used' end as CommitmentDiscountStatus,
        case when commitment_id is not null then 'GPU Commitment' end as CommitmentDiscountType,
        case when commitment_id is not null then sku_unit end as CommitmentDiscountUnit,
        case when not is_unused then consumed_quantity end as ConsumedQuantity,
        case when not is_unused then sku_unit end as ConsumedUnit,
        cast(cost_usd as {{ money_type() }}) as ContractedCost,
        list_unit_price as ContractedUnitPrice,
        cast(cost_usd as {{ money_type() }}) as EffectiveCost,
        cast(null as {{ dbt.type_string() }}) as InvoiceId,
        'Self-hosted' as InvoiceIssuerName,
        cast(cost_usd as {{ money_type() }}) as ListCost,
        list_unit_price as ListUnitPrice,
        case
            when commitment_id is not null then 'Committed'
            when capacity_source = 'spot' then 'Dynamic'
            when capacity_source is not null and unit_price is null then 'Other'
            else 'Standard'
        end as PricingCategory,
        pricing_quantity as PricingQuantity,
        sku_unit as PricingUnit,
        'Self-hosted' as ProviderName,
        'Self-hosted' as PublisherName,
        site as RegionId,
        site as RegionName,
        resource_id as ResourceId,
        coalesce(sku_device_type, site) as ResourceName,
        case when sku_device_type is null then 'Site' else 'GPU Pool' end as ResourceType,
        'AI and Machine Learning' as ServiceCategory,
        'LLM Inference' as ServiceName,
        'Generative AI' as ServiceSubcategory,
        sku_id as SkuId,
        sku_name as SkuMeter,
        case when sku_device_type is not null then '{"x_DeviceType":' || {{ json_text('sku_device_type') }} || '}' end as SkuPriceDetails,
        sku_price_id as SkuPriceId,
        namespace as SubAccountId,
        namespace as SubAccountName,
        case when namespace is not null then 'Namespace' end as SubAccountType,
        tags_json as Tags,
        case
            when allocated_ratio is not null
                then '{"Elements":[{"AllocatedRatio":' || {{ number_text('allocated_ratio') }} || ',"UsageUnit":"'
                    || sku_unit || '","UsageQuantity":'
                || {{ number_text(money('cast(consumed_quantity as double)')) }} || '}]}'
        end as x_AllocatedMethodDetails,
        sku_method as x_AllocatedMethodId,
        case when allocated_name is not null then site || '/' || allocated_name end as x_AllocatedResourceId,
        allocated_name as x_AllocatedResourceName,
        case when allocated_name is not null then tags_json end as x_AllocatedTags,
        'allocation' as x_Basis,
        cached_input_tokens as x_CachedInputTokens,
        deployment as x_Deployment,
        device_type as x_DeviceType,
        facility_energy_kwh as x_EnergyKwh,
        input_tokens as x_InputTokens,
        is_cash as x_IsCash,
        location_gco2e as x_LocationGco2e,
        meter_scope as x_MeterScope,
        model as x_Model,
        output_tokens as x_OutputTokens,
        part as x_Part,
        role as x_Role,
        team as x_Team,
        cast('{{ var("method_version") }}' as {{ dbt.type_string() }}) as x_MethodVersion
    from described

)

select * from final
