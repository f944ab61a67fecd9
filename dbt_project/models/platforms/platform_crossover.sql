-- Where the cheapest platform changes: as users want more speed, as accelerators are less than full, as electricity
-- becomes dearer.
{{ config(replaces='all') }}
{% set groups = work_keys() + ['selection', 'ownership'] %}
{% set compared_groups = groups + ['target_output_tokens_per_second_per_user'] %}
{% set sides = ['from', 'to'] %}

with assumptions as (

    select * from {{ ref('platform_assumptions') }}

),

results as (

    select * from {{ ref('platform_results') }} where is_comparable and is_latest

),

comparison as (

    select * from {{ ref('platform_comparison') }} where reason = 'ok'

),

selections as (

    {{ selections(with_slo=false) }}

),

points as (

    select
        {{ columns_of('results', work_keys()) }},
        selections.selection,
        results.platform,
        results.output_tokens_per_second_per_user,
        {%- for ownership in ownerships() %}
        results.{{ ownership }}_usd_per_mtok,
        {%- endfor %}
        results.result_id,
        results.run_url
    from results
    cross join selections
    where {{ is_selected('results', 'selections') }}

),

priced_points as (

    {% for ownership in ownerships() -%}
    select
        {{ work_keys() | join(', ') }},
        selection,
        '{{ ownership }}' as ownership,
        platform,
        output_tokens_per_second_per_user,
        {{ ownership }}_usd_per_mtok as usd_per_mtok,
        result_id,
        run_url
    from points
    where {{ ownership }}_usd_per_mtok is not null
    {{ 'union all' if not loop.last }}
    {% endfor %}

),

-- The cheapest price at a speed is that of the cheapest point which is as fast or faster: a staircase, whose steps end
-- at the points that no faster one undercuts.
steps as (

    select *
    from priced_points
    qualify usd_per_mtok < coalesce(
        min(usd_per_mtok) over (
            partition by {{ groups | join(', ') }}
            order by output_tokens_per_second_per_user desc, usd_per_mtok, platform, result_id, run_url nulls last
            rows between unbounded preceding and 1 preceding
        ),
        usd_per_mtok + 1
    )

),

neighbours as (

    select
        {{ groups | join(', ') }},
        lag(platform) over (partition by {{ groups | join(', ') }} order by output_tokens_per_second_per_user) as from_platform,
        platform as to_platform,
        lag(output_tokens_per_second_per_user) over (partition by {{ groups | join(', ') }} order by output_tokens_per_second_per_user)
        as at_output_tokens_per_second_per_user,
        output_tokens_per_second_per_user as to_output_tokens_per_second_per_user,
        lag(usd_per_mtok) over (partition by {{ groups | join(', ') }} order by output_tokens_per_second_per_user) as from_usd_per_mtok,
        usd_per_mtok as to_usd_per_mtok,
        lag(result_id) over (partition by {{ groups | join(', ') }} order by output_tokens_per_second_per_user) as from_result_id,
        result_id as to_result_id,
        lag(run_url) over (partition by {{ groups | join(', ') }} order by output_tokens_per_second_per_user) as from_run_url,
        run_url as to_run_url
    from steps

),

changes_of_leader as (

    select * from neighbours where from_platform <> to_platform

),

-- The speed of the former leader's next faster point. If it has none nearby, it might still be the cheapest where it
-- was not measured.
next_points as (

    select
        {{ columns_of('changes_of_leader', groups) }},
        changes_of_leader.at_output_tokens_per_second_per_user,
        min(priced_points.output_tokens_per_second_per_user) as from_next_output_tokens_per_second_per_user
    from changes_of_leader
    inner join priced_points
        on {{ equal_keys('changes_of_leader', 'priced_points', groups) }}
        and changes_of_leader.from_platform = priced_points.platform
        and priced_points.output_tokens_per_second_per_user > changes_of_leader.at_output_tokens_per_second_per_user
    group by {{ columns_of('changes_of_leader', groups) }}, changes_of_leader.at_output_tokens_per_second_per_user

),

-- The points of each platform that no faster one of its own undercuts.
best_points as (

    select *
    from priced_points
    qualify usd_per_mtok < coalesce(
        min(usd_per_mtok) over (
            partition by {{ groups | join(', ') }}, platform
            order by output_tokens_per_second_per_user desc, usd_per_mtok, result_id, run_url nulls last
            rows between unbounded preceding and 1 preceding
        ),
        usd_per_mtok + 1
    )

),

-- The next leader's fastest best point up to there. If it is the cheaper one, the change may be anywhere after it: faster
-- points of that platform may be cheaper, too, and were not measured.
low_ends as (

    select
        {{ columns_of('changes_of_leader', groups) }},
        changes_of_leader.at_output_tokens_per_second_per_user,
        case
            when best_points.usd_per_mtok >= changes_of_leader.from_usd_per_mtok
                then changes_of_leader.at_output_tokens_per_second_per_user
            else best_points.output_tokens_per_second_per_user
        end as low_output_tokens_per_second_per_user
    from changes_of_leader
    inner join best_points
        on {{ equal_keys('changes_of_leader', 'best_points', groups) }}
        and changes_of_leader.to_platform = best_points.platform
        and best_points.output_tokens_per_second_per_user <= changes_of_leader.at_output_tokens_per_second_per_user
    qualify row_number() over (
        partition by {{ columns_of('changes_of_leader', groups) }}, changes_of_leader.at_output_tokens_per_second_per_user
        order by best_points.output_tokens_per_second_per_user desc
    ) = 1

),

-- The former leader's next best point.
next_best_points as (

    select
        {{ columns_of('changes_of_leader', groups) }},
        changes_of_leader.at_output_tokens_per_second_per_user,
        changes_of_leader.to_platform,
        best_points.output_tokens_per_second_per_user,
        best_points.usd_per_mtok
    from changes_of_leader
    inner join best_points
        on {{ equal_keys('changes_of_leader', 'best_points', groups) }}
        and changes_of_leader.from_platform = best_points.platform
        and best_points.output_tokens_per_second_per_user > changes_of_leader.at_output_tokens_per_second_per_user
    qualify row_number() over (
        partition by {{ columns_of('changes_of_leader', groups) }}, changes_of_leader.at_output_tokens_per_second_per_user
        order by best_points.output_tokens_per_second_per_user
    ) = 1

),

-- It is an end only where the next leader is as fast for less: else the former leader leads there, and may have led all
-- the way.
high_ends as (

    select distinct
        {{ columns_of('next_best_points', groups) }},
        next_best_points.at_output_tokens_per_second_per_user,
        next_best_points.output_tokens_per_second_per_user as high_output_tokens_per_second_per_user
    from next_best_points
    inner join best_points
        on {{ equal_keys('next_best_points', 'best_points', groups) }}
        and next_best_points.to_platform = best_points.platform
        and best_points.output_tokens_per_second_per_user >= next_best_points.output_tokens_per_second_per_user
        and best_points.usd_per_mtok < next_best_points.usd_per_mtok

),

by_interactivity as (

    select
        'interactivity' as kind,
        {{ columns_of('changes_of_leader', groups) }},
        cast(null as double) as target_output_tokens_per_second_per_user,
        {%- for side in sides %}
        changes_of_leader.{{ side }}_platform,
        changes_of_leader.{{ side }}_usd_per_mtok,
        changes_of_leader.{{ side }}_result_id,
        changes_of_leader.{{ side }}_run_url,
        {%- endfor %}
        'crosses' as outcome,
        changes_of_leader.at_output_tokens_per_second_per_user,
        low_ends.low_output_tokens_per_second_per_user as at_output_tokens_per_second_per_user_low,
        high_ends.high_output_tokens_per_second_per_user as at_output_tokens_per_second_per_user_high,
        case
            when low_ends.low_output_tokens_per_second_per_user + high_ends.high_output_tokens_per_second_per_user is not null
                then 'between_measured_points'
            else 'open_end'
        end as interval_basis,
        cast(null as double) as at_utilisation_ratio,
        cast(null as double) as at_usd_per_kwh,
        cast(null as double) as above_assumed_usd_per_kwh,
        true as is_change_of_leader,
        changes_of_leader.to_output_tokens_per_second_per_user
        <= changes_of_leader.at_output_tokens_per_second_per_user * (1 + {{ assumed('nearby_point_ratio') }})
        and coalesce(
            next_points.from_next_output_tokens_per_second_per_user
            <= changes_of_leader.at_output_tokens_per_second_per_user * (1 + {{ assumed('nearby_point_ratio') }}),
            false
        ) as has_nearby_points
    from changes_of_leader
    left join next_points
        on {{ equal_keys('changes_of_leader', 'next_points', groups + ['at_output_tokens_per_second_per_user']) }}
    {% for ends in ['low_ends', 'high_ends'] -%}
    left join {{ ends }}
        on {{ equal_keys('changes_of_leader', ends, groups + ['at_output_tokens_per_second_per_user']) }}
    {% endfor %}

),

pairs as (

    select
        {{ columns_of('cheaper', compared_groups) }},
        {%- for side in ['cheaper', 'dearer'] %}
        {%- for column in ['platform', 'usd_per_mtok', 'result_id', 'run_url', 'cost_rank', 'usd_per_gpu_hour', 'provisioned_kw_per_gpu'] %}
        {{ side }}.{{ column }} as {{ side }}_{{ column }},
        {%- endfor %}
        {{ side }}.total_tokens_per_second_per_gpu as {{ side }}_tokens_per_second,
        {{ ratio(
            side ~ '.provisioned_kw_per_gpu',
            side ~ '.total_tokens_per_second_per_gpu'
        ) }} as {{ side }}_kw_per_token{{ ',' if not loop.last }}
        {%- endfor %}
    from comparison as cheaper
    inner join comparison as dearer
        on {{ equal_keys('cheaper', 'dearer', compared_groups) }}
        and cheaper.cost_rank < dearer.cost_rank

),

-- A half-full accelerator has the same price per hour for half the tokens.
by_utilisation as (

    select
        'utilisation' as kind,
        {{ columns_of('pairs', compared_groups) }},
        {%- for side, of in [('from', 'cheaper'), ('to', 'dearer')] %}
        {%- for column in ['platform', 'usd_per_mtok', 'result_id', 'run_url'] %}
        {{ of }}_{{ column }} as {{ side }}_{{ column }},
        {%- endfor %}
        {%- endfor %}
        'crosses' as outcome,
        cast(null as double) as at_output_tokens_per_second_per_user,
        cast(null as double) as at_output_tokens_per_second_per_user_low,
        cast(null as double) as at_output_tokens_per_second_per_user_high,
        'errors_not_stated' as interval_basis,
        {{ ratio('cheaper_usd_per_mtok', 'dearer_usd_per_mtok') }} as at_utilisation_ratio,
        cast(null as double) as at_usd_per_kwh,
        cast(null as double) as above_assumed_usd_per_kwh,
        cheaper_cost_rank = 1 and dearer_cost_rank = 2 as is_change_of_leader,
        cast(null as boolean) as has_nearby_points
    from pairs

),

-- As electricity becomes dearer, the platform with less power per token becomes the cheaper one: `to_platform` of the
-- two.
powered_pairs as (

    select
        *,
        cheaper_kw_per_token > dearer_kw_per_token as is_cheaper_the_thirstier
    from pairs
    where cheaper_kw_per_token is not null and dearer_kw_per_token is not null

),

turned_pairs as (

    select
        {{ columns_of('powered_pairs', compared_groups) }},
        cheaper_kw_per_token = dearer_kw_per_token as is_power_equal,
        {%- for column in [
            'platform', 'usd_per_mtok', 'result_id', 'run_url', 'usd_per_gpu_hour', 'provisioned_kw_per_gpu',
            'tokens_per_second'
        ] %}
        case when is_cheaper_the_thirstier then cheaper_{{ column }} else dearer_{{ column }} end as from_{{ column }},
        case
            when is_cheaper_the_thirstier then dearer_{{ column }}
            else cheaper_{{ column }}
        end as to_{{ column }}{{ ',' if not loop.last }}
        {%- endfor %}
    from powered_pairs

),

-- The price per hour holds the electricity at the assumed price; the rest of it is fixed. The provisioned kW contain
-- the overhead, so no PUE.
equal_prices as (

    select
        *,
        {{ assumed('electricity_usd_per_kwh') }} as assumed_usd_per_kwh,
        case when not is_power_equal then
                (to_usd_per_gpu_hour * from_tokens_per_second - from_usd_per_gpu_hour * to_tokens_per_second)
                / (from_provisioned_kw_per_gpu * to_tokens_per_second - to_provisioned_kw_per_gpu * from_tokens_per_second)
        end as above_assumed_usd_per_kwh
    from turned_pairs

),

-- What both cost at the price at which they are equal; a price below 0 is none.
equal_costs as (

    select
        *,
        (from_usd_per_gpu_hour + from_provisioned_kw_per_gpu * above_assumed_usd_per_kwh)
            / (from_tokens_per_second * 0.0036) as equal_usd_per_mtok,
        coalesce(assumed_usd_per_kwh + above_assumed_usd_per_kwh >= 0, false) as is_crossing
    from equal_prices

),

cheapest_of_others as (

    select
        {{ columns_of('equal_costs', compared_groups) }},
        equal_costs.from_platform,
        equal_costs.to_platform,
        min(
            (comparison.usd_per_gpu_hour + comparison.provisioned_kw_per_gpu * equal_costs.above_assumed_usd_per_kwh)
            / (comparison.total_tokens_per_second_per_gpu * 0.0036)
        ) as usd_per_mtok
    from equal_costs
    inner join comparison
        on {{ equal_keys('equal_costs', 'comparison', compared_groups) }}
        and comparison.platform not in (equal_costs.from_platform, equal_costs.to_platform)
    where equal_costs.is_crossing
    group by {{ columns_of('equal_costs', compared_groups) }}, equal_costs.from_platform, equal_costs.to_platform

),

by_electricity as (

    select
        'electricity' as kind,
        {{ columns_of('equal_costs', compared_groups) }},
        {%- for side in sides %}
        {%- for column in ['platform', 'usd_per_mtok', 'result_id', 'run_url'] %}
        equal_costs.{{ side }}_{{ column }},
        {%- endfor %}
        {%- endfor %}
        case when equal_costs.is_crossing then 'crosses' else 'never' end as outcome,
        cast(null as double) as at_output_tokens_per_second_per_user,
        cast(null as double) as at_output_tokens_per_second_per_user_low,
        cast(null as double) as at_output_tokens_per_second_per_user_high,
        case when equal_costs.is_crossing then 'errors_not_stated' end as interval_basis,
        cast(null as double) as at_utilisation_ratio,
        case
            when equal_costs.is_crossing then equal_costs.assumed_usd_per_kwh + equal_costs.above_assumed_usd_per_kwh
        end as at_usd_per_kwh,
        case when equal_costs.is_crossing then equal_costs.above_assumed_usd_per_kwh end as above_assumed_usd_per_kwh,
        equal_costs.is_crossing and equal_costs.equal_usd_per_mtok <= coalesce(others.usd_per_mtok, equal_costs.equal_usd_per_mtok)
        as is_change_of_leader,
        cast(null as boolean) as has_nearby_points
    from equal_costs
    left join cheapest_of_others as others
        on {{ equal_keys('equal_costs', 'others', compared_groups + ['from_platform', 'to_platform']) }}

),

final as (

    {% for kind in ['interactivity', 'utilisation', 'electricity'] -%}
    select
        kind,
        {{ compared_groups | join(', ') }},
        from_platform,
        to_platform,
        outcome,
        at_output_tokens_per_second_per_user,
        at_output_tokens_per_second_per_user_low,
        at_output_tokens_per_second_per_user_high,
        case when interval_basis = 'between_measured_points' then cast(1 as double) end as interval_level,
        interval_basis,
        at_utilisation_ratio,
        at_usd_per_kwh,
        above_assumed_usd_per_kwh,
        from_usd_per_mtok,
        to_usd_per_mtok,
        is_change_of_leader,
        has_nearby_points,
        from_result_id,
        from_run_url,
        to_result_id,
        to_run_url
    from by_{{ kind }}
    {{ 'union all' if not loop.last }}
    {% endfor %}

)

select * from final
