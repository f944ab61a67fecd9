-- What accelerators would earn under stated assumptions, how much that depends on each of them, and whether a public
-- claim follows from its inputs.
{{ config(replaces='all') }}
{% set measures = [
    'revenue_usd', 'cost_usd', 'cost_usd_per_mtok', 'tokens_per_second_per_mw', 'gross_margin_ratio',
    'revenue_multiple', 'roi_ratio', 'payback_years', 'npv_usd', 'cost_multiple', 'tokens_per_mw_multiple'
] %}

with terms as (

    select * from {{ ref('int_scenario_terms') }}

),

waits as (

    select * from {{ ref('int_scenario_waits') }}

),

year_numbers as (

    select {{ integers_between(1, 100) }} as year_number

),

-- What of each year is in the scenario, and what of its first price a token has then.
scenario_years as (

    select
        terms.scenario,
        terms.varied_input,
        terms.varied_value,
        year_numbers.year_number,
        least(cast(1 as double), terms.held_years - year_numbers.year_number + 1) as year_part,
        case
            when year_numbers.year_number = 1 then cast(1 as double)
            else power(1 - terms.price_decay_ratio, year_numbers.year_number - 1)
        end as price_part
    from terms
    inner join year_numbers on year_numbers.year_number < terms.held_years + 1

),

price_years as (

    select
        scenario,
        varied_input,
        varied_value,
        case when count(price_part) = count(*) then sum(year_part * price_part) end as full_price_years
    from scenario_years
    group by scenario, varied_input, varied_value

),

-- What a token per second and GPU earns over the years, and what all of it costs.
at_full_price as (

    select
        terms.*,
        terms.gpus * 8760 * 3600 / 1e6
            * terms.sold_utilisation_ratio
            * terms.price_usd_per_mtok
            * price_years.full_price_years as revenue_usd_per_token_per_second,
        terms.gpus * 8760 * 3600 / 1e6
            * terms.held_years
            * terms.sold_utilisation_ratio as sold_mtok_per_token_per_second,
        coalesce(terms.capex_usd, 0) + terms.annual_cost_usd * terms.held_years as fixed_cost_usd,
        case
            when terms.cost_basis in (
                'rate_with_energy', 'rate_and_energy', 'rate_without_energy', 'yearly_amount_alone'
            )
                then 'yearly_cost'
            when terms.cost_basis in ('capex_and_energy', 'capex_alone') then 'capex'
            else 'unknown'
        end as investment_basis
    from terms
    left join price_years on {{ same_variant('terms', 'price_years') }}

),

solved as (

    select
        *,
        case
            when coalesce(solve_for, '') <> 'tokens_per_second_per_gpu' or stated_tokens_per_second_per_gpu is not null
                then null
            when claim_measure = 'revenue_usd'
                then {{ ratio('claim_value', 'revenue_usd_per_token_per_second') }}
            when claim_measure = 'gross_margin_ratio'
                then {{ ratio('fixed_cost_usd / nullif(1 - claim_value, 0)', 'revenue_usd_per_token_per_second') }}
            when claim_measure = 'revenue_multiple'
                then
                    claim_value
                    * {{ ratio(
                        "case investment_basis when 'capex' then capex_usd when 'yearly_cost' then fixed_cost_usd end",
                        'revenue_usd_per_token_per_second'
                    ) }}
            when claim_measure = 'cost_usd_per_mtok'
                then {{ ratio('fixed_cost_usd', 'claim_value * sold_mtok_per_token_per_second') }}
            when claim_measure = 'tokens_per_second_per_mw'
                then claim_value * facility_kw_per_gpu / 1000
        end as solved_tokens_per_second_per_gpu
    from at_full_price

),

served as (

    select
        *,
        coalesce(stated_tokens_per_second_per_gpu, solved_tokens_per_second_per_gpu) as tokens_per_second_per_gpu,
        case
            when stated_tokens_per_second_per_gpu is not null then 'stated'
            when solved_tokens_per_second_per_gpu is not null then 'solved'
            when cost_basis = 'stated_per_mtok' and not has_throughput and priced_classes = 1
                then 'one_million_tokens'
            else 'unknown'
        end as throughput_basis
    from solved

),

amounts as (

    select
        *,
        case
            when throughput_basis = 'one_million_tokens' then cast(1 as double)
            else sold_mtok_per_token_per_second * tokens_per_second_per_gpu
        end as sold_mtok,
        case
            when throughput_basis = 'one_million_tokens' then price_usd_per_mtok
            else revenue_usd_per_token_per_second * tokens_per_second_per_gpu
        end as revenue_usd,
        case cost_basis
            when 'stated_per_mtok'
                then
                    stated_cost_usd_per_mtok
                    * case
                        when throughput_basis = 'one_million_tokens' then 1
                        else sold_mtok_per_token_per_second * tokens_per_second_per_gpu
                    end
            else fixed_cost_usd
        end as cost_usd
    from served

),

invested as (

    select
        *,
        case investment_basis
            when 'capex' then capex_usd
            when 'yearly_cost' then cost_usd
        end as investment_usd
    from amounts

),

-- Cash of each year after what it costs to run.
cash_years as (

    select
        invested.scenario,
        invested.varied_input,
        invested.varied_value,
        invested.capex_usd,
        invested.discount_ratio,
        scenario_years.year_number,
        scenario_years.year_part,
        least(cast(scenario_years.year_number as double), invested.held_years) as end_years,
        invested.revenue_usd * {{ ratio('scenario_years.price_part', 'price_years.full_price_years') }}
            - invested.annual_cost_usd as cash_usd_per_year
    from invested
    inner join scenario_years on {{ same_variant('invested', 'scenario_years') }}
    inner join price_years on {{ same_variant('invested', 'price_years') }}

),

cumulated as (

    select
        *,
        coalesce(
            sum(cash_usd_per_year * year_part) over (
                partition by scenario, varied_input, varied_value
                order by year_number
                rows between unbounded preceding and 1 preceding
            ),
            0
        ) as cash_before_usd
    from cash_years

),

-- A year's cash comes evenly for the payback, and at its end for the present value.
paid_back as (

    select
        scenario,
        varied_input,
        varied_value,
        min(
            case
                when cash_usd_per_year > 0 and cash_before_usd + cash_usd_per_year * year_part >= capex_usd
                    then year_number - 1 + greatest(capex_usd - cash_before_usd, 0) / cash_usd_per_year
            end
        ) as payback_years,
        case
            when count(discount_ratio) = count(*) and count(cash_usd_per_year) = count(*)
                then sum(cash_usd_per_year * year_part / power(1 + discount_ratio, end_years))
                    - coalesce(max(capex_usd), 0)
        end as npv_usd
    from cumulated
    group by scenario, varied_input, varied_value

),

computed as (

    select
        invested.*,
        case
            when invested.investment_basis = 'capex' and invested.capex_usd > 0 then paid_back.payback_years
        end as payback_years,
        paid_back.npv_usd,
        {{ ratio('invested.cost_usd', 'invested.sold_mtok') }} as cost_usd_per_mtok,
        {{ ratio('invested.revenue_usd', 'invested.investment_usd') }} as revenue_multiple,
        {{ ratio('invested.revenue_usd - invested.cost_usd', 'invested.cost_usd') }} as roi_ratio,
        {{ ratio('invested.revenue_usd - invested.cost_usd', 'invested.revenue_usd') }} as gross_margin_ratio,
        case
            when invested.cost_basis <> 'stated_per_mtok'
                then {{ ratio('invested.cost_usd * invested.sold_utilisation_ratio', 'invested.revenue_usd') }}
        end as break_even_sold_ratio,
        {{ ratio(
            'invested.tokens_per_second_per_gpu * 1000', 'invested.facility_kw_per_gpu'
        ) }} as tokens_per_second_per_mw,
        invested.gpus_per_replica * greatest(
            ceil(round(
                {{ ratio(
                    'invested.peak_tokens_per_second',
                    'invested.tokens_per_second_per_gpu'
                    ~ ' * invested.gpus_per_replica'
                    ~ ' * invested.target_utilisation_ratio'
                ) }},
                9
            )),
            coalesce(invested.min_replicas, 1)
        ) as needed_gpus,
        waits.waiting_ratio
    from invested
    left join waits on {{ same_variant('invested', 'waits') }}
    left join paid_back on {{ same_variant('invested', 'paid_back') }}

),

-- Against the reference as it is stated. The throughput that a multiple needs does not depend on the reference's own.
compared as (

    select
        computed.*,
        {{ ratio('reference.cost_usd_per_mtok', 'computed.cost_usd_per_mtok') }} as cost_multiple,
        {{ ratio(
            'computed.tokens_per_second_per_mw', 'reference.tokens_per_second_per_mw'
        ) }} as tokens_per_mw_multiple,
        case
            when coalesce(computed.solve_for, '') <> 'throughput_multiple' then null
            when computed.claim_measure = 'tokens_per_mw_multiple'
                then computed.claim_value * {{ ratio('computed.facility_kw_per_gpu', 'reference.facility_kw_per_gpu') }}
            when computed.claim_measure = 'cost_multiple'
                then
                    computed.claim_value
                    * {{ ratio(
                        'computed.annual_cost_usd / nullif(computed.gpus, 0)',
                        'reference.annual_cost_usd / nullif(reference.gpus, 0)'
                    ) }}
        end as solved_throughput_multiple,
        reference.scenario is not null as is_known_reference
    from computed
    left join computed as reference
        on computed.reference_scenario = reference.scenario
        and reference.varied_input = 'none'

),

measured as (

    select
        *,
        case solve_for
            when 'tokens_per_second_per_gpu' then solved_tokens_per_second_per_gpu
            when 'throughput_multiple' then solved_throughput_multiple
            when 'years' then held_years
        end as solved_value,
        case claim_measure
            {%- for measure in measures %}
            when '{{ measure }}' then {{ measure }}
            {%- endfor %}
        end as computed_value
    from compared

),

final as (

    select
        scenario,
        varied_input,
        varied_value,
        title,
        platform,
        model,
        gpus,
        tokens_per_second_per_gpu,
        tokens_per_second_per_gpu * gpus_per_rack as tokens_per_second_per_rack,
        throughput_basis,
        price_usd_per_mtok,
        price_decay_ratio,
        sold_utilisation_ratio,
        held_years as years,
        sold_mtok,
        revenue_usd,
        investment_usd,
        investment_basis,
        annual_cost_usd,
        cost_usd,
        cost_basis,
        cost_usd_per_mtok,
        revenue_multiple,
        roi_ratio,
        gross_margin_ratio,
        payback_years,
        npv_usd,
        case when break_even_sold_ratio between 0 and 1 then break_even_sold_ratio end as break_even_sold_ratio,
        tokens_per_second_per_mw,
        case
            when peak_tokens_per_second is not null
                and tokens_per_second_per_gpu > 0
                and target_utilisation_ratio > 0
                then needed_gpus
        end as needed_gpus,
        waiting_ratio,
        reference_scenario,
        cost_multiple,
        tokens_per_mw_multiple,
        claim_measure,
        claim_value,
        computed_value,
        case
            when claim_measure is null then null
            when solved_value is not null then 'solved'
            when computed_value is null or claim_tolerance_ratio is null then 'unknown'
            when abs(computed_value - claim_value) <= claim_tolerance_ratio * abs(claim_value) then 'reproduced'
            else 'not_reproduced'
        end as claim_status,
        solve_for as solved_for,
        solved_value,
        {{ joined_reasons(scenario_reasons()) }} as null_reasons,
        note,
        source,
        as_of
    from measured

)

select * from final
