-- The interval of each headline figure of a month, by the GUM: the effects of a source are added with their signs, the
-- sources in squares. What cancels, cancels: a meter's gain in an idle share, a share between models in their sum.
{% set effects = ['joules', 'idle_joules', 'known_joules', 'matched_joules', 'kwh', 'grams', 'matched_grams', 'usd', 'matched_usd'] %}
{% set keys = ['month', 'site', 'model', 'meter_scope'] %}
{% set sources = ['meters', 'hosts', 'PUE', 'grid factors', 'idle floors', 'shares', 'gaps'] %}
{#  figure: its value, and what an error adds to it, both in the sums of the level (`t`) and the effects of a source (`e`).
    Sampling adds a part of what is `sampled`, by the meters' share of it; or, of joules, the variance `sampling`. `scoped`:
    joules of boards and of nodes are never added. `is_sum`: time that no meter covers only adds to it. #}
{% set figures = [
    {'name': 'energy_joules', 'scoped': true, 'is_sum': true, 'value': 't.joules', 'effect': 'e.joules', 'sampling': 't.joules2'},
    {
        'name': 'idle_energy_ratio', 'scoped': true, 'value': 't.idle_ratio',
        'effect': '(e.idle_joules - t.idle_ratio * e.known_joules) / t.known_joules',
        'sampling': 't.joules2 * t.idle_ratio * (1 - t.idle_ratio) / (t.known_joules * t.known_joules)'
    },
    {
        'name': 'joules_per_output_token', 'scoped': true, 'value': 't.matched_joules / t.matched_output_tokens',
        'effect': 'e.matched_joules / t.matched_output_tokens',
        'sampling': 't.matched_joules2 / (t.matched_output_tokens * t.matched_output_tokens)'
    },
    {
        'name': 'joules_per_total_token', 'scoped': true, 'value': 't.matched_joules / t.matched_total_tokens',
        'effect': 'e.matched_joules / t.matched_total_tokens',
        'sampling': 't.matched_joules2 / (t.matched_total_tokens * t.matched_total_tokens)'
    },
    {'name': 'facility_energy_kwh', 'is_sum': true, 'value': 't.kwh', 'effect': 'e.kwh', 'sampled': 't.kwh'},
    {'name': 'location_kgco2e', 'is_sum': true, 'value': 't.grams / 1e3', 'effect': 'e.grams / 1e3', 'sampled': 't.grams / 1e3'},
    {
        'name': 'location_gco2e_per_output_mtok', 'value': '1e6 * t.matched_grams / t.carbon_known_output_tokens',
        'effect': '1e6 * e.matched_grams / t.carbon_known_output_tokens',
        'sampled': '1e6 * t.matched_grams / t.carbon_known_output_tokens'
    },
    {'name': 'compute_cost_usd', 'is_sum': true, 'value': 't.compute_cost_usd', 'effect': 'e.usd', 'sampled': 't.usd'},
    {
        'name': 'compute_cost_usd_per_output_mtok', 'value': '1e6 * t.matched_compute_cost_usd / t.priced_output_tokens',
        'effect': '1e6 * e.matched_usd / t.priced_output_tokens', 'sampled': '1e6 * t.matched_usd / t.priced_output_tokens'
    },
    {
        'name': 'known_cost_usd', 'is_sum': true, 'value': 't.known_cost_usd', 'effect': 'e.usd / t.usd * t.energy_parts_usd',
        'sampled': 't.energy_parts_usd', 'needs': 't.is_energy_cost_evidenced'
    },
    {
        'name': 'known_cost_usd_per_output_mtok', 'is_sum': true, 'value': '1e6 * t.serving_cost_usd / t.output_tokens',
        'effect': '1e6 * e.usd / t.usd * t.serving_energy_parts_usd / t.output_tokens',
        'sampled': '1e6 * t.serving_energy_parts_usd / t.output_tokens', 'needs': 't.is_energy_cost_evidenced'
    }
] %}
{# Sums of a month: column to its source in model_monthly. #}
{% set of_models = {
    'joules': 'energy_joules', 'idle_joules': 'idle_joules', 'known_joules': 'idle_joules + productive_joules',
    'matched_joules': 'matched_joules', 'kwh': 'facility_energy_kwh', 'grams': 'location_gco2e',
    'matched_grams': 'matched_location_gco2e', 'compute_cost_usd': 'compute_cost_usd',
    'matched_compute_cost_usd': 'matched_compute_cost_usd', 'matched_output_tokens': 'matched_output_tokens',
    'carbon_known_output_tokens': 'carbon_known_output_tokens', 'priced_output_tokens': 'priced_output_tokens',
    'output_tokens': 'output_tokens'
} %}
{% set of_evidence = ['joules2', 'matched_joules2', 'metered_kwh', 'accelerator_kwh', 'usd', 'matched_usd'] %}
{% set of_costs = ['known_cost_usd', 'energy_parts_usd'] %}
{% set of_serving = ['serving_cost_usd', 'serving_energy_parts_usd'] %}
{# What a figure is divided by: never 0. #}
{% set divisors = [
    'known_joules', 'matched_output_tokens', 'carbon_known_output_tokens', 'output_tokens', 'priced_output_tokens', 'usd'
] %}
{% set total_tokens -%}
    case
            when count(case when matched_output_tokens > 0 and matched_total_tokens is null then 1 end) = 0
                then sum(matched_total_tokens)
        end
{%- endset %}

{{ config(replaces='months') }}

with effects as (

    select * from {{ ref('int_error_effects') }}

),

evidence as (

    select * from {{ ref('energy_evidence_daily') }} where {{ in_run_months('billing_month') }}

),

months as (

    select * from {{ ref('model_monthly') }} where {{ in_run_months('month') }}

),

costs as (

    select * from {{ ref('cost_daily') }}
    where basis = 'fully_loaded' and {{ in_run_months('billing_month') }}

),

levels as (

    select
        of_sites.is_all_sites,
        of_models.is_all_models,
        of_scopes.is_all_scopes
    from (values (true), (false)) as of_sites (is_all_sites)
    cross join (values (true), (false)) as of_models (is_all_models)
    cross join (values (true), (false)) as of_scopes (is_all_scopes)

),

evidence_months as (

    select
        billing_month as month,
        site,
        model,
        meter_scope,
        sum(energy_joules) as evidenced_joules,
        {{ exact_sum('sampling_joules2') }} as joules2,
        {{ exact_sum('case when is_matched then sampling_joules2 else 0 end') }} as matched_joules2,
        sum(metered_kwh) as metered_kwh,
        sum(accelerator_facility_kwh) as accelerator_kwh,
        sum(charged_energy_cost_usd) as usd,
        sum(case when is_matched then charged_energy_cost_usd else 0 end) as matched_usd
    from evidence
    group by billing_month, site, model, meter_scope

),

model_months as (

    select
        month,
        site,
        model,
        meter_scope,
        {% for name, source in of_models.items() -%}
        sum({{ source }}) as {{ name }},
        {% endfor -%}
        {{ total_tokens }} as matched_total_tokens
    from months
    group by month, site, model, meter_scope

),

cost_months as (

    select
        billing_month as month,
        site,
        model,
        meter_scope,
        sum(cost_usd) as known_cost_usd,
        sum(case when part in ({{ energy_parts() }}) then cost_usd else 0 end) as energy_parts_usd
    from costs
    group by billing_month, site, model, meter_scope

),

serving as (

    select distinct
        month,
        site,
        model
    from model_months
    where output_tokens > 0

),

joined as (

    select
        coalesce(model_months.month, cost_months.month) as month,
        coalesce(model_months.site, cost_months.site) as site,
        coalesce(model_months.model, cost_months.model) as model,
        coalesce(model_months.meter_scope, cost_months.meter_scope) as meter_scope,
        {{ columns_of('model_months', of_models | list + ['matched_total_tokens']) }},
        {{ columns_of('evidence_months', ['evidenced_joules'] + of_evidence) }},
        {{ columns_of('cost_months', of_costs) }},
        case when serving.model is not null then cost_months.known_cost_usd end as serving_cost_usd,
        case when serving.model is not null then cost_months.energy_parts_usd end as serving_energy_parts_usd
    from model_months
    full outer join cost_months on {{ equal_keys('model_months', 'cost_months', keys) }}
    left join evidence_months on {{ equal_keys('model_months', 'evidence_months', keys) }}
    left join serving
        on cost_months.month = serving.month and cost_months.site = serving.site and cost_months.model = serving.model

),

summed as (

    select
        joined.month,
        {{ level_keys('joined') }},
        levels.is_all_models,
        levels.is_all_scopes,
        {% for total in of_models | list + of_evidence + of_costs + of_serving -%}
        {% set sum = 'cast(sum(joined.' ~ total ~ ') as double)' -%}
        {{ 'nullif(' ~ sum ~ ', 0)' if total in divisors else sum }} as {{ total }},
        {% endfor -%}
        nullif(cast({{ total_tokens }} as double), 0) as matched_total_tokens,
        coalesce(sum(joined.evidenced_joules), 0) = coalesce(sum(joined.joules), 0) as is_evidenced,
        coalesce(sum(joined.usd), 0) <> 0 or coalesce(sum(joined.energy_parts_usd), 0) = 0 as is_energy_cost_evidenced
    from joined
    cross join levels
    group by joined.month, {{ level_groups('joined') }}, levels.is_all_models, levels.is_all_scopes

),

levelled as (

    select
        *,
        {{ ratio('idle_joules', 'known_joules') }} as idle_ratio,
        -- Of what is metered in part, sampling is a part of the metered share.
        {{ ratio('joules2', 'joules * joules') }} * {{ ratio('accelerator_kwh', 'kwh') }} * {{ ratio('accelerator_kwh', 'kwh') }}
        as sampled_variance_ratio
    from summed

),

-- A share of one model's joules is another model's: over all of them nothing is unsure. In doubles, as Spark's product of
-- two decimals has few digits.
level_effects as (

    select
        effects.month,
        {{ level_keys('effects') }},
        effects.error_source,
        effects.source_key,
        {% for effect in effects -%}
        cast(sum(effects.{{ effect }}) as double) as {{ effect }}{{ ',' if not loop.last }}
        {% endfor %}
    from effects
    cross join levels
    where not (levels.is_all_models and effects.error_source = 'shares')
    group by effects.month, {{ level_groups('effects') }}, effects.error_source, effects.source_key

),

variances as (

    {% for figure in figures -%}
    select
        {{ columns_of('t', keys) }},
        t.is_all_scopes,
        '{{ figure.name }}' as figure,
        {{ figure.value }} as value,
        t.is_evidenced and {{ figure.needs or 'true' }} as is_evidenced,
        t.metered_kwh,
        t.kwh,
        {{ relative_variance(
            figure.sampling or 't.sampled_variance_ratio * (' ~ figure.sampled ~ ') * (' ~ figure.sampled ~ ')', figure.value
        ) }} as sampling_variance,
        {%- set is_added = "e.error_source = 'gaps'" if figure.is_sum else 'false' %}
        case when not {{ is_added }} then {{ relative_variance(variance_of_bound(figure.effect), figure.value) }} end as variance,
        case when not {{ is_added }} then {{ relative_bound(figure.effect, figure.value) }} end as bound,
        case when {{ is_added }} then {{ relative_bound(figure.effect, figure.value) }} end as added,
        e.error_source
    from levelled as t
    left join level_effects as e on {{ equal_keys('t', 'e', keys) }}
    where {{ 'not t.is_all_scopes' if figure.scoped else 't.is_all_scopes' }}
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

),

-- Relative variances, in decimals: their sum does not depend on the order.
combined as (

    select
        {{ keys | join(', ') }},
        figure,
        max(value) as value,
        case
            when bool_and(is_evidenced)
                then max(value) * sqrt(cast(coalesce(sum(variance), 0) + coalesce(max(sampling_variance), 0) as double))
        end as standard_uncertainty,
        max(value) * sqrt(cast(coalesce(max(sampling_variance), 0) as double)) as sampling_uncertainty,
        max(value) * cast(coalesce(sum(bound), 0) as double) as bounds,
        max(value) * cast(coalesce(sum(added), 0) as double) as added_at_most,
        {% for source in sources -%}
        max(value) * sqrt(cast(coalesce(sum(case when error_source = '{{ source }}' then variance end), 0) as double))
        as {{ source | replace(' ', '_') | lower }}_uncertainty,
        {% endfor -%}
        max({{ ratio('metered_kwh', 'kwh') }}) as metered_ratio
    from variances
    where value is not null
    group by {{ keys | join(', ') }}, figure

),

with_half_width as (

    select
        *,
        {{ half_width('standard_uncertainty', 'bounds', 'sampling_uncertainty') }} as half_width
    from combined

),

final as (

    select
        {{ keys | join(', ') }},
        figure,
        value,
        case when half_width is not null then greatest(value - half_width, 0) end as value_low,
        value + half_width + added_at_most as value_high,
        cast(0.95 as double) as interval_level,
        case
            when standard_uncertainty is null then 'no_evidence'
            when standard_uncertainty = 0 and added_at_most = 0 then 'exact'
            else 'meters_and_stated_inputs'
        end as interval_basis,
        standard_uncertainty,
        sampling_uncertainty,
        {% for source in sources | reject('equalto', 'gaps') -%}
        {{ source | replace(' ', '_') | lower }}_uncertainty,
        {% endfor -%}
        greatest(gaps_uncertainty, added_at_most) as gaps_uncertainty,
        metered_ratio
    from with_half_width

)

select * from final
