-- What accelerators would earn under stated assumptions, how much that depends on each of them, and whether a public claim follows from its inputs.
{{ config(replaces='all') }}
{% set classes = scenario_classes() %}
{% set inputs = scenario_inputs() %}
{% set measures = [
    'revenue_usd', 'cost_usd', 'cost_usd_per_mtok', 'tokens_per_second_per_mw', 'gross_margin_ratio', 'revenue_multiple', 'roi_ratio', 'payback_years', 'npv_usd',
    'cost_multiple', 'tokens_per_mw_multiple'
] %}

with stated as (

    select * from {{ ref('scenarios') }}

),

sensitivities as (

    select * from {{ ref('scenario_sensitivities') }}

),

-- As stated, and with one input changed. A sensitivity of an unknown scenario or input keeps its row, without amounts.
variants as (

    select
        scenario,
        'none' as varied_input,
        cast(null as double) as varied_value
    from stated
    union all
    select
        scenario,
        varied_input,
        varied_value
    from sensitivities

),

varied as (

    select
        variants.scenario,
        variants.varied_input,
        variants.varied_value,
        stated.scenario is not null as is_known_scenario,
        variants.varied_input in ('none', {% for input in inputs %}'{{ input }}'{{ ', ' if not loop.last }}{% endfor %}) as is_known_input,
        stated.title,
        stated.platform,
        stated.model,
        cast(stated.gpus_per_rack as double) as gpus_per_rack,
        stated.rate_includes_energy,
        stated.power_basis,
        stated.reference_scenario,
        stated.solve_for,
        stated.claim_measure,
        stated.claim_value,
        stated.claim_tolerance_ratio,
        stated.note,
        stated.source,
        stated.as_of,
        {%- for input in inputs %}
        case when variants.varied_input = '{{ input }}' then variants.varied_value else stated.{{ input }} end as {{ input }}{{ ',' if not loop.last }}
        {%- endfor %}
    from variants
    left join stated on variants.scenario = stated.scenario

),

-- A value without a meaning is unknown, and named.
checked as (

    select
        scenario,
        varied_input,
        varied_value,
        title,
        platform,
        model,
        gpus_per_rack,
        rate_includes_energy,
        power_basis,
        reference_scenario,
        solve_for,
        claim_measure,
        claim_value,
        claim_tolerance_ratio,
        note,
        source,
        as_of,
        {%- for input, limits in inputs.items() %}
        case when is_known_input and not ({{ is_meaningless(input, limits) }}) then {{ input }} end as {{ input }},
        {%- endfor %}
        {% set wrong = [['not is_known_scenario', 'scenario: it is not in seed scenarios'], ['not is_known_input', 'varied_input: seed scenarios has no such input']] %}
        {%- for input, limits in inputs.items() if limits != [none, none] %}
            {%- do wrong.append([is_meaningless(input, limits), input ~ ': its value is outside ' ~ limits[0] ~ ' to ' ~ (limits[1] if limits[1] is not none else 'any')]) %}
        {%- endfor -%}
        {{ joined_reasons(wrong) }} as wrong_inputs
    from varied

),

server_numbers as (

    select {{ integers_between(1, 1000) }} as server_number

),

-- Erlang's formula, from the inverse of its loss: 1 + c/a + c (c − 1)/a² + …, for c servers of which the load keeps a busy.
loss_terms as (

    select
        checked.scenario,
        checked.varied_input,
        checked.varied_value,
        exp(least(
            sum(ln((checked.servers - server_numbers.server_number + 1) / checked.offered_servers)) over (
                partition by checked.scenario, checked.varied_input, checked.varied_value order by server_numbers.server_number
            ),
            700
        )) as term
    from checked
    inner join server_numbers on server_numbers.server_number <= checked.servers
    where checked.offered_servers > 0

),

losses as (

    select
        scenario,
        varied_input,
        varied_value,
        1 / (1 + sum(term)) as loss_ratio
    from loss_terms
    group by scenario, varied_input, varied_value

),

-- A scenario states tokens of all classes together, or of each class.
mixed as (

    select
        *,
        {% for class in classes %}coalesce({{ class }}_tokens_per_second_per_gpu, 0){{ ' + ' if not loop.last }}{% endfor %} as all_tokens_per_second_per_gpu,
        {% for class in classes %}coalesce({{ class }}_tokens_per_second_per_gpu * usd_per_{{ class }}_mtok, 0){{ ' + ' if not loop.last }}{% endfor %} as priced_sum,
        coalesce({% for class in classes %}{{ class }}_tokens_per_second_per_gpu{{ ', ' if not loop.last }}{% endfor %}) is not null as has_throughput,
        {% for class in classes %}(coalesce({{ class }}_tokens_per_second_per_gpu, 0) > 0 and usd_per_{{ class }}_mtok is null){{ ' or ' if not loop.last }}{% endfor %} as has_unpriced_class,
        total_tokens_per_second_per_gpu is not null
        and coalesce(computed_input_tokens_per_second_per_gpu, cached_input_tokens_per_second_per_gpu, output_tokens_per_second_per_gpu) is not null as is_counted_twice,
        {% for class in classes %}case when usd_per_{{ class }}_mtok is null then 0 else 1 end{{ ' + ' if not loop.last }}{% endfor %} as priced_classes,
        coalesce({% for class in classes %}usd_per_{{ class }}_mtok{{ ', ' if not loop.last }}{% endfor %}) as first_price
    from checked

),

-- The price of a mean token in the first year, and what a year costs. Stated provisioned kW hold cooling and overhead already; those of the IT
-- equipment do not.
priced as (

    select
        *,
        case when has_throughput and not is_counted_twice then all_tokens_per_second_per_gpu end as stated_tokens_per_second_per_gpu,
        case
            when is_counted_twice then null
            when has_throughput and not has_unpriced_class and all_tokens_per_second_per_gpu > 0 then priced_sum / all_tokens_per_second_per_gpu
            when (not has_throughput or all_tokens_per_second_per_gpu = 0) and priced_classes = 1 then first_price
        end as price_usd_per_mtok,
        case power_basis when 'provisioned' then power_kw_per_gpu when 'it' then power_kw_per_gpu * pue end as facility_kw_per_gpu
    from mixed

),

yearly as (

    select
        *,
        case when rate_includes_energy then 0.0 else gpus * facility_kw_per_gpu * 8760 * usd_per_kwh end as energy_usd_per_year,
        case when capex_usd is not null and usd_per_gpu_hour is not null then 'stated_twice'
            when stated_cost_usd_per_mtok is not null then 'stated_per_mtok'
            when usd_per_gpu_hour is not null and rate_includes_energy then 'rate_with_energy'
            when usd_per_gpu_hour is not null and usd_per_kwh is not null then 'rate_and_energy'
            when usd_per_gpu_hour is not null then 'rate_without_energy'
            when capex_usd is not null and usd_per_kwh is not null then 'capex_and_energy'
            when capex_usd is not null then 'capex_alone'
            when other_usd_per_year is not null then 'yearly_amount_alone'
            else 'unknown'
        end as cost_basis
    from priced

),

costed as (

    select
        *,
        case
            when cost_basis in ('stated_per_mtok', 'stated_twice', 'unknown') then null
            else
                coalesce(gpus * 8760 * usd_per_gpu_hour, case when usd_per_gpu_hour is null then 0 end)
                + case when cost_basis in ('rate_and_energy', 'capex_and_energy') then energy_usd_per_year else 0 end
                + coalesce(other_usd_per_year, 0)
        end as annual_cost_usd
    from yearly

),

solved_years as (

    select
        *,
        case
            when solve_for = 'years' and claim_measure = 'cost_usd' then {{ ratio('claim_value - coalesce(capex_usd, 0)', 'annual_cost_usd') }}
            else years
        end as held_years
    from costed

),

year_numbers as (

    select {{ integers_between(1, 100) }} as year_number

),

-- What of each year is in the scenario, and what of its first price a token has then.
scenario_years as (

    select
        solved_years.scenario,
        solved_years.varied_input,
        solved_years.varied_value,
        year_numbers.year_number,
        least(cast(1 as double), solved_years.held_years - year_numbers.year_number + 1) as year_part,
        case when year_numbers.year_number = 1 then cast(1 as double) else power(1 - solved_years.price_decay_ratio, year_numbers.year_number - 1) end as price_part
    from solved_years
    inner join year_numbers on year_numbers.year_number < solved_years.held_years + 1

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
        solved_years.*,
        solved_years.gpus * 8760 * 3600 / 1e6 * solved_years.sold_utilisation_ratio * solved_years.price_usd_per_mtok * price_years.full_price_years as revenue_usd_per_token_per_second,
        solved_years.gpus * 8760 * 3600 / 1e6 * solved_years.held_years * solved_years.sold_utilisation_ratio as sold_mtok_per_token_per_second,
        coalesce(solved_years.capex_usd, 0) + solved_years.annual_cost_usd * solved_years.held_years as fixed_cost_usd,
        case when solved_years.cost_basis in ('rate_with_energy', 'rate_and_energy', 'rate_without_energy', 'yearly_amount_alone') then 'yearly_cost'
            when solved_years.cost_basis in ('capex_and_energy', 'capex_alone') then 'capex' else 'unknown'
        end as investment_basis
    from solved_years
    left join price_years
        on {{ same_variant('solved_years', 'price_years') }}

),

solved as (

    select
        *,
        case
            when coalesce(solve_for, '') <> 'tokens_per_second_per_gpu' or stated_tokens_per_second_per_gpu is not null then null
            when claim_measure = 'revenue_usd' then {{ ratio('claim_value', 'revenue_usd_per_token_per_second') }}
            when claim_measure = 'gross_margin_ratio' then {{ ratio('fixed_cost_usd / nullif(1 - claim_value, 0)', 'revenue_usd_per_token_per_second') }}
            when claim_measure = 'revenue_multiple'
                then
                    claim_value
                    * {{ ratio("case investment_basis when 'capex' then capex_usd when 'yearly_cost' then fixed_cost_usd end", 'revenue_usd_per_token_per_second') }}
            when claim_measure = 'cost_usd_per_mtok' then {{ ratio('fixed_cost_usd', 'claim_value * sold_mtok_per_token_per_second') }}
            when claim_measure = 'tokens_per_second_per_mw' then claim_value * facility_kw_per_gpu / 1000
        end as solved_tokens_per_second_per_gpu
    from at_full_price

),

served as (

    select
        *,
        coalesce(stated_tokens_per_second_per_gpu, solved_tokens_per_second_per_gpu) as tokens_per_second_per_gpu,
        case when stated_tokens_per_second_per_gpu is not null then 'stated'
            when solved_tokens_per_second_per_gpu is not null then 'solved'
            when cost_basis = 'stated_per_mtok' and not has_throughput and priced_classes = 1 then 'one_million_tokens'
            else 'unknown'
        end as throughput_basis
    from solved

),

amounts as (

    select
        *,
        case when throughput_basis = 'one_million_tokens' then cast(1 as double) else sold_mtok_per_token_per_second * tokens_per_second_per_gpu end as sold_mtok,
        case
            when throughput_basis = 'one_million_tokens' then price_usd_per_mtok
            else revenue_usd_per_token_per_second * tokens_per_second_per_gpu
        end as revenue_usd,
        case cost_basis
            when 'stated_per_mtok'
                then
                    stated_cost_usd_per_mtok
                    * case when throughput_basis = 'one_million_tokens' then 1 else sold_mtok_per_token_per_second * tokens_per_second_per_gpu end
            else fixed_cost_usd
        end as cost_usd
    from served

),

invested as (

    select
        *,
        case investment_basis when 'capex' then capex_usd when 'yearly_cost' then cost_usd end as investment_usd
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
        invested.revenue_usd * {{ ratio('scenario_years.price_part', 'price_years.full_price_years') }} - invested.annual_cost_usd as cash_usd_per_year
    from invested
    inner join scenario_years
        on {{ same_variant('invested', 'scenario_years') }}
    inner join price_years
        on {{ same_variant('invested', 'price_years') }}

),

cumulated as (

    select
        *,
        coalesce(sum(cash_usd_per_year * year_part) over (
            partition by scenario, varied_input, varied_value order by year_number rows between unbounded preceding and 1 preceding
        ), 0) as cash_before_usd
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
        case when count(discount_ratio) = count(*) and count(cash_usd_per_year) = count(*)
            then sum(cash_usd_per_year * year_part / power(1 + discount_ratio, end_years)) - coalesce(max(capex_usd), 0)
        end as npv_usd
    from cumulated
    group by scenario, varied_input, varied_value

),

computed as (

    select
        invested.*,
        case when invested.investment_basis = 'capex' and invested.capex_usd > 0 then paid_back.payback_years end as payback_years,
        paid_back.npv_usd,
        {{ ratio('invested.cost_usd', 'invested.sold_mtok') }} as cost_usd_per_mtok,
        {{ ratio('invested.revenue_usd', 'invested.investment_usd') }} as revenue_multiple,
        {{ ratio('invested.revenue_usd - invested.cost_usd', 'invested.cost_usd') }} as roi_ratio,
        {{ ratio('invested.revenue_usd - invested.cost_usd', 'invested.revenue_usd') }} as gross_margin_ratio,
        case when invested.cost_basis <> 'stated_per_mtok'
                then {{ ratio('invested.cost_usd * invested.sold_utilisation_ratio', 'invested.revenue_usd') }}
        end as break_even_sold_ratio,
        {{ ratio('invested.tokens_per_second_per_gpu * 1000', 'invested.facility_kw_per_gpu') }} as tokens_per_second_per_mw,
        invested.gpus_per_replica * greatest(
            ceil(round(
                {{ ratio('invested.peak_tokens_per_second', 'invested.tokens_per_second_per_gpu * invested.gpus_per_replica * invested.target_utilisation_ratio') }}, 9
            )),
            coalesce(invested.min_replicas, 1)
        ) as needed_gpus,
        case
            when invested.offered_servers = 0 and invested.servers is not null then cast(0 as double)
            when invested.offered_servers < invested.servers
                then losses.loss_ratio / (1 - invested.offered_servers / invested.servers * (1 - losses.loss_ratio))
        end as waiting_ratio
    from invested
    left join losses
        on {{ same_variant('invested', 'losses') }}
    left join paid_back
        on {{ same_variant('invested', 'paid_back') }}

),

-- Against the reference as it is stated. The throughput that a multiple needs does not depend on the reference's own.
compared as (

    select
        computed.*,
        {{ ratio('reference.cost_usd_per_mtok', 'computed.cost_usd_per_mtok') }} as cost_multiple,
        {{ ratio('computed.tokens_per_second_per_mw', 'reference.tokens_per_second_per_mw') }} as tokens_per_mw_multiple,
        case
            when coalesce(computed.solve_for, '') <> 'throughput_multiple' then null
            when computed.claim_measure = 'tokens_per_mw_multiple'
                then computed.claim_value * {{ ratio('computed.facility_kw_per_gpu', 'reference.facility_kw_per_gpu') }}
            when computed.claim_measure = 'cost_multiple'
                then
                    computed.claim_value
                    * {{ ratio('computed.annual_cost_usd / nullif(computed.gpus, 0)', 'reference.annual_cost_usd / nullif(reference.gpus, 0)') }}
        end as solved_throughput_multiple,
        reference.scenario is not null as is_known_reference
    from computed
    left join computed as reference on computed.reference_scenario = reference.scenario and reference.varied_input = 'none'

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
        case when peak_tokens_per_second is not null and tokens_per_second_per_gpu > 0 and target_utilisation_ratio > 0 then needed_gpus end as needed_gpus,
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
