-- The receipts: what each logged request used, at the price of its date. One row per logged request. Empty unless the
-- fleet file keeps receipts.
{% set corners = [('low', 0), ('low', 2), ('high', 0), ('high', 2)] %}

with requests as (

    select * from {{ ref('int_requests') }} where {{ receipts_are_kept() }}

),

prices as (

    select * from {{ ref('int_receipt_prices') }}

),

-- An id that was logged twice on a date is one request: the row that has most counts. Looked for by a number, which takes
-- a third of the memory of the ids; of two ids with one number each is still its own.
repeated_ids as (

    select
        date,
        {{ text_number('request_id') }} as id_key
    from requests
    where request_id is not null
    group by date, {{ text_number('request_id') }}
    having count(*) > 1

),

ranked as (

    select
        requests.*,
        row_number() over (
            partition by requests.date, requests.request_id
            order by requests.output_tokens desc nulls last, requests.ended_at desc nulls last, requests.source, requests.started_at
        ) as id_number
    from requests
    inner join repeated_ids
        on requests.date = repeated_ids.date and {{ text_number('requests.request_id') }} = repeated_ids.id_key

),

numbered as (

    select
        requests.*,
        1 as id_number
    from requests
    left join repeated_ids
        on requests.date = repeated_ids.date and {{ text_number('requests.request_id') }} = repeated_ids.id_key
    where repeated_ids.id_key is null
    union all
    select * from ranked

),

priced as (

    select
        numbered.*,
        prices.billing_month,
        prices.model is not null as is_served,
        prices.has_tokens,
        prices.location_gco2e_per_joule,
        prices.market_gco2e_per_joule,
        prices.method,
        prices.low_weight,
        prices.middle_weight,
        prices.high_weight,
        prices.low_price,
        prices.middle_price,
        prices.high_price,
        prices.counts_input,
        prices.logged_ratio,
        prices.error_ratio,
        prices.idle_joules_per_token,
        prices.own_usd_per_joule,
        prices.idle_usd_per_token,
        cast(coalesce(numbered.output_tokens, 0) as double) as output,
        -- An engine that does not count cached tokens counts them as computed ones, so the log's are weighed in the same way.
        cast(
            coalesce(numbered.input_tokens, 0)
            - case when prices.counts_cached then coalesce(numbered.cached_input_tokens, 0) else 0 end as double
        ) as computed_input,
        cast(case when prices.counts_cached then coalesce(numbered.cached_input_tokens, 0) else 0 end as double) as cached_input,
        coalesce(
            (cast(coalesce(numbered.input_tokens, 0) as double) + coalesce(numbered.output_tokens, 0) / 2e0)
            / nullif(prices.mean_context, 0),
            1
        ) as context_ratio
    from numbered
    left join prices
        on numbered.hour_start_at = prices.hour_start_at
        and numbered.model = prices.model
        and coalesce(numbered.site, {{ all_places() }}) = prices.site
        and coalesce(numbered.deployment, {{ all_places() }}) = prices.deployment

),

assessed as (

    select
        *,
        case
            when id_number > 1 then 'id_twice'
            when not is_served then 'not_served'
            when input_tokens is null and output_tokens is null then 'no_tokens'
            when middle_price is null then 'no_price'
            when not has_tokens then 'other_clock'
            when logged_ratio > 1.1 then 'more_than_engine'
            when input_tokens is null or output_tokens is null then 'tokens_in_part'
            when not counts_input then 'input_not_counted'
            when ended_at is null then 'no_times'
            else 'good'
        end as quality
    from priced

),

owned as (

    select
        *,
        case
            when quality = 'id_twice' then 0
            when quality not in ('not_served', 'no_tokens', 'no_price') then 1
        end as counts,
        {{ own_joules('middle_price', 'middle_weight', context_weights()[1]) }} as own_joules,
        least(
            {% for name, context in corners -%}
            {{ own_joules(name ~ '_price', name ~ '_weight', context_weights()[context]) }}{{ ',' if not loop.last }}
            {% endfor %}
        ) * (1 - error_ratio) / greatest(coalesce(logged_ratio, 1), 1) as own_joules_low,
        greatest(
            {% for name, context in corners -%}
            {{ own_joules(name ~ '_price', name ~ '_weight', context_weights()[context]) }}{{ ',' if not loop.last }}
            {% endfor %}
        ) * (1 + error_ratio) as own_joules_high,
        middle_price * output * {{ active_floor_ratio() }} as floor_joules,
        (output + computed_input * {{ input_token_weight() }}e0 + cached_input * {{ cached_input_token_weight() }}e0) as weighted_tokens
    from assessed

),

rounded as (

    select
        *,
        {{ exact('counts * own_joules') }} as own_energy_joules,
        {{ exact('counts * least(own_joules_low, own_joules)') }} as own_energy_joules_low,
        {{ exact('counts * greatest(own_joules_high, own_joules)') }} as own_energy_joules_high,
        {{ exact('counts * least(floor_joules, own_joules)') }} as active_floor_energy_joules,
        {{ exact('counts * weighted_tokens * idle_joules_per_token') }} as idle_energy_joules
    from owned

),

final as (

    select
        date,
        coalesce(billing_month, cast(date_trunc('month', date) as date)) as billing_month,
        source,
        request_id,
        started_at,
        ended_at,
        ttft_seconds,
        site,
        deployment,
        coalesce(model, {{ unknown() }}) as model,
        request_team,
        tenant,
        is_ok,
        input_tokens,
        cached_input_tokens,
        output_tokens,
        cast(own_energy_joules - active_floor_energy_joules as {{ exact_type() }}) as dynamic_energy_joules,
        active_floor_energy_joules,
        own_energy_joules,
        own_energy_joules_low,
        own_energy_joules_high,
        idle_energy_joules,
        {% for kind in ['location', 'market'] -%}
        {% for end in ['', '_low', '_high'] -%}
        {{ exact('cast(own_energy_joules' ~ end ~ ' as double) * ' ~ kind ~ '_gco2e_per_joule') }} as {{ kind }}_gco2e{{ end }},
        {% endfor -%}
        {{ exact('cast(idle_energy_joules as double) * ' ~ kind ~ '_gco2e_per_joule') }} as idle_{{ kind }}_gco2e,
        {% endfor -%}
        {% for end in ['', '_low', '_high'] -%}
        {{ money('cast(own_energy_joules' ~ end ~ ' as double) * own_usd_per_joule') }} as compute_cost_usd{{ end }},
        {% endfor -%}
        {{ money('counts * weighted_tokens * idle_usd_per_token') }} as idle_compute_cost_usd,
        method,
        quality
    from rounded

)

select * from final
