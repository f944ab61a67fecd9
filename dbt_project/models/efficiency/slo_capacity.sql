-- How much load one accelerator of a deployment carries within its model's SLO, as far as anybody has seen: what a
-- share of capacity is a share of.
{{ config(replaces='all') }}

with curve_levels as (

    select * from {{ ref('efficiency_curve') }} where is_level

),

goodput as (

    select * from {{ ref('goodput_hourly') }} where requests > 0 and matched_gpu_seconds > 0

),

lookback as (

    select * from {{ ref('int_lookback') }}

),

models as (

    select * from {{ source('fleet', 'models') }} where slo_attainment_ratio is not null

),

highest as (

    select
        as_of_date,
        {{ curve_keys() | join(', ') }},
        tokens_basis,
        max(tokens_per_second_per_gpu) as tokens_per_second_per_gpu,
        -- Spark's quotient of a whole number and 3600.0 is a decimal of six digits.
        {{ ratio('max_by(intervals, tokens_per_second_per_gpu) * ' ~ var('grid_seconds'), '3600') }} as hours
    from curve_levels
    group by as_of_date, {{ curve_keys() | join(', ') }}, tokens_basis

),

hours as (

    select
        {{ columns_of('goodput', curve_keys()) }},
        goodput.requests,
        goodput.good_requests_low,
        goodput.good_requests_high,
        goodput.goodput_basis,
        goodput.matched_gpu_seconds,
        models.slo_attainment_ratio,
        {{ curve_tokens() }} as tokens,
        {{ load_bin(ratio(curve_tokens(), 'matched_gpu_seconds')) }} as load_bin
    from goodput
    inner join models on goodput.model = models.model
    cross join lookback
    where {{ in_lookback('goodput.date', 'lookback.as_of_date') }} and {{ curve_tokens() }} > 0

),

levels as (

    select
        {{ curve_keys() | join(', ') }},
        load_bin,
        slo_attainment_ratio,
        cast(count(*) as double) as hours,
        min(goodput_basis) as lesser_basis,
        {{ exact_sum('requests') }} as requests,
        {{ ratio(exact_sum('tokens'), exact_sum('matched_gpu_seconds')) }} as tokens_per_second_per_gpu,
        {{ ratio(exact_sum('good_requests_low'), exact_sum('requests')) }} as good_request_ratio_low,
        {{ ratio(exact_sum('good_requests_high'), exact_sum('requests')) }} as good_request_ratio_high
    from hours
    group by {{ curve_keys() | join(', ') }}, load_bin, slo_attainment_ratio

),

-- Fewer requests than one bad one may spoil are no evidence. The first level that is not seen to keep the SLO is the
-- last one considered: a higher one that kept it did so by chance.
assessed_levels as (

    select
        *,
        min(case when good_request_ratio_low < slo_attainment_ratio then load_bin end) over (
            partition by {{ curve_keys() | join(', ') }}
        ) as first_unkept_bin
    from levels
    where slo_attainment_ratio = 1 or cast(requests as double) * (1 - slo_attainment_ratio) >= 1 - 1e-9

),

kept as (

    select *
    from assessed_levels
    where load_bin < coalesce(first_unkept_bin, load_bin + 1)
    qualify row_number() over (partition by {{ curve_keys() | join(', ') }} order by load_bin desc) = 1

),

breaches as (

    select
        {{ curve_keys() | join(', ') }},
        slo_attainment_ratio,
        lesser_basis,
        tokens_per_second_per_gpu
    from assessed_levels
    where load_bin = first_unkept_bin and good_request_ratio_high < slo_attainment_ratio

),

-- A model that broke its SLO at the lowest load has no capacity; where no level could be assessed the highest one is
-- taken.
compared as (

    select
        highest.*,
        breaches.tokens_per_second_per_gpu as breach_tokens_per_second_per_gpu,
        kept.tokens_per_second_per_gpu as kept_tokens_per_second_per_gpu,
        kept.hours as kept_hours,
        kept.requests,
        kept.good_request_ratio_low,
        coalesce(kept.slo_attainment_ratio, breaches.slo_attainment_ratio) as slo_attainment_ratio,
        case coalesce(kept.lesser_basis, breaches.lesser_basis)
            when 'requests' then 'requests_within_slo'
            when 'histograms' then 'histogram_within_slo'
            else 'highest_observed'
        end as capacity_basis
    from highest
    left join kept on {{ equal_keys('highest', 'kept', curve_keys()) }}
    left join breaches on {{ equal_keys('highest', 'breaches', curve_keys()) }}

),

final as (

    select
        compared.as_of_date,
        {{ curve_keys() | join(', ') }},
        tokens_basis,
        case when capacity_basis = 'highest_observed' then tokens_per_second_per_gpu else kept_tokens_per_second_per_gpu end
        as capacity_tokens_per_second_per_gpu,
        capacity_basis,
        breach_tokens_per_second_per_gpu is null as is_lower_bound,
        breach_tokens_per_second_per_gpu,
        slo_attainment_ratio,
        case when capacity_basis = 'highest_observed' then hours else kept_hours end as hours,
        requests,
        good_request_ratio_low,
        lookback.held_back_dates,
        lookback.is_complete
    from compared
    cross join lookback

)

select * from final
