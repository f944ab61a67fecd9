-- What a token costs on each platform when its accelerators are partly used: at prices that hold the electricity, and
-- by a stack of its own, where electricity follows the load.
{{ config(replaces='all') }}
{% set keys = work_keys() + ['target_output_tokens_per_second_per_user', 'platform'] %}
{# Measured at other concurrencies, a configuration is the same if nothing else differs. #}
{% set curve = configuration_keys() | reject('equalto', 'concurrency') | list + [
    'software', 'input_length_tokens', 'output_length_tokens', 'power_basis'
] %}

with assumptions as (

    select * from {{ ref('platform_assumptions') }}

),

platforms as (

    select * from {{ ref('platforms') }}

),

platform_prices as (

    select * from {{ ref('platform_prices') }}

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

cost_rates as (

    select * from {{ ref('int_cost_rates') }}

),

-- `curve_number` names a configuration at whatever concurrency; its keys may be NULL.
results as (

    select
        *,
        measured_joules_per_token * total_tokens_per_second_per_gpu as measured_watts_per_gpu,
        dense_rank() over (order by {{ curve | join(', ') }}) as curve_number
    from {{ ref('platform_results') }}
    where is_comparable and is_latest

),

targets as (

    select distinct value as target_output_tokens_per_second_per_user
    from assumptions
    where assumption = 'target_output_tokens_per_second_per_user'

),

best as (

    select
        targets.target_output_tokens_per_second_per_user,
        results.*
    from results
    cross join targets
    where results.output_tokens_per_second_per_user >= targets.target_output_tokens_per_second_per_user
    qualify row_number() over (
        partition by {{ columns_of('results', work_keys()) }}, targets.target_output_tokens_per_second_per_user, results.platform
        order by
            results.total_tokens_per_second_per_gpu desc,
            results.output_tokens_per_second_per_user desc,
            results.source,
            results.result_id,
            results.run_url,
            results.repetition
    ) = 1

),

known_types as (

    select
        platforms.platform,
        platforms.device_type,
        platforms.provisioned_kw_per_gpu,
        case
            when device_types.power_limit_watts > 0
                then {{ ratio('device_types.power_limit_watts', 'device_types.gpus') }}
        end as power_limit_watts,
        {{ ratio('device_types.idle_watts_loaded', 'device_types.gpus') }} as idle_watts_loaded
    from platforms
    left join device_types on platforms.device_type = device_types.device_type

),

-- Without measured watts, a full accelerator is taken to draw its limit. What is known of a board is not what a wall
-- meter shows.
full_loads as (

    select
        best.*,
        row_number() over (order by {{ columns_of('best', keys) }}) as best_number,
        known_types.provisioned_kw_per_gpu,
        coalesce(best.measured_watts_per_gpu, known_types.power_limit_watts) as full_watts_per_gpu,
        case
            when best.measured_watts_per_gpu is not null then best.power_basis
            when known_types.power_limit_watts is not null then 'power_limit'
        end as full_watts_basis,
        case
            when coalesce(best.power_basis, 'measured_board') = 'measured_board' then known_types.idle_watts_loaded
        end as idle_watts_per_gpu,
        case when coalesce(best.power_basis, 'measured_board') = 'measured_board'
                then {{ ratio('known_types.provisioned_kw_per_gpu * 1000', 'known_types.power_limit_watts') }}
        end as facility_per_device_ratio,
        best.gpus * best.total_tokens_per_second_per_gpu as replica_tokens_per_second,
        max(best.gpus * best.total_tokens_per_second_per_gpu) over (
            partition by {{ columns_of('best', work_keys()) }}, best.target_output_tokens_per_second_per_user
        ) as largest_tokens_per_second
    from best
    left join known_types on best.platform = known_types.platform

),

measured_ends as (

    select
        full_loads.best_number,
        {{ ratio('results.total_tokens_per_second_per_gpu', 'full_loads.total_tokens_per_second_per_gpu') }} as load_ratio,
        max(results.measured_watts_per_gpu) as watts_per_gpu
    from full_loads
    inner join results
        on full_loads.curve_number = results.curve_number
        and results.measured_watts_per_gpu is not null
        and results.total_tokens_per_second_per_gpu <= full_loads.total_tokens_per_second_per_gpu
    where full_loads.measured_watts_per_gpu is not null
    group by full_loads.best_number, {{ ratio('results.total_tokens_per_second_per_gpu', 'full_loads.total_tokens_per_second_per_gpu') }}

),

lowest_ends as (

    select
        best_number,
        min(load_ratio) as load_ratio,
        min_by(watts_per_gpu, load_ratio) as watts_per_gpu
    from measured_ends
    group by best_number
    having count(*) > 1

),

-- From idle to the load at which an accelerator is always at work, and on to the lowest measured point or, without one,
-- to full load.
ends as (

    select
        measured_ends.best_number,
        measured_ends.load_ratio,
        measured_ends.watts_per_gpu,
        'between_points' as watts_basis
    from measured_ends
    inner join lowest_ends on measured_ends.best_number = lowest_ends.best_number
    union all
    select
        full_loads.best_number,
        cast(1 as double) as load_ratio,
        full_loads.full_watts_per_gpu as watts_per_gpu,
        'assumed_curve' as watts_basis
    from full_loads
    left join lowest_ends on full_loads.best_number = lowest_ends.best_number
    where lowest_ends.best_number is null
    union all
    select
        full_loads.best_number,
        {{ assumed('partial_load_knee_ratio') }} as load_ratio,
        least(
            full_loads.full_watts_per_gpu * {{ assumed('partial_load_knee_watts_ratio') }},
            coalesce(lowest_ends.watts_per_gpu, full_loads.full_watts_per_gpu)
        ) as watts_per_gpu,
        case when lowest_ends.best_number is null then 'assumed_curve' else 'assumed_to_lowest_point' end as watts_basis
    from full_loads
    left join lowest_ends on full_loads.best_number = lowest_ends.best_number
    where coalesce(lowest_ends.load_ratio > {{ assumed('partial_load_knee_ratio') }}, true)
    union all
    select
        full_loads.best_number,
        cast(0 as double) as load_ratio,
        full_loads.idle_watts_per_gpu as watts_per_gpu,
        case when lowest_ends.best_number is null then 'assumed_curve' else 'assumed_to_lowest_point' end as watts_basis
    from full_loads
    left join lowest_ends on full_loads.best_number = lowest_ends.best_number

),

segments as (

    select
        *,
        lead(load_ratio) over ends_of_best as next_load_ratio,
        lead(watts_per_gpu) over ends_of_best as next_watts_per_gpu
    from ends
    window ends_of_best as (partition by best_number order by load_ratio)

),

asked as (

    {% for load in platform_loads() -%}
    select cast({{ load }} as double) as capacity_ratio
    {{ 'union all' if not loop.last }}
    {% endfor %}

),

-- The same demand for every platform of a work and target: a share of what the largest replica among them serves.
demands as (

    select
        full_loads.*,
        'one_replica' as replicas_basis,
        asked.capacity_ratio,
        full_loads.replica_tokens_per_second as full_tokens_per_second,
        cast(1 as double) as replicas
    from full_loads
    cross join asked
    union all
    select
        full_loads.*,
        'whole_replicas' as replicas_basis,
        asked.capacity_ratio,
        full_loads.largest_tokens_per_second as full_tokens_per_second,
        -- Rounded: a demand that fills its replicas takes no further one for the last digit of a quotient.
        cast(
            ceil(
                round(
                    {{ ratio(
                        'asked.capacity_ratio * full_loads.largest_tokens_per_second',
                        'full_loads.replica_tokens_per_second'
                    ) }},
                    9
                )
            ) as double
        ) as replicas
    from full_loads
    cross join asked

),

loads as (

    select
        *,
        capacity_ratio * full_tokens_per_second as tokens_per_second,
        least(
            case when replicas_basis = 'one_replica' then capacity_ratio
                else {{ ratio('capacity_ratio * full_tokens_per_second', 'replicas * replica_tokens_per_second') }}
            end,
            cast(1 as double)
        ) as replica_load_ratio
    from demands

),

-- A segment holds the loads from its lower end on, below its upper end; the last one holds full load as well.
interpolated as (

    select
        loads.*,
        loads.replica_load_ratio * loads.total_tokens_per_second_per_gpu as tokens_per_second_per_gpu,
        loads.replica_load_ratio * loads.total_tokens_per_second_per_gpu * 3600 as tokens_per_gpu_hour,
        case
            when loads.replica_load_ratio = segments.load_ratio then segments.watts_per_gpu
            else segments.watts_per_gpu + (segments.next_watts_per_gpu - segments.watts_per_gpu)
                * {{ ratio('loads.replica_load_ratio - segments.load_ratio', 'segments.next_load_ratio - segments.load_ratio') }}
        end as watts_per_gpu,
        segments.watts_basis
    from loads
    left join segments
        on loads.best_number = segments.best_number
        and loads.replica_load_ratio >= segments.load_ratio
        and loads.replica_load_ratio < coalesce(segments.next_load_ratio, segments.load_ratio + 1)

),

powered as (

    select
        *,
        watts_per_gpu * facility_per_device_ratio * {{ assumed('electricity_usd_per_kwh') }} / 1000 as electricity_usd_per_gpu_hour
    from interpolated

),

newest_rates as (

    select
        device_type,
        usd_per_gpu_hour + coalesce(capital_usd_per_gpu_month, 0) * 12 / 8760 as usd_per_gpu_hour,
        includes_energy
    from cost_rates
    qualify row_number() over (partition by device_type order by valid_from desc) = 1

),

offers as (

    {% for ownership in ownerships() -%}
    {% for cost_basis in ['all_in_price', 'own_stack'] -%}
    select
        platforms.platform,
        '{{ cost_basis }}' as cost_basis,
        '{{ ownership }}' as ownership,
        prices.usd_per_gpu_hour
            {%- if cost_basis == 'own_stack' %}
            - platforms.provisioned_kw_per_gpu * {{ assumed('electricity_usd_per_kwh') }}
            {%- endif %} as offered_usd_per_gpu_hour,
        case
            when prices.usd_per_gpu_hour is null then 'price_missing'
            when prices.usd_per_gpu_hour <= 0 then 'price_not_positive'
            {%- if cost_basis == 'own_stack' %}
            when platforms.provisioned_kw_per_gpu is null then 'provisioned_power_unknown'
            when prices.usd_per_gpu_hour <= platforms.provisioned_kw_per_gpu * {{ assumed('electricity_usd_per_kwh') }}
                then 'capacity_not_positive'
            {%- endif %}
        end as reason
    from platforms
    left join platform_prices as prices
        on platforms.platform = prices.platform
        and prices.ownership = '{{ ownership }}'
    union all
    {% endfor -%}
    {% endfor -%}
    select
        platforms.platform,
        'own_stack' as cost_basis,
        'own' as ownership,
        newest_rates.usd_per_gpu_hour as offered_usd_per_gpu_hour,
        case
            when newest_rates.usd_per_gpu_hour is null then 'rate_missing'
            when newest_rates.includes_energy then 'rate_includes_energy'
            when newest_rates.usd_per_gpu_hour <= 0 then 'price_not_positive'
        end as reason
    from platforms
    left join newest_rates on platforms.device_type = newest_rates.device_type

),

priced as (

    select
        powered.*,
        offers.cost_basis,
        offers.ownership,
        case
            when offers.cost_basis = 'own_stack' and offers.reason is null then offers.offered_usd_per_gpu_hour
        end as capacity_usd_per_gpu_hour,
        case when offers.cost_basis = 'own_stack' then powered.electricity_usd_per_gpu_hour end as energy_usd_per_gpu_hour,
        case
            when offers.reason is null and offers.cost_basis = 'own_stack'
                then offers.offered_usd_per_gpu_hour + powered.electricity_usd_per_gpu_hour
            when offers.reason is null then offers.offered_usd_per_gpu_hour
        end as cost_usd_per_gpu_hour,
        case
            when offers.reason is not null then offers.reason
            when offers.cost_basis = 'all_in_price' then 'ok'
            when powered.full_watts_per_gpu is null then 'full_watts_unknown'
            when powered.watts_per_gpu is null then 'idle_watts_unknown'
            when powered.facility_per_device_ratio is null then 'facility_overhead_unknown'
            else 'ok'
        end as reason
    from powered
    inner join offers on powered.platform = offers.platform

),

compared as (

    select
        *,
        {{ ratio('cost_usd_per_gpu_hour * 1e6', 'tokens_per_gpu_hour') }} as effective_cost_usd_per_mtok
    from priced

),

final as (

    select
        {{ keys | join(', ') }}, replicas_basis, capacity_ratio,
        cost_basis,
        ownership,
        reason,
        cast(replicas as integer) as replicas,
        gpus as gpus_per_replica,
        full_tokens_per_second,
        tokens_per_second,
        replica_load_ratio,
        total_tokens_per_second_per_gpu as capacity_tokens_per_second_per_gpu,
        tokens_per_second_per_gpu,
        tokens_per_gpu_hour,
        watts_per_gpu,
        case when watts_per_gpu is not null then watts_basis end as watts_basis,
        case
            when watts_per_gpu is null then null
            when watts_basis = 'between_points' then power_basis
            else 'assumed'
        end as power_basis,
        full_watts_per_gpu,
        full_watts_basis,
        facility_per_device_ratio,
        {{ ratio('watts_per_gpu', 'tokens_per_second_per_gpu') }} as joules_per_token,
        capacity_usd_per_gpu_hour,
        energy_usd_per_gpu_hour,
        cost_usd_per_gpu_hour,
        {{ ratio('energy_usd_per_gpu_hour * 1e6', 'tokens_per_gpu_hour') }} as energy_cost_usd_per_mtok,
        effective_cost_usd_per_mtok,
        {{ ratio('energy_usd_per_gpu_hour', 'cost_usd_per_gpu_hour') }} as energy_cost_ratio,
        {{ ratio(
            'effective_cost_usd_per_mtok',
            'max(case when capacity_ratio = 1 then effective_cost_usd_per_mtok end)'
            ~ ' over (partition by best_number, replicas_basis, cost_basis, ownership)'
        ) }} as price_ratio,
        source,
        benchmark,
        result_id,
        run_url
    from compared

)

select * from final
