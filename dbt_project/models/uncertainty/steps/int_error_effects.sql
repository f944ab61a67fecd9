-- What each source of error may add to the sums of a month: one row per month, site, model, meter scope and source. An
-- effect is the largest error either way (joules, kWh, grams, USD), with its sign, but of gaps, which only add; rows of
-- one source_key err together, of two keys independently. Dates that are held back are what was published of them.
-- depends_on: {{ ref('held_back_dates') }}
{% set sources = [
    {
        'name': 'meters', 'key': "meter_scope || '|' || device_type", 'joules': 'energy_error_ratio',
        'kwh': 'energy_error_ratio * accelerator_share', 'grams': 'energy_error_ratio * accelerator_share', 'floor': '0'
    },
    {
        'name': 'hosts', 'key': "site || '|' || host_basis", 'joules': '0',
        'kwh': 'host_error_ratio * (1 - accelerator_share)', 'grams': 'host_error_ratio * (1 - accelerator_share)', 'floor': '0'
    },
    {'name': 'PUE', 'key': 'site', 'joules': '0', 'kwh': 'pue_error_ratio', 'grams': 'pue_error_ratio', 'floor': '0'},
    {'name': 'grid factors', 'key': "site || '|' || carbon_basis", 'joules': '0', 'kwh': '0', 'grams': 'grid_error_ratio', 'floor': '0'},
    {
        'name': 'idle floors', 'key': "device_type || '|' || idle_basis", 'joules': '0', 'kwh': '0', 'grams': '0',
        'floor': 'floor_error_ratio'
    },
    {
        'name': 'shares', 'key': "site || '|' || model", 'joules': 'share_error_ratio', 'kwh': 'share_error_ratio',
        'grams': 'share_error_ratio', 'floor': '0'
    },
    {
        'name': 'gaps', 'key': 'site', 'joules': 'gap_ratio', 'kwh': 'gap_ratio', 'grams': 'gap_ratio', 'floor': '0',
        'is_unmatched': true
    }
] %}
{# A gap has no tokens that are matched with joules. #}
{% set keys = ['month', 'site', 'model', 'meter_scope'] %}

with evidence as (

    select * from {{ ref('energy_evidence_daily') }} where {{ in_run_months('billing_month') }}

),

stated_errors as (

    select * from {{ ref('stated_errors') }}

),

hours as (

    select * from {{ ref('model_hourly') }} where {{ in_run_months('billing_month') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

-- Time for which nothing is booked, as it was held and no meter covers it.
gap_dates as (

    select
        hours.billing_month as month,
        hours.date,
        hours.site,
        hours.model,
        hours.meter_scope,
        cast(sum(hours.energy_joules) as double) as joules,
        greatest(cast(coalesce(sum(hours.claimed_gpu_seconds), 0) - coalesce(sum(hours.gpu_seconds), 0) as double), 0) as gap_seconds,
        {{ ratio('sum(hours.energy_joules)', 'sum(hours.gpu_seconds)') }} as mean_watts,
        -- What is around a board has no limit that is known.
        max(case when hours.meter_scope = 'board' then device_types.power_limit_watts / device_types.gpus end) as limit_watts
    from hours
    left join device_types on hours.device_type = device_types.device_type
    group by hours.billing_month, hours.date, hours.site, hours.model, hours.meter_scope

),

-- It drew what the rest of its date did, or more: at most what the limits of its boards allow.
gaps as (

    select
        month,
        site,
        model,
        meter_scope,
        {{ ratio('sum(gap_seconds * greatest(coalesce(mean_watts, 0), coalesce(limit_watts, 0)))', 'sum(joules)') }} as gap_ratio
    from gap_dates
    group by month, site, model, meter_scope

),

bases as (

    select
        billing_month as month,
        site,
        model,
        meter_scope,
        device_type,
        host_basis,
        idle_basis,
        attribution_confidence,
        carbon_basis,
        case
            when substr(carbon_basis, 1, 7) = 'yearly_' then 'yearly'
            when substr(carbon_basis, 1, 13) = 'wider_yearly_' then 'wider_yearly'
            else carbon_basis
        end as grid_basis,
        is_matched,
        cast(sum(energy_joules) as double) as joules,
        cast(sum(idle_joules) as double) as idle_joules,
        cast(sum(idle_joules + productive_joules) as double) as known_joules,
        cast(sum(idle_floor_joules) as double) as idle_floor_joules,
        cast(sum(facility_energy_kwh) as double) as kwh,
        cast(sum(location_gco2e) as double) as grams,
        cast(sum(charged_energy_cost_usd) as double) as usd,
        coalesce({{ ratio('sum(error_joules)', 'sum(energy_joules)') }}, 0) as energy_error_ratio,
        coalesce({{ ratio('sum(share_error_joules)', 'sum(energy_joules)') }}, 0) as token_share_error_ratio,
        coalesce({{ ratio('sum(accelerator_facility_kwh)', 'sum(facility_energy_kwh)') }}, 0) as accelerator_share
    from evidence
    group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11

),

-- What has no stated error has none: the host is inside the meter, or there is no floor.
with_errors as (

    select
        bases.*,
        coalesce(hosts.error_ratio, 0) as host_error_ratio,
        case when bases.meter_scope = 'facility' then 0 else pue.error_ratio end as pue_error_ratio,
        coalesce(grids.error_ratio, 0) as grid_error_ratio,
        coalesce(floors.error_ratio, 0) as floor_error_ratio,
        greatest(coalesce(shares.error_ratio, 0), token_share_error_ratio) as share_error_ratio,
        coalesce(gaps.gap_ratio, 0) as gap_ratio
    from bases
    inner join stated_errors as pue on pue.input = 'pue' and pue.basis = 'stated'
    left join stated_errors as hosts on hosts.input = 'host' and bases.host_basis = hosts.basis
    left join stated_errors as grids on grids.input = 'grid' and bases.grid_basis = grids.basis
    left join stated_errors as floors on floors.input = 'idle_floor' and bases.idle_basis = floors.basis
    left join stated_errors as shares on shares.input = 'attribution' and bases.attribution_confidence = shares.basis
    left join gaps on {{ equal_keys('bases', 'gaps', keys) }}

),

effects as (

    {% for source in sources -%}
    select
        {{ keys | join(', ') }},
        '{{ source.name }}' as error_source,
        {{ source.key }} as source_key,
        {{ source.joules }} * joules as joules,
        {{ source.joules }} * idle_joules + {{ source.floor }} * idle_floor_joules as idle_joules,
        {{ source.joules }} * known_joules as known_joules,
        case when {{ 'false' if source.is_unmatched else 'is_matched' }} then {{ source.joules }} * joules else 0 end as matched_joules,
        {{ source.kwh }} * kwh as kwh,
        {{ source.grams }} * grams as grams,
        case when {{ 'false' if source.is_unmatched else 'is_matched' }} then {{ source.grams }} * grams else 0 end as matched_grams,
        {{ source.kwh }} * usd as usd,
        case when {{ 'false' if source.is_unmatched else 'is_matched' }} then {{ source.kwh }} * usd else 0 end as matched_usd
    from with_errors
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

),

{% set sums = ['joules', 'idle_joules', 'known_joules', 'matched_joules', 'kwh', 'grams', 'matched_grams', 'usd', 'matched_usd'] %}
final as (

    select
        {{ keys | join(', ') }},
        error_source,
        source_key,
        {% for sum in sums -%}
        {{ exact_sum(exact(sum)) }} as {{ sum }}{{ ',' if not loop.last }}
        {% endfor %}
    from effects
    group by {{ keys | join(', ') }}, error_source, source_key

)

select * from final
