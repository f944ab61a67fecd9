-- What the receipts of a date and model leave over or have too much: with these rows they are the book. One row per
-- date, model and part that is not 0. `unlogged` is what the engines counted beyond the log, at the same price. Empty unless the fleet
-- file keeps receipts.
{% set facts = receipt_facts() %}

with receipts as (

    select
        *,
        cast(coalesce(output_tokens, 0) as double) as output,
        cast(coalesce(cached_input_tokens, 0) as double) as cached_input,
        cast(coalesce(input_tokens, 0) - coalesce(cached_input_tokens, 0) as double) as computed_input
    from {{ ref('int_receipts') }}

),

prices as (

    select
        date,
        model,
        max(middle_weight) as weight,
        max(middle_price) as price,
        max(own_usd_per_joule) as usd_per_joule,
        max(case when counts_cached then 1 else 0 end) = 1 as counts_cached,
        max(case when counts_input then 1 else 0 end) = 1 as counts_input
    from {{ ref('int_receipt_prices') }}
    where site = {{ all_places() }}
    group by date, model

),

days as (

    select * from {{ ref('model_daily') }} where {{ in_run('date') }} and {{ receipts_are_kept() }}

),

book as (

    select
        date,
        model,
        {% for fact in facts -%}
        {{ fact_sum(fact) }} as {{ fact }},
        {% endfor -%}
        {{ exact_sum('idle_joules') }} as idle_joules,
        {{ exact_sum('idle_location_gco2e') }} as idle_gco2e,
        {{ money_sum('idle_compute_cost_usd') }} as idle_usd,
        {{ exact_sum('unknown_joules') }} as unknown_joules,
        {{ money_sum('unknown_cost_usd') }} as unknown_usd,
        coalesce(sum(cast(coalesce(computed_input_tokens, input_tokens) as double)), 0) as computed_input,
        coalesce(sum(cast(cached_input_tokens as double)), 0) as cached_input,
        coalesce(sum(cast(output_tokens as double)), 0) as output
    from days
    group by date, model

),

billed as (

    select
        date,
        model,
        {{ exact_sum('own_energy_joules') }} as own_energy_joules,
        {{ exact_sum('idle_energy_joules') }} as idle_energy_joules,
        {% for kind in ['location', 'market'] -%}
        {{ exact_sum(kind ~ '_gco2e') }} as own_{{ kind }}_gco2e,
        {{ exact_sum('idle_' ~ kind ~ '_gco2e') }} as idle_{{ kind }}_gco2e,
        {% endfor -%}
        {{ money_sum('compute_cost_usd') }} as own_compute_cost_usd,
        {{ money_sum('idle_compute_cost_usd') }} as idle_compute_cost_usd,
        sum(case when quality <> 'id_twice' then output else 0 end) as output,
        sum(case when quality <> 'id_twice' then cached_input else 0 end) as cached_input,
        sum(case when quality <> 'id_twice' then computed_input else 0 end) as computed_input
    from receipts
    group by date, model

),

joined as (

    select
        coalesce(book.date, billed.date) as date,
        coalesce(book.model, billed.model) as model,
        {% for fact in facts -%}
        book.{{ fact }},
        billed.own_{{ fact }},
        billed.idle_{{ fact }},
        {% endfor -%}
        book.idle_joules,
        book.idle_gco2e,
        book.idle_usd,
        book.unknown_joules,
        book.unknown_usd,
        prices.usd_per_joule,
        {{ ratio('book.location_gco2e', 'book.energy_joules') }} as location_gco2e_per_joule,
        {{ ratio('book.market_gco2e', 'book.energy_joules') }} as market_gco2e_per_joule,
        coalesce(
            prices.price * (
                book.output - coalesce(billed.output, 0)
                + case when prices.counts_input then prices.weight else 0 end * case
                    when prices.counts_cached
                        then book.computed_input - coalesce(billed.computed_input, 0)
                            + 0.1e0 * (book.cached_input - coalesce(billed.cached_input, 0))
                    else book.computed_input - coalesce(billed.computed_input + billed.cached_input, 0)
                end
            ),
            0
        ) as unlogged_joules
    from book
    full outer join billed on book.date = billed.date and book.model = billed.model
    left join prices on book.date = prices.date and book.model = prices.model

),

stated as (

    select
        *,
        {{ exact('unlogged_joules') }} as unlogged_energy_joules,
        {% for kind in ['location', 'market'] -%}
        {{ exact('unlogged_joules * ' ~ kind ~ '_gco2e_per_joule') }} as unlogged_{{ kind }}_gco2e,
        {{ exact('cast(unknown_joules as double) * ' ~ kind ~ '_gco2e_per_joule') }} as unknown_{{ kind }}_gco2e,
        {% endfor -%}
        {{ money('unlogged_joules * usd_per_joule') }} as unlogged_compute_cost_usd,
        coalesce(unknown_joules, 0) as unknown_energy_joules,
        unknown_usd as unknown_compute_cost_usd,
        idle_joules - coalesce(idle_energy_joules, 0) as left_idle_energy_joules,
        idle_gco2e - coalesce(idle_location_gco2e, 0) as left_idle_location_gco2e,
        {{ exact('cast(idle_joules as double) * market_gco2e_per_joule') }} - coalesce(idle_market_gco2e, 0) as left_idle_market_gco2e,
        idle_usd - coalesce(idle_compute_cost_usd, 0) as left_idle_compute_cost_usd
    from joined

),

balanced as (

    {% for part, prefix in [('unlogged', 'unlogged_'), ('idle', 'left_idle_'), ('unknown', 'unknown_')] -%}
    select
        date,
        model,
        '{{ part }}' as part,
        {% for fact in facts -%}
        {{ prefix }}{{ fact }} as {{ fact }}{{ ',' if not loop.last }}
        {% endfor %}
    from stated
    union all
    {% endfor -%}
    -- The rest, so that nothing is lost to rounding.
    select
        date,
        model,
        'price_difference' as part,
        {% for fact in facts -%}
        case
            when {{ fact }} is not null or own_{{ fact }} is not null then coalesce({{ fact }}, 0)
                {%- for prefix in ['own_', 'idle_', 'unlogged_', 'left_idle_', 'unknown_'] %}
                    - coalesce({{ prefix }}{{ fact }}, 0)
                {%- endfor %}
        end as {{ fact }}{{ ',' if not loop.last }}
        {% endfor %}
    from stated

),

final as (

    select
        date,
        model,
        part,
        {% for fact in facts -%}
        cast({{ fact }} as {{ fact_type(fact) }}) as {{ fact }}{{ ',' if not loop.last }}
        {% endfor %}
    from balanced
    where {% for fact in facts %}{{ fact }} <> 0{{ ' or ' if not loop.last }}{% endfor %}

)

select * from final
