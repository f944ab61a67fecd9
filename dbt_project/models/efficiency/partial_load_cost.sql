-- What a token costs at a part of the load that its accelerators could carry, part of cost by part of cost: how much of
-- a price is emptiness.
{{ config(replaces='all') }}

with days as (

    select * from {{ ref('model_daily') }}

),

lookback as (

    select * from {{ ref('int_lookback') }}

),

curve_days as (

    select * from {{ ref('int_curve_days') }}

),

levels as (

    select * from {{ ref('efficiency_curve') }} where is_level

),

capacities as (

    select * from {{ ref('slo_capacity') }}

),

parked as (

    select * from {{ ref('idle_power') }} where account = 'parked'

),

device_types as (

    select * from {{ ref('stg_device_types') }}

),

held_days as (

    select
        days.*,
        lookback.as_of_date,
        case
            when days.capacity_cost_usd is null then days.energy_cost_usd
            else {{ charged_energy_usd('days') }}
        end as charged_energy_usd
    from days
    cross join lookback
    where {{ in_lookback('days.date', 'lookback.as_of_date') }} and days.energy_joules is not null

),

held as (

    select
        as_of_date,
        {{ curve_keys() | join(', ') }},
        count(distinct date) as days,
        {{ ratio('sum(gpu_seconds)', 'sum(claimed_gpu_seconds)') }} as coverage_ratio,
        {{ ratio('sum(matched_joules)', 'sum(energy_joules)') }} as matched_ratio,
        {{ ratio(
            'sum(capacity_cost_usd) * 3.6e3',
            'sum(case when capacity_cost_usd is not null then claimed_gpu_seconds end)'
        ) }} as capacity_usd_per_gpu_hour,
        {{ ratio(
            'sum(facility_energy_kwh) * 3.6e6',
            'sum(case when facility_energy_kwh is not null then energy_joules end)'
        ) }} as facility_per_device_ratio,
        {{ ratio(
            'sum(charged_energy_usd)',
            'sum(case when charged_energy_usd is not null then facility_energy_kwh end)'
        ) }} as charged_usd_per_kwh
    from held_days
    where model not in ({{ unallocated() }}, {{ unknown() }})
    group by as_of_date, {{ curve_keys() | join(', ') }}

),

parked_watts as (

    select
        {{ columns_of('parked', curve_keys()) }},
        {{ ratio('sum(parked.idle_joules)', 'sum(parked.idle_gpu_seconds)') }} as watts_per_gpu
    from parked
    cross join lookback
    where {{ in_lookback('parked.date', 'lookback.as_of_date') }}
    group by {{ columns_of('parked', curve_keys()) }}
    having sum(parked.idle_gpu_seconds) >= 3600

),

-- The lookback as it was: all its intervals, those without a token as well.
actual as (

    select
        {{ curve_keys() | join(', ') }},
        tokens_basis,
        {{ ratio('sum(joules)', 'sum(gpu_seconds)') }} as watts_per_gpu,
        case when count(tokens) = count(*) then {{ ratio('sum(tokens)', 'sum(gpu_seconds)') }} end as tokens_per_second_per_gpu
    from curve_days
    group by {{ curve_keys() | join(', ') }}, tokens_basis

),

-- From each observed level to the next; before the lowest, from what the devices draw parked.
ends as (

    select
        {{ curve_keys() | join(', ') }},
        tokens_per_second_per_gpu,
        watts_per_gpu,
        'between_levels' as watts_basis
    from levels
    union all
    select
        {{ columns_of('capacities', curve_keys()) }},
        cast(0 as double) as tokens_per_second_per_gpu,
        coalesce(parked_watts.watts_per_gpu, device_types.idle_watts_loaded / device_types.gpus) as watts_per_gpu,
        case when parked_watts.watts_per_gpu is null then 'reference_to_lowest_level' else 'parked_to_lowest_level' end as watts_basis
    from capacities
    left join parked_watts on {{ equal_keys('capacities', 'parked_watts', curve_keys()) }}
    left join device_types on capacities.device_type = device_types.device_type

),

segments as (

    select
        *,
        lead(tokens_per_second_per_gpu) over curve as next_tokens_per_second_per_gpu,
        lead(watts_per_gpu) over curve as next_watts_per_gpu,
        lead(tokens_per_second_per_gpu, 2) over curve is null as is_last
    from ends
    window curve as (partition by {{ curve_keys() | join(', ') }} order by tokens_per_second_per_gpu)

),

asked as (

    {% for ratio in [0.05, 0.1, 0.25, 0.5, 0.75, 1.0] -%}
    select cast({{ ratio }} as double) as capacity_ratio
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

),

asked_points as (

    select
        capacities.*,
        asked.capacity_ratio,
        asked.capacity_ratio * capacities.capacity_tokens_per_second_per_gpu as tokens_per_second_per_gpu
    from capacities
    cross join asked
    where capacities.capacity_tokens_per_second_per_gpu is not null

),

points as (

    select
        {{ columns_of('asked_points', curve_keys()) }},
        asked_points.tokens_basis,
        false as is_actual,
        asked_points.capacity_ratio,
        asked_points.tokens_per_second_per_gpu,
        asked_points.capacity_tokens_per_second_per_gpu,
        asked_points.capacity_basis,
        asked_points.is_lower_bound as is_capacity_lower_bound,
        segments.watts_per_gpu
        + (segments.next_watts_per_gpu - segments.watts_per_gpu)
        * ((asked_points.tokens_per_second_per_gpu - segments.tokens_per_second_per_gpu)
            / (segments.next_tokens_per_second_per_gpu - segments.tokens_per_second_per_gpu)) as watts_per_gpu,
        segments.watts_basis
    from asked_points
    left join segments
        on {{ equal_keys('asked_points', 'segments', curve_keys()) }}
        and segments.watts_per_gpu is not null
        and asked_points.tokens_per_second_per_gpu >= segments.tokens_per_second_per_gpu
        and (
            asked_points.tokens_per_second_per_gpu < segments.next_tokens_per_second_per_gpu
            or (segments.is_last and asked_points.tokens_per_second_per_gpu = segments.next_tokens_per_second_per_gpu)
        )
    union all
    select
        {{ columns_of('actual', curve_keys()) }},
        actual.tokens_basis,
        true as is_actual,
        {{ ratio('actual.tokens_per_second_per_gpu', 'capacities.capacity_tokens_per_second_per_gpu') }} as capacity_ratio,
        actual.tokens_per_second_per_gpu,
        capacities.capacity_tokens_per_second_per_gpu,
        capacities.capacity_basis,
        capacities.is_lower_bound as is_capacity_lower_bound,
        actual.watts_per_gpu,
        'measured' as watts_basis
    from actual
    left join capacities on {{ equal_keys('actual', 'capacities', curve_keys()) }}

),

-- Each part of the cost is a row: add a new part here.
parts as (

    {% for part in ['energy', 'capacity'] -%}
    select
        points.*,
        held.as_of_date,
        held.days,
        held.coverage_ratio,
        held.matched_ratio,
        '{{ part }}' as cost_part,
        {% if part == 'energy' -%}
        points.watts_per_gpu * held.facility_per_device_ratio * held.charged_usd_per_kwh / 1e3 as cost_usd_per_gpu_hour
        {%- else -%}
        held.capacity_usd_per_gpu_hour as cost_usd_per_gpu_hour
        {%- endif %}
    from points
    inner join held on {{ equal_keys('points', 'held', curve_keys()) }}
    {% if not loop.last %}union all{% endif %}
    {% endfor %}

),

priced as (

    select
        *,
        tokens_per_second_per_gpu * 3600 as tokens_per_gpu_hour,
        cost_usd_per_gpu_hour * 1e6 / nullif(tokens_per_second_per_gpu * 3600, 0) as cost_usd_per_mtok
    from parts

),

-- The parts in one order, so that their sum is the same on any machine; without one of them the whole is not known.
summed as (

    select
        *,
        case
            when count(cost_usd_per_mtok) over point = count(*) over point then sum(cost_usd_per_mtok) over point
        end as effective_cost_usd_per_mtok
    from priced
    window point as (
        partition by {{ curve_keys() | join(', ') }}, is_actual, capacity_ratio
        order by cost_part rows between unbounded preceding and unbounded following
    )

),

final as (

    select
        summed.as_of_date,
        {{ curve_keys() | join(', ') }},
        tokens_basis,
        is_actual,
        capacity_ratio,
        capacity_tokens_per_second_per_gpu,
        capacity_basis,
        is_capacity_lower_bound,
        tokens_per_second_per_gpu,
        tokens_per_gpu_hour,
        watts_per_gpu,
        case when watts_per_gpu is not null then watts_basis end as watts_basis,
        cost_part,
        cost_usd_per_gpu_hour,
        cost_usd_per_mtok,
        effective_cost_usd_per_mtok,
        {{ ratio(
            'effective_cost_usd_per_mtok',
            'max(case when not is_actual and capacity_ratio = 1 then effective_cost_usd_per_mtok end) over (partition by '
                ~ curve_keys() | join(', ')
                ~ ')'
        ) }} as price_ratio,
        cast(days as integer) as days,
        coverage_ratio,
        matched_ratio,
        lookback.held_back_dates,
        lookback.is_complete
    from summed
    cross join lookback

)

select * from final
